// States are moved, copied and rolled back: requests of models with state layers run with adapters, tiers, swapping, drafts and forks. They
// must match the same requests alone, bit for bit, in every state cache mode.
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

#include "engine/feature_mix.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

enum class Kept : std::uint8_t { all, some, one };

struct HybridCase {
  const char* model;
  Kept kept;
};

std::string name_of(const testing::TestParamInfo<HybridCase>& info) {
  constexpr const char* kNames[] = {"all", "some", "one"};
  return std::string(info.param.model) + "_" + kNames[static_cast<std::size_t>(info.param.kept)];
}

// Answers repeat earlier tokens, so that some drafts are right; prompts share prefixes.
class HybridStates : public testing::TestWithParam<HybridCase> {
 protected:
  HybridStates() : path_(folder_.path() + "/model") {
    const std::string model = GetParam().model;
    if (model == "lfm2") tiny::write_lfm2_weights(path_);
    if (model == "granitemoehybrid" || model == "falcon_h1") tiny::write_mamba_weights(path_, model);
    if (model == "qwen3_next") tiny::write_qwen3_next_weights(path_);
  }

  [[nodiscard]] EngineOptions options() const {
    EngineOptions options;
    options.model = path_;
    options.num_threads = 2;
    options.cache.block_size = 8;
    options.cache.num_blocks = 400;
    options.scheduler.max_model_len = 160;
    options.scheduler.max_num_seqs = 8;
    options.cache.enable_prefix_caching = GetParam().kept != Kept::one;
    if (GetParam().kept != Kept::one)
      options.cache.mamba_cache_mode = GetParam().kept == Kept::all ? MambaCacheMode::all : MambaCacheMode::align;
    return options;
  }
  [[nodiscard]] EngineOptions plain() const {
    EngineOptions plain = options();
    plain.cache.enable_prefix_caching = false;
    plain.cache.mamba_cache_mode.reset();
    plain.scheduler.async_scheduling = false;
    return plain;
  }
  // Gives so few blocks that running requests are preempted as they grow.
  [[nodiscard]] EngineOptions squeezed() const {
    EngineOptions options = this->options();
    options.scheduler.max_num_batched_tokens = 64;
    options.cache.num_blocks = GetParam().kept == Kept::all ? 70 : 44;
    return options;
  }

  static std::vector<EngineRequest> requests() {
    Random random(11);
    std::vector<EngineRequest> all;
    for (std::uint32_t i = 0; i < 10; ++i) {
      EngineRequest request;
      for (TokenId token = 0; token < 40; ++token) request.prompt.push_back(token % 9 + static_cast<TokenId>(i % 2));
      for (std::uint64_t more = random.between(1, 50); more > 0; --more) request.prompt.push_back(static_cast<TokenId>(random.below(300)));
      request.sampling.temperature = 0.0F;
      request.sampling.max_tokens = 24;
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 2;
      if (i % 2 == 0) request.sampling.allowed_token_ids = {3, 4};
      all.push_back(std::move(request));
    }
    return all;
  }

  // Runs the requests one by one, or all together.
  static std::vector<Bits> answers(Engine& engine, const std::vector<EngineRequest>& requests, bool together) {
    Collector sink;
    std::vector<RequestId> ids;
    for (const EngineRequest& request : requests) {
      ids.push_back(engine.submit(request, sink).value());
      if (!together) (void)sink.wait(ids.back());
    }
    std::vector<Bits> all;
    for (const RequestId id : ids) {
      const Collector::Answer answer = sink.wait(id);
      EXPECT_EQ(answer.error, "");
      all.push_back(bits_of(answer));
    }
    return all;
  }

  static std::unique_ptr<Engine> start(const EngineOptions& options, const EngineSeams& seams = {}) {
    auto engine = create_engine(options, nullptr, nullptr, seams);
    EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
    return engine ? std::move(*engine) : nullptr;
  }

  // Resets the prefix cache once no request holds a block.
  static void forget_cached(Engine& engine) {
    bool is_done = false;
    while (!is_done) {
      std::promise<bool> answer;
      engine.reset_prefix_cache({.preempt_running = false, .external = false},
                                [&](const Result<bool>& done) { answer.set_value(done.value_or(true)); });
      is_done = answer.get_future().get();
    }
  }
  static void wait_until_read(const Engine& engine) {
    while (engine.stats().kv_tiers.at(0).num_unread_slots > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  static Result<RequestId> fork(Engine& engine, RequestId parent, const EngineFork& options, Collector& sink) {
    Result<RequestId> child = engine.fork(parent, options, sink);
    while (!child && child.error().code == ErrorCode::overloaded) child = engine.fork(parent, options, sink);
    return child;
  }

  static EngineStats stop(Engine& engine) {
    EXPECT_EQ(engine.stop(60.0), 0U);
    const EngineStats stats = engine.stats();
    EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
    return stats;
  }

  std::vector<Bits> alone(const std::vector<EngineRequest>& requests, const AdapterOptions& adapters = {}) {
    EngineOptions options = plain();
    options.adapters = adapters;
    const auto engine = start(options);
    return answers(*engine, requests, false);
  }

  TempFolder folder_;
  std::string path_;
};

TEST_P(HybridStates, RunConcurrentlyWithDifferentAdapters) {
  const AdapterOptions adapters = adapters_for(path_);
  std::vector<EngineRequest> all = requests();
  for (std::size_t i = 0; i < all.size(); ++i) all[i].adapter = i % 3 == 0 ? "" : i % 3 == 1 ? "one" : "two";
  const std::vector<Bits> expected = alone(all, adapters);
  EXPECT_NE(expected, alone(requests())) << "adapters change answers";
  EngineOptions options = this->options();
  options.adapters = adapters;
  const auto engine = start(options);
  EXPECT_EQ(answers(*engine, all, true), expected);
  EXPECT_EQ(answers(*engine, all, true), expected) << "with cached prefixes";
  stop(*engine);
}

TEST_P(HybridStates, AreRestoredFromHostMemoryAndFromDisk) {
  if (GetParam().kept == Kept::one) GTEST_SKIP() << "what is stored is found as prefixes are";
  const std::vector<Bits> expected = alone(requests());
  EngineSeams host;
  host.kv_dram = {.bytes = std::uint64_t{64} << 20U, .policy = KvTierPolicy::exact};
  const auto beside = start(options(), host);
  EXPECT_EQ(answers(*beside, requests(), true), expected);
  forget_cached(*beside);
  EXPECT_EQ(answers(*beside, requests(), true), expected);
  EXPECT_GT(stop(*beside).kv_tiers.at(0).tokens_loaded, 300U);
  // The squeezed engine evicts cached blocks that are on disk, too. The warm one finds the files of the earlier engine.
  for (const bool is_warm : {false, true}) {
    SCOPED_TRACE(is_warm ? "warm" : "cold");
    EngineSeams disk;
    disk.kv_disk = {.folder = folder_.path() + "/kv", .budget_bytes = std::uint64_t{64} << 20U, .policy = KvTierPolicy::exact};
    const auto engine = start(is_warm ? squeezed() : options(), disk);
    wait_until_read(*engine);
    EXPECT_EQ(answers(*engine, requests(), is_warm), expected);
    const KvTierStats tier = stop(*engine).kv_tiers.at(0);
    EXPECT_EQ(tier.num_corrupted_blocks, 0U);
    if (is_warm) EXPECT_GT(tier.tokens_loaded, 300U);
    if (!is_warm) EXPECT_GT(tier.num_stored_blocks, 0U);
  }
}

TEST_P(HybridStates, AreSwappedOutAndIn) {
  const std::vector<Bits> expected = alone(requests());
  for (const bool is_async : {false, true}) {
    SCOPED_TRACE(is_async ? "async" : "sync");
    EngineOptions options = squeezed();
    options.scheduler.async_scheduling = is_async;
    options.kv_swap = {.bytes = std::uint64_t{64} << 20U, .choice = SwapChoice::always};
    const auto engine = start(options);
    for (int round = 0; round < 3; ++round) EXPECT_EQ(answers(*engine, requests(), true), expected);
    EXPECT_GT(stop(*engine).kv_swap->num_in, 0U);
  }
}

TEST_P(HybridStates, RollBackToTheLastAcceptedDraft) {
  const std::vector<Bits> expected = alone(requests());
  for (const bool is_async : {false, true}) {
    SCOPED_TRACE(is_async ? "async" : "sync");
    for (const bool swaps : {false, true}) {
      EngineOptions options = swaps ? squeezed() : this->options();
      options.scheduler.async_scheduling = is_async;
      options.speculation = {.num_speculative_tokens = 3, .prompt_lookup_min = 1, .prompt_lookup_max = 3};
      if (swaps) options.kv_swap = {.bytes = std::uint64_t{64} << 20U, .choice = SwapChoice::always};
      const auto engine = start(options);
      EXPECT_EQ(answers(*engine, requests(), true), expected);
      EXPECT_EQ(answers(*engine, requests(), true), expected) << "with cached prefixes";
      const SpeculationStats drafts = *stop(*engine).speculation;
      EXPECT_GT(drafts.num_accepted_tokens, 10U);
      EXPECT_GT(drafts.num_draft_tokens, drafts.num_accepted_tokens);
    }
  }
}

// With no step in flight the parent's states are at its last token, and are copied when either request continues.
TEST_P(HybridStates, AreCopiedForForksThatBothContinue) {
  std::vector<EngineRequest> parents = requests();
  for (EngineRequest& request : parents) request.sampling.max_tokens = 60;
  const std::vector<Bits> expected = alone(parents);
  for (const bool is_async : {false, true}) {
    SCOPED_TRACE(is_async ? "async" : "sync");
    EngineOptions options = this->options();
    options.scheduler.async_scheduling = is_async;
    const auto engine = start(options);
    Collector sink;
    std::vector<std::pair<RequestId, Result<RequestId>>> families;
    for (const EngineRequest& request : parents) {
      const RequestId parent = engine->submit(request, sink).value();
      sink.wait_for_tokens(parent, 2);
      families.emplace_back(parent, fork(*engine, parent, {.n = 2}, sink));
    }
    for (std::size_t i = 0; i < families.size(); ++i) {
      const auto& [parent, child] = families[i];
      EXPECT_EQ(bits_of(sink.wait(parent)), expected[i]);
      // The parent's answer may have ended if this thread waited long for its turn.
      if (!child) {
        EXPECT_EQ(child.error().code, ErrorCode::not_found) << child.error().to_string();
        continue;
      }
      for (const std::uint64_t n : {0U, 1U}) {
        const Collector::Answer answer = sink.wait({child->value + n});
        // The fork may come too late if threads wait long for their turn.
        if (answer.error.find("has ended") == std::string::npos) EXPECT_EQ(answer.tokens, sink.wait(parent).tokens) << answer.error;
      }
    }
    const EngineStats stats = stop(*engine);
    EXPECT_GT(stats.num_forks, families.size());
    EXPECT_GT(stats.num_copied_blocks, families.size());
  }
}

// Answers end at a token that the scheduler cannot foresee, while the next step is in flight.
TEST_P(HybridStates, OfSessionsStopAtTheEndOfTheAnswer) {
  EngineRequest request = requests()[1];
  request.sampling.max_tokens = 12;
  const auto reference = start(plain());
  Collector plain_sink;
  const std::vector<TokenId> first = plain_sink.wait(reference->submit(request, plain_sink).value()).tokens;
  const std::vector<TokenId> input = {5, 6, 7, 8, 9, 10};
  for (const bool drafts : {false, true}) {
    for (const bool is_async : {false, true}) {
      SCOPED_TRACE(is_async ? "async" : "sync");
      EngineOptions options = this->options();
      options.scheduler.async_scheduling = is_async;
      if (drafts) options.speculation = {.num_speculative_tokens = 3, .prompt_lookup_min = 1, .prompt_lookup_max = 3};
      Collector sink;
      const auto engine = start(options);
      for (std::size_t length = 1; length < 10; length += 4) {  // maximum tokens of the first answer
        EngineRequest session = request;
        session.session = true;
        session.sampling.stop_token_ids = {first[length]};
        const RequestId id = engine->submit(session, sink).value();
        const Collector::Answer before = sink.wait_for_inputs(id, 1);
        const RequestId child = fork(*engine, id, {}, sink).value();
        for (const RequestId one : {id, child}) {
          ASSERT_TRUE(engine->append(one, input).has_value());
          ASSERT_TRUE(engine->append(one, {}).has_value());
        }
        EngineRequest fresh = session;
        fresh.session = false;
        fresh.prompt.insert(fresh.prompt.end(), before.tokens.begin(), before.tokens.end());
        fresh.prompt.insert(fresh.prompt.end(), input.begin(), input.end());
        std::vector<TokenId> expected = before.tokens;
        const std::vector<TokenId> after = plain_sink.wait(reference->submit(fresh, plain_sink).value()).tokens;
        expected.insert(expected.end(), after.begin(), after.end());
        EXPECT_EQ(sink.wait(id).tokens, expected) << "after " << before.tokens.size();
        EXPECT_EQ(sink.wait(child).tokens, expected) << "child, after " << before.tokens.size();
      }
      stop(*engine);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, HybridStates,
                         testing::Values(HybridCase{"lfm2", Kept::all}, HybridCase{"lfm2", Kept::one},
                                         HybridCase{"granitemoehybrid", Kept::some}, HybridCase{"granitemoehybrid", Kept::all},
                                         HybridCase{"falcon_h1", Kept::some}, HybridCase{"falcon_h1", Kept::one},
                                         HybridCase{"qwen3_next", Kept::some}),
                         name_of);

}  // namespace
}  // namespace quire::test
