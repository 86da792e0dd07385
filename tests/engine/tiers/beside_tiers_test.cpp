// Requests of every kind run with connectors and tiers, and each gets the same answer as without them. The simulated worker stops the
// program when a block does not hold what the plan says.
#include <gtest/gtest.h>

#include <map>

#include "engine/requests/naive_beams.h"
#include "engine/simulated_engine.h"
#include "engine/tiers/disk_tier.h"
#include "engine/tiers/dram_tier.h"
#include "runtime/tier/tier_support.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

constexpr std::uint32_t kBlock = 4;  // tokens

class RequestsWithTiers : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, RequestsWithTiers, testing::ValuesIn(played_modes()), mode_name);

EngineOptions small_options(std::uint32_t num_blocks) {
  EngineOptions options;
  options.cache.block_size = kBlock;
  options.cache.num_blocks = num_blocks;
  options.scheduler.max_num_seqs = 8;
  options.scheduler.max_num_batched_tokens = 48;
  options.scheduler.max_num_waiting = 500;
  return options;
}

// Returns the block layout of the simulated worker: one hash per token.
KvLayout layout_of(const CoreConfig& config) {
  KvLayout layout{.num_blocks = config.kv.num_blocks,
                  .dtype = KvDtype::f32,
                  .groups = {},
                  .layers = {},
                  .page_bytes = {kBlock * sizeof(std::uint64_t)}};
  for (std::uint32_t group = 0; group < config.kv.groups.size(); ++group)
    layout.groups.push_back({.spec = {}, .block_size = kBlock, .kernel_block_size = kBlock, .layers = {group}});
  return layout;
}

// A submitted request. The expected answer is computed from it.
struct Asked {
  RequestId id;
  EngineRequest request;
  std::vector<std::vector<TokenId>> inputs = {};  // inputs of a session
};

EngineRequest request_of_any_kind(Random& random) {
  EngineRequest request = random_request(random);
  request.sampling.stop_token_ids.clear();
  switch (random.below(6)) {
    case 0:
      request.sampling.prompt_logprobs = static_cast<std::uint32_t>(random.below(4));
      request.n = static_cast<std::uint32_t>(random.between(1, 3));
      break;
    case 1:
      request.n = static_cast<std::uint32_t>(random.between(2, 5));
      break;
    case 2:
      request.pooling = true;
      request.sampling.logprobs.reset();
      request.sampling.max_tokens = 1;
      request.sampling.pooling.kind = static_cast<PoolingKind>(random.below(4));
      break;
    case 3:
      request.session = true;
      request.sampling.max_tokens = std::min(request.sampling.max_tokens, 12U);
      break;
    case 4:
      request.beam_search.emplace();
      request.n = static_cast<std::uint32_t>(random.between(1, 4));
      request.sampling.max_tokens = std::min(request.sampling.max_tokens, 8U);
      break;
    default:
      break;
  }
  return request;
}

std::vector<Asked> submit_all(Engine& engine, Collector& sink, Random& random, std::uint32_t count) {
  std::vector<Asked> all;
  for (std::uint32_t i = 0; i < count; ++i) {
    Asked& asked = all.emplace_back(Asked{.id = {}, .request = request_of_any_kind(random)});
    asked.id = engine.submit(asked.request, sink).value();
    if (!asked.request.session) continue;
    for (std::uint64_t k = random.below(3); k > 0; --k) {
      std::vector<TokenId>& input = asked.inputs.emplace_back(random.between(1, 9));
      for (TokenId& token : input) token = static_cast<TokenId>(random.below(190));
      EXPECT_TRUE(engine.append(asked.id, input).has_value());
    }
    EXPECT_TRUE(engine.append(asked.id, {}).has_value());
  }
  return all;
}

void expect_session(const Collector::Answer& answer, const Asked& asked) {
  std::vector<TokenId> wanted;
  EngineRequest part = asked.request;
  for (std::size_t i = 0; i <= asked.inputs.size(); ++i) {
    const std::vector<TokenId> tokens = expected(part).tokens;
    wanted.insert(wanted.end(), tokens.begin(), tokens.end());
    part.prompt.insert(part.prompt.end(), tokens.begin(), tokens.end());
    if (i < asked.inputs.size()) part.prompt.insert(part.prompt.end(), asked.inputs[i].begin(), asked.inputs[i].end());
  }
  EXPECT_EQ(answer.tokens, wanted) << "tokens of a session";
}

void expect_prompt(const Collector::Answer& answer, const EngineRequest& request) {
  ASSERT_NE(answer.prompt_logprobs, nullptr);
  ASSERT_EQ(answer.prompt_logprobs->size(), request.prompt.size() - 1);
  const std::span<const TokenId> prompt(request.prompt);
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    const PositionLogprobs wanted = simulated_logprobs(prompt.first(i), kVocab, prompt[i], *request.sampling.prompt_logprobs);
    EXPECT_EQ((*answer.prompt_logprobs)[i - 1].entries.at(0).logprob, wanted.entries.at(0).logprob);
  }
}

void expect_beams(Collector& sink, const Asked& asked) {
  const EngineRequest& request = asked.request;
  const NaiveSearch search{.prompt = request.prompt,
                           .width = request.n,
                           .max_tokens = request.sampling.max_tokens,
                           .ignore_eos = request.sampling.ignore_eos,
                           .eos_ids = {kEos}};
  const auto wanted = naive_beam_search(
      search, [](std::span<const TokenId> history, std::uint32_t count) { return simulated_top_logprobs(history, kVocab, count); });
  for (std::uint32_t i = 0; i < request.n; ++i)
    EXPECT_EQ(sink.wait(RequestId{asked.id.value + i}).tokens, wanted.at(i).tokens) << "tokens of a beam search";
}

void expect_all(Collector& sink, const std::vector<Asked>& all) {
  for (const Asked& asked : all) {
    const EngineRequest& request = asked.request;
    if (request.beam_search) {
      expect_beams(sink, asked);
    } else if (request.pooling) {
      EXPECT_EQ(sink.wait(asked.id).pooled, simulated_pooled(request.prompt, request.sampling.pooling));
    } else if (request.session) {
      expect_session(sink.wait(asked.id), asked);
    } else {
      for (std::uint32_t i = 0; i < request.n; ++i) {
        const Collector::Answer answer = sink.wait(RequestId{asked.id.value + i});
        expect_equal(answer, expected(request));
        if (request.sampling.prompt_logprobs) expect_prompt(answer, request);
      }
    }
  }
}

// Runs the requests twice, so that the second run finds blocks in the tiers.
EngineStats expect_twice(Engine& engine, std::uint64_t seed, std::uint32_t count) {
  Collector sink;
  for (int round = 0; round < 2; ++round) {
    Random random(seed);
    expect_all(sink, submit_all(engine, sink, random, count));
  }
  EXPECT_EQ(engine.stop(60.0), 0U);
  const EngineStats stats = engine.stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_EQ(stats.num_open_transfers, 0U);
  return stats;
}

// The connector loads either before a step or while the request waits, and its stores end late.
TEST_P(RequestsWithTiers, EachRequestGetsTheSameAnswerWithAConnector) {
  for (const std::uint32_t num_blocks : {300U, 75U}) {
    const auto tier = std::make_shared<test::ToyTier>(test::ToyOptions{.block_size = kBlock, .load_async = 0.5, .seed = num_blocks});
    const auto engine = start(GetParam(), {.options = small_options(num_blocks), .seams = {.connector = tier, .transport = tier}});
    const EngineStats stats = expect_twice(*engine, num_blocks, 120);
    EXPECT_GT(stats.num_forks, 50U) << "the test covers too few cases";
    EXPECT_GT(stats.num_loads, 20U);
    if (num_blocks == 75) EXPECT_GT(stats.num_preemptions, 3U);
  }
}

// The engine stacks its built-in tiers, with and without windows, and with and without swap.
TEST_P(RequestsWithTiers, EachRequestGetsTheSameAnswerWithMemoryAndDiskTiers) {
  for (const std::vector<std::uint32_t>& windows : {std::vector<std::uint32_t>{}, std::vector{24U, 24U, 0U}}) {
    for (const KvTierPolicy policy : {KvTierPolicy::exact, KvTierPolicy::measured}) {
      const test::TempFolder folder;
      quire::Setup setup{.options = small_options(windows.empty() ? 75 : 200)};
      if (!windows.empty()) {
        setup.model.num_layers = static_cast<std::uint32_t>(windows.size());
        setup.model.sliding_windows = windows;
      }
      if (policy == KvTierPolicy::measured) setup.options.kv_swap = {.bytes = 16 * 200, .choice = SwapChoice::always};
      const CoreConfig config = resolve_options(setup.options, setup.model, {1, 0}).value().core;
      const KvLayout layout = layout_of(config);
      const KvDramOptions dram{.bytes = 60 * kBlock * sizeof(std::uint64_t), .policy = policy};
      setup.tiers.push_back(DramTier::create(dram, config, layout).value());
      setup.tiers.push_back(
          DiskTier::open({.folder = folder.path(), .budget_bytes = 16 << 20, .policy = policy}, config, layout, test::tier_fingerprint(1))
              .value());
      ASSERT_TRUE(connect_tiers(setup.tiers, setup.seams));
      const auto engine = start(GetParam(), setup);
      while (engine->stats().kv_tiers.at(1).num_unread_slots > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const EngineStats stats = expect_twice(*engine, 5, 100);
      EXPECT_GT(stats.num_forks, 50U) << "the test covers too few cases";
      if (policy == KvTierPolicy::exact) EXPECT_GT(stats.num_loads, 20U);
      for (const KvTierStats& tier : stats.kv_tiers) EXPECT_EQ(tier.num_corrupted_blocks, 0U);
    }
  }
}

// Blocks whose prompt rows are requested are computed. Other requests find them in the tier.
TEST_P(RequestsWithTiers, StoresButDoesNotLoadBlocksWhenPromptRowsAreRequested) {
  const auto tier = std::make_shared<test::ToyTier>(test::ToyOptions{.block_size = kBlock});
  Collector sink;
  const auto engine = start(GetParam(), {.options = small_options(100), .seams = {.connector = tier, .transport = tier}});
  EngineRequest rows = make_request(42, 3), plain = make_request(42, 3);
  rows.sampling.prompt_logprobs = 2;
  EngineRequest pooled = make_request(42, 1);
  pooled.pooling = true;
  pooled.sampling.pooling.kind = PoolingKind::mean;
  for (int round = 0; round < 2; ++round) {
    const Collector::Answer answer = sink.wait(engine->submit(rows, sink).value());
    expect_equal(answer, expected(rows));
    expect_prompt(answer, rows);
    EXPECT_EQ(answer.num_cached_tokens, 0U);
    EXPECT_EQ(sink.wait(engine->submit(pooled, sink).value()).pooled, simulated_pooled(pooled.prompt, pooled.sampling.pooling));
    EXPECT_EQ(engine->stats().num_loads, 0U);
    while (engine->stats().num_open_transfers > 0 || engine->stats().num_awaiting_transfers > 0) std::this_thread::yield();
    Answered reset;
    engine->reset_prefix_cache({}, reset.callback());
    EXPECT_TRUE(reset.wait().value());
  }
  EXPECT_EQ(sink.wait(engine->submit(plain, sink).value()).num_cached_tokens, 40U);
  EXPECT_EQ(engine->stats().num_loads, 1U);
  engine->stop(60.0);
}

}  // namespace
}  // namespace quire
