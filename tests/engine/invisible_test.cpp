// The scheduler is invisible: the token ids and every logit of a request, bit for bit, do not depend on how it was scheduled.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>

#include "base/digest.h"
#include "base/random.h"
#include "engine/collector.h"
#include "engine/create.h"
#include "engine/paused_engine.h"
#include "engine/windowed_model.h"
#include "quire/engine.h"
#include "runtime/model/rig.h"
#include "runtime/model/tiny_adapter.h"
#include "runtime/model/tiny_model.h"
#include "runtime/model/weights/model_file.h"
#include "support/rounds.h"
#include "support/sanitized.h"

namespace quire {
namespace {

constexpr std::uint32_t kNumOutputs = kSanitized ? 8 : 24;
const std::uint32_t kShortRounds = static_cast<std::uint32_t>(rounds_of(14));  // of the squeezed run
const std::uint64_t kNumPreemptions = rounds_of(kSanitized ? 20 : 120);
const std::uint32_t kSwapRounds = static_cast<std::uint32_t>(rounds_of(3));
const std::uint64_t kNumSwapped = rounds_of(kSanitized ? 3 : 20);
constexpr std::uint32_t kFamily = kSanitized ? 3 : 8;  // requests that share a prefix
constexpr std::uint32_t kNumShort = 2 * kFamily;       // the first requests, of at most 27 prompt tokens
const std::uint64_t kNumAccepted = rounds_of(kSanitized ? 20 : 200);
constexpr std::uint64_t kNumCacheHits = kSanitized ? 1000 : 3000;

// The digest of every row of logits, by request and number of tokens known; a request that is preempted samples no token twice.
class LogitsDigests final : public LogitsObserver {
 public:
  void see(RequestId id, std::uint32_t num_tokens, std::span<const float> logits) override {
    sha_.update(std::as_bytes(logits));
    const bool is_new = digests_[id.value].emplace(num_tokens, sha_.finish()).second;
    EXPECT_TRUE(is_new) << "request " << id.value << " sampled twice after " << num_tokens << " tokens";
  }
  // Called after the engine has stopped.
  [[nodiscard]] const std::map<std::uint32_t, Sha256Digest>& of(RequestId id) const { return digests_.at(id.value); }

 private:
  Sha256 sha_;
  std::map<std::uint64_t, std::map<std::uint32_t, Sha256Digest>> digests_;
};

// The bits of an answer: ids, and the log probabilities of the sampled and the 20 likeliest tokens, and of the prompt if asked for.
std::vector<std::uint32_t> bits_of(const Collector::Answer& answer) {
  std::vector<std::uint32_t> bits;
  for (const TokenId token : answer.tokens) bits.push_back(static_cast<std::uint32_t>(token));
  const auto add = [&bits](const std::vector<PositionLogprobs>& positions) {
    for (const PositionLogprobs& position : positions)
      for (const TokenLogprob& entry : position.entries)
        bits.insert(bits.end(), {static_cast<std::uint32_t>(entry.token), std::bit_cast<std::uint32_t>(entry.logprob), entry.rank});
  };
  add(answer.logprobs);
  if (answer.prompt_logprobs != nullptr) add(*answer.prompt_logprobs);
  return bits;
}

// Prompts of 5 to 300 tokens, 64 outside of sanitizers, in groups that share a prefix.
std::vector<EngineRequest> make_requests(std::uint32_t vocab_size) {
  constexpr std::uint32_t kShared[] = {0, 7, 16, 33, 48, 96, 160, 280};
  Random random(2024);
  const auto random_tokens = [&](std::uint32_t count) {
    std::vector<TokenId> tokens(count);
    std::ranges::generate(tokens, [&] { return static_cast<TokenId>(random.below(vocab_size)); });
    return tokens;
  };
  std::vector<EngineRequest> requests;
  for (const std::uint32_t shared : kShared) {
    const std::vector<TokenId> prefix = random_tokens(shared);
    for (std::uint32_t i = 0; i < kFamily; ++i) {
      EngineRequest request;
      request.prompt = prefix;
      const std::vector<TokenId> own = random_tokens(static_cast<std::uint32_t>(random.between(5, 20)));
      request.prompt.insert(request.prompt.end(), own.begin(), own.end());
      request.sampling.temperature = 0.0F;
      request.sampling.max_tokens = kNumOutputs;
      request.sampling.ignore_eos = true;
      request.sampling.logprobs = 20;
      if (i % 3 == 0) request.sampling.prompt_logprobs = 5;
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

struct Answers {
  std::vector<std::vector<std::uint32_t>> bits;
  std::vector<std::map<std::uint32_t, Sha256Digest>> logits;
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_cache_hits = 0;  // tokens
  std::uint64_t num_evicted_blocks = 0;
  std::uint64_t num_swapped = 0;   // requests, out and in again
  std::uint64_t num_accepted = 0;  // accepted draft tokens
};

// Submits the requests with the shorter prompts `short_rounds` more times; they must get the same answers again.
Answers run(const EngineOptions& options, bool together, std::uint32_t short_rounds = 0) {
  LogitsDigests digests;
  auto engine = create_engine(options, nullptr, &digests);
  EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  Answers answers;
  std::vector<RequestId> ids;
  std::vector<EngineRequest> requests = make_requests((*engine)->model().vocab_size);
  const std::vector<AdapterModule>& adapters = options.adapters.modules;
  for (std::size_t i = 0; i < requests.size(); ++i)  // in turn one adapter or none
    if (i % (adapters.size() + 1) > 0) requests[i].adapter = adapters[i % (adapters.size() + 1) - 1].name;
  for (std::uint32_t i = 0; i < short_rounds * kNumShort; ++i) requests.push_back(requests[i % kNumShort]);
  if (together) {
    const PausedEngine paused(**engine);
    for (const EngineRequest& request : requests) ids.push_back((*engine)->submit(request, sink).value());
  } else {
    for (const EngineRequest& request : requests) {
      ids.push_back((*engine)->submit(request, sink).value());
      sink.wait(ids.back());
    }
  }
  for (const RequestId id : ids) {
    const Collector::Answer answer = sink.wait(id);
    EXPECT_EQ(answer.tokens.size(), kNumOutputs) << answer.error;
    const EngineRequest& request = requests[answers.bits.size()];
    EXPECT_EQ(answer.num_prompt_logprobs, request.sampling.prompt_logprobs ? 1U : 0U);
    if (answer.prompt_logprobs != nullptr) EXPECT_EQ(answer.prompt_logprobs->size(), request.prompt.size() - 1);
    answers.bits.push_back(bits_of(answer));
  }
  EXPECT_EQ((*engine)->stop(60.0), 0U);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    answers.logits.push_back(digests.of(ids[i]));
    // Draft tokens may be accepted beyond the last token.
    std::map<std::uint32_t, Sha256Digest>& rows = answers.logits.back();
    rows.erase(rows.lower_bound(static_cast<std::uint32_t>(requests[i].prompt.size()) + kNumOutputs), rows.end());
    EXPECT_EQ(answers.logits.back().size(), kNumOutputs);
    EXPECT_EQ(answers.logits.back().begin()->first, requests[i].prompt.size());
  }
  const EngineStats stats = (*engine)->stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  answers.num_preemptions = stats.num_preemptions;
  answers.num_cache_hits = stats.prefix_cache_hits;
  answers.num_evicted_blocks = stats.num_evicted_blocks;
  if (stats.kv_swap) answers.num_swapped = stats.kv_swap->num_in;
  if (stats.speculation) answers.num_accepted = stats.speculation->num_accepted_tokens;
  return answers;
}

EngineOptions base_options(const std::string& model, std::uint32_t num_blocks) {
  EngineOptions options;
  options.model = model;
  options.scheduler.max_model_len = 330;
  options.cache.num_blocks = num_blocks;
  return options;
}

void expect_equal(const Answers& got, const Answers& wanted) {
  ASSERT_GE(got.bits.size(), wanted.bits.size());
  for (std::size_t i = 0; i < got.bits.size(); ++i) {
    const std::size_t same = i < wanted.bits.size() ? i : i % kNumShort;
    EXPECT_TRUE(got.bits[i] == wanted.bits[same]) << "tokens or log probabilities of request " << i;
    EXPECT_TRUE(got.logits[i] == wanted.logits[same]) << "logits of request " << i;
  }
}

void expect_invisible_together(const EngineOptions& options, const Answers& alone) {
  SCOPED_TRACE("all together");
  const Answers together = run(options, true);
  EXPECT_GT(together.num_cache_hits, 0U);
  expect_equal(together, alone);
}

// With states fewer prefixes are found, and requests release blocks sooner: fewer preemptions.
void expect_invisible_preemptions(const EngineOptions& squeezed, const Answers& alone, bool has_states) {
  SCOPED_TRACE("many preemptions");
  const Answers preempted = run(squeezed, true, kShortRounds);
  EXPECT_GE(preempted.num_preemptions, has_states ? kNumPreemptions / 4 : kNumPreemptions);
  EXPECT_GT(preempted.num_cache_hits, 0U);
  EXPECT_GT(preempted.num_evicted_blocks, 0U);
  testing::Test::RecordProperty("preemptions", static_cast<int>(preempted.num_preemptions));
  expect_equal(preempted, alone);
}

// `squeezed` has so few and small blocks that requests are preempted.
void expect_invisible(EngineOptions base, EngineOptions squeezed, const Answers& alone) {
  const bool async_scheduling = base.scheduler.async_scheduling;
  const bool has_states = base.cache.mamba_cache_mode.has_value();  // fewer prefixes are found, and requests release blocks sooner
  expect_invisible_together(base, alone);
  {
    SCOPED_TRACE("alone, with the cached prefixes of others");
    const Answers cached = run(base, false);
    // Each adapter has separate cached blocks.
    EXPECT_GT(cached.num_cache_hits, base.adapters.is_on() || has_states ? kNumCacheHits / 2 : kNumCacheHits);
    expect_equal(cached, alone);
  }
  {
    SCOPED_TRACE("steps of 16 tokens");
    EngineOptions options = base;
    options.cache.enable_prefix_caching = false;
    options.cache.mamba_cache_mode.reset();
    options.scheduler.max_num_batched_tokens = 16;
    expect_equal(run(options, true), alone);
  }
  {
    SCOPED_TRACE("chunks of 16 prompt tokens");
    EngineOptions options = base;
    options.scheduler.long_prefill_token_threshold = 16;
    expect_equal(run(options, true), alone);
  }
  squeezed.scheduler.async_scheduling = async_scheduling;
  expect_invisible_preemptions(squeezed, alone, has_states);
  if (has_states && !plays_all()) return;  // hybrid_states_test.cpp runs the cases with fewer blocks
  {
    SCOPED_TRACE("preempted requests swapped");
    squeezed.kv_swap = {.bytes = std::uint64_t{64} << 20U, .choice = SwapChoice::always};
    const Answers swapped = run(squeezed, true, kSwapRounds);
    EXPECT_GE(swapped.num_swapped, has_states ? std::uint64_t{1} : kNumSwapped);
    testing::Test::RecordProperty("swapped", static_cast<int>(swapped.num_swapped));
    expect_equal(swapped, alone);
  }
}

void expect_invisible(const EngineOptions& base, const EngineOptions& squeezed, bool async_scheduling) {
  EngineOptions plain = base;
  plain.cache.enable_prefix_caching = false;
  plain.cache.mamba_cache_mode.reset();
  plain.scheduler.async_scheduling = false;
  const Answers alone = run(plain, false);
  EngineOptions options = base;
  options.scheduler.async_scheduling = async_scheduling;
  expect_invisible(options, squeezed, alone);
  if (base.cache.mamba_cache_mode.has_value() && !plays_all()) return;
  SCOPED_TRACE("with drafts");
  EngineOptions drafting = squeezed;
  drafting.scheduler.async_scheduling = async_scheduling;
  drafting.speculation = {.num_speculative_tokens = 4, .prompt_lookup_min = 1, .prompt_lookup_max = 3};
  if (drafting.cache.mamba_cache_mode.has_value()) drafting.cache.num_blocks += 4 * 3;  // states after drafts, in at most three groups
  const Answers drafted = run(drafting, true, kSwapRounds);
  // Answers of models with states seldom repeat earlier tokens. hybrid_states_test.cpp counts drafts of models whose answers repeat.
  if (!base.cache.mamba_cache_mode.has_value()) EXPECT_GT(drafted.num_accepted, kNumAccepted);
  EXPECT_GT(drafted.num_preemptions, 0U);
  testing::Test::RecordProperty("accepted", static_cast<int>(drafted.num_accepted));
  expect_equal(drafted, alone);
}

// Runs the squeezed case with `num_squeezed` blocks of four tokens.
void expect_squeezed_invisible(const std::string& model, std::uint32_t num_blocks, std::uint32_t num_squeezed, bool async_scheduling) {
  EngineOptions squeezed = base_options(model, num_squeezed);
  squeezed.cache.block_size = 4;
  squeezed.scheduler.max_num_batched_tokens = 64;
  expect_invisible(base_options(model, num_blocks), squeezed, async_scheduling);
}

// Runs with and without asynchronous scheduling as separate cases: each takes minutes on a slow processor.
class InvisibleScheduler : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam() && !plays_all()) GTEST_SKIP() << "one of the two is played where not all is (QUIRE_TEST_ROUNDS)";
  }
};
INSTANTIATE_TEST_SUITE_P(Scheduling, InvisibleScheduler, testing::Bool(),
                         [](const auto& param) { return std::string(param.param ? "async" : "sync"); });

// Runs all seven runs if QUIRE_TEST_ROUNDS is unset or 100, else two of them: the small models below run the others.
TEST_P(InvisibleScheduler, OverARealModel) {
  const char* model = std::getenv("QUIRE_TEST_MODEL");
  if (model == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set";
  EngineOptions base = base_options(model, 600);
  EngineOptions squeezed = base_options(model, 84);
  squeezed.cache.block_size = 4;
  if (plays_all()) return expect_invisible(base, squeezed, GetParam());
  EngineOptions plain = base;
  plain.cache.enable_prefix_caching = false;
  const Answers alone = run(plain, false);
  base.scheduler.async_scheduling = squeezed.scheduler.async_scheduling = GetParam();
  expect_invisible_together(base, alone);
  expect_invisible_preemptions(squeezed, alone, false);
}

std::string windowed_model(const tiny::TempFolder& folder) {
  tiny::write_windowed_weights(folder.file("windowed"));
  return folder.file("windowed");
}

// A request of the squeezed run needs 83 blocks in the full group, and 23 in each other group.
TEST_P(InvisibleScheduler, OverWindows) {
  const tiny::TempFolder folder;
  const std::string model = windowed_model(folder);
  expect_squeezed_invisible(model, 1200, 132, GetParam());
}

// A row's router selects its experts, and the weights are read once for all rows of an expert.
TEST_P(InvisibleScheduler, OverExperts) {
  const tiny::TempFolder folder;
  const std::string model = folder.file("mixture");
  tiny::write_mixture_weights(model);
  expect_squeezed_invisible(model, 600, 84, GetParam());
}

// Multi-head latent attention: one vector per token for all heads, and experts that are selected by groups.
TEST_P(InvisibleScheduler, OverLatents) {
  const tiny::TempFolder folder;
  const std::string model = folder.file("deepseek.gguf");
  tiny::write_deepseek_weights(model);
  expect_squeezed_invisible(model, 600, 84, GetParam());
}

// gpt-oss: windows in every other layer, sinks, experts.
TEST_P(InvisibleScheduler, OverSinks) {
  const tiny::TempFolder folder;
  const std::string model = folder.file("gpt_oss.gguf");
  tiny::write_gpt_oss_weights(model);
  expect_squeezed_invisible(model, 900, 112, GetParam());
}

// A request starts from a state that another request left at the end of a block, wherever chunks and preemptions split it. A request of the
// squeezed run needs `num_blocks` blocks in the full group. Each other group needs as many if all states are kept, else 2.
void expect_states_invisible(const std::string& model, std::uint32_t num_blocks, std::uint32_t num_groups, bool async_scheduling) {
  for (const MambaCacheMode mode : {MambaCacheMode::all, MambaCacheMode::align}) {
    const bool keeps_all = mode == MambaCacheMode::all;
    SCOPED_TRACE(keeps_all ? "states of all blocks" : "states of some blocks");
    EngineOptions base = base_options(model, 1200),
                  squeezed = base_options(model, keeps_all ? 1 + num_blocks * (1 + num_groups) : num_blocks + 13);
    base.cache.mamba_cache_mode = squeezed.cache.mamba_cache_mode = mode;
    squeezed.cache.block_size = 4;
    squeezed.scheduler.max_num_batched_tokens = 64;
    expect_invisible(base, squeezed, async_scheduling);
  }
}

TEST_P(InvisibleScheduler, OverShortConvolutions) {
  const tiny::TempFolder folder;
  tiny::write_lfm2_weights(folder.file("lfm2"));
  expect_states_invisible(folder.file("lfm2"), 83, 2, GetParam());
}

// Blocks of the squeezed run have 8 tokens: a state does not fit into 4.
TEST_P(InvisibleScheduler, OverSelectiveScans) {
  const tiny::TempFolder folder;
  for (const char* architecture : {"granitemoehybrid", "falcon_h1"}) {
    if (!plays_all() && std::string(architecture) == "falcon_h1") continue;
    SCOPED_TRACE(architecture);
    tiny::write_mamba_weights(folder.file(architecture), architecture);
    expect_states_invisible(folder.file(architecture), 42, architecture[0] == 'g' ? 2 : 1, GetParam());
  }
}

// One layer attends in one group; three layers have states in three groups.
TEST_P(InvisibleScheduler, OverGatedDeltaRules) {
  const tiny::TempFolder folder;
  tiny::write_qwen3_next_weights(folder.file("next"));
  expect_states_invisible(folder.file("next"), 42, 3, GetParam());
}

// Requests with shared prefixes run with adapters and without. A step takes at most two adapters.
TEST_P(InvisibleScheduler, OverAdapters) {
  const tiny::TempFolder folder;
  const std::string model = windowed_model(folder);
  EngineOptions base = base_options(model, 1200), squeezed = base_options(model, 116);
  const ModelConfig config = ModelFile::open(model)->config();
  for (const std::uint32_t rank : {3U, 8U, 16U}) {
    const std::string name = "rank " + std::to_string(rank);
    tiny::write_adapter(folder.file(name), tiny::adapter_config(rank, 8), tiny::adapter_of(config, rank, name).all);
    base.adapters.modules.push_back({name, folder.file(name)});
  }
  base.adapters.max_loras = 2;
  base.adapters.max_cpu_loras = 3;
  squeezed.adapters = base.adapters;
  squeezed.cache.block_size = 4;
  squeezed.scheduler.max_num_batched_tokens = 32;
  expect_invisible(base, squeezed, GetParam());
}

// Returns the answers of four draws of each eighth prompt, or each sixteenth in shorter runs: from siblings that fork, or from separate
// requests with the siblings' seeds.
std::vector<std::vector<std::uint32_t>> draw(const EngineOptions& options, bool fork, EngineStats& stats) {
  constexpr std::uint32_t kSiblings = 4;
  auto engine = create_engine(options, nullptr, nullptr);
  EXPECT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  std::vector<RequestId> ids;
  const std::vector<EngineRequest> requests = make_requests((*engine)->model().vocab_size);
  for (std::size_t at = 0; at < requests.size(); at += plays_all() ? 8 : 16) {
    EngineRequest request = requests[at];
    request.sampling.temperature = 1.0F;
    request.sampling.seed = 5;
    request.n = fork ? kSiblings : 1;
    for (std::uint32_t i = 0; i < kSiblings / request.n; ++i) {
      const RequestId first = (*engine)->submit(request, sink).value();
      for (std::uint32_t j = 0; j < request.n; ++j) ids.push_back(RequestId{first.value + j});
      *request.sampling.seed += 1;
      if (!fork) sink.wait(first);
    }
  }
  std::vector<std::vector<std::uint32_t>> bits;
  for (const RequestId id : ids) bits.push_back(bits_of(sink.wait(id)));
  EXPECT_EQ((*engine)->stop(60.0), 0U);
  stats = (*engine)->stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_EQ(stats.num_forks, fork ? bits.size() / kSiblings * (kSiblings - 1) : 0U);
  return bits;
}

void expect_forks_invisible(const EngineOptions& base, const EngineOptions& squeezed) {
  EngineStats stats;
  const auto alone = draw(base, false, stats);
  for (const bool async_scheduling : {false, true}) {
    if (!async_scheduling && !plays_all()) continue;
    SCOPED_TRACE(async_scheduling ? "asynchronous" : "synchronous");
    EngineOptions options = base;
    options.scheduler.async_scheduling = async_scheduling;
    EXPECT_EQ(draw(options, true, stats), alone);
    EXPECT_GT(stats.num_copied_blocks, alone.size() / 4) << "most prompts end within a block";
  }
  EngineOptions options = squeezed;
  options.cache.enable_prefix_caching = false;
  EXPECT_EQ(draw(options, true, stats), alone);
  EXPECT_TRUE(kSanitized || stats.num_preemptions > 0) << "no preemption: under a sanitizer all requests fit";
}

// Compares children of running requests, whose parents end immediately, with fresh requests that begin with the same tokens.
void expect_like_fresh(EngineOptions options, std::uint32_t num_groups) {
  options.cache.enable_prefix_caching = false;
  auto engine = create_engine(options, nullptr, nullptr);
  ASSERT_TRUE(engine.has_value()) << engine.error().to_string();
  Collector sink;
  std::vector<EngineRequest> requests = make_requests((*engine)->model().vocab_size);
  std::vector<std::vector<RequestId>> children;
  requests.resize(4);
  for (EngineRequest& request : requests) {
    request.sampling.max_tokens = 250;
    const RequestId parent = (*engine)->submit(request, sink).value();
    sink.wait_for_tokens(parent, 6);
    const RequestId first = (*engine)->fork(parent, {.n = 2, .max_tokens = 100}, sink).value();
    children.push_back({first, RequestId{first.value + 1}});
    sink.wait_for_tokens(first, 1);
    (*engine)->finish(parent, FinishReason::abort);
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (const RequestId id : children[i]) {
      Collector::Answer child = sink.wait(id);
      ASSERT_EQ(child.tokens.size(), 100U) << child.error;
      EXPECT_EQ(child.num_cached_tokens, requests[i].prompt.size()) << "the child computes none of the parent's tokens again";
      const auto own = std::ranges::find_if(child.logprobs, [](const PositionLogprobs& at) { return !at.entries.empty(); });
      const std::ptrdiff_t num_inherited = own - child.logprobs.begin();
      ASSERT_GE(num_inherited, 6);
      EXPECT_EQ(child.prompt_logprobs, nullptr) << "prompt logprobs belong to the parent";
      EngineRequest fresh = requests[i];
      fresh.sampling.prompt_logprobs.reset();
      fresh.prompt.insert(fresh.prompt.end(), child.tokens.begin(), child.tokens.begin() + num_inherited);
      fresh.sampling.max_tokens = static_cast<std::uint32_t>(100 - num_inherited);
      child.tokens.erase(child.tokens.begin(), child.tokens.begin() + num_inherited);
      child.logprobs.erase(child.logprobs.begin(), own);
      EXPECT_EQ(bits_of(child), bits_of(sink.wait((*engine)->submit(fresh, sink).value())));
    }
  }
  EXPECT_EQ((*engine)->stop(60.0), 0U);
  const EngineStats stats = (*engine)->stats();
  EXPECT_EQ(stats.num_forks, 8U);
  EXPECT_LE(stats.num_copied_blocks, stats.num_forks * num_groups) << "one copy per sharer except the last";
}

TEST(Scheduler, ForksAreInvisible) {
  const char* model = std::getenv("QUIRE_TEST_MODEL");
  if (model == nullptr) GTEST_SKIP() << "QUIRE_TEST_MODEL is not set";
  expect_like_fresh(base_options(model, 600), 1);
  EngineOptions squeezed = base_options(model, 96);
  squeezed.cache.block_size = 4;
  expect_forks_invisible(base_options(model, 600), squeezed);
}

TEST(Scheduler, ForksAreInvisibleInWindows) {
  const tiny::TempFolder folder;
  expect_like_fresh(base_options(windowed_model(folder), 1200), 3);
  EngineOptions squeezed = base_options(windowed_model(folder), 140);
  squeezed.cache.block_size = 4;
  squeezed.scheduler.max_num_batched_tokens = 64;
  expect_forks_invisible(base_options(windowed_model(folder), 1200), squeezed);
}

}  // namespace
}  // namespace quire
