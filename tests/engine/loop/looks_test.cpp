// Tests the read-only queries of the step loop: probes with their times, the tenant's view of the caches, the watch frame, and
// explanations.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "engine/loop/metered_loop.h"

namespace quire::test {
namespace {

EngineProbe probe_of(MeteredLoop& bench, const EngineRequest& request) {
  return bench.loop->probe(bench.submission(99, request)).value();
}

// The worker computes 32 tokens a second.
void measure_speed(MeteredLoop& bench) {
  bench.worker->forward_s = 2.0;
  bench.run(1, make_request(64, 1));
  bench.worker->forward_s = 0.0;
}

TEST(LoopProbe, EstimatesTimesFromTheMeasuredSpeed) {
  MeteredLoop bench;
  const EngineRequest request = make_request(64, 1);
  EXPECT_EQ(probe_of(bench, request).wait_s, std::nullopt) << "the speed is unknown";
  EXPECT_EQ(probe_of(bench, request).compute_s, std::nullopt);
  measure_speed(bench);
  EXPECT_EQ(probe_of(bench, request).cache.num_tokens, 64U);
  EXPECT_EQ(probe_of(bench, request).cache.num_local_tokens, 48U) << "the last block is computed again";
  EXPECT_EQ(probe_of(bench, request).compute_s, 0.5);
  EXPECT_EQ(probe_of(bench, request).wait_s, 0.0);
  EXPECT_EQ(probe_of(bench, request).load_s, std::nullopt);
  bench.add(2, make_request(96, 5, 70));
  EXPECT_EQ(probe_of(bench, request).wait_s, 3.0) << "a waiting prompt is computed first";
  bench.add(3, make_request(32, 5, 71));
  EXPECT_EQ(probe_of(bench, request).wait_s, 4.0);
  bench.step();
  EXPECT_EQ(probe_of(bench, request).wait_s, 0.0) << "both prompts are computed";
  EXPECT_EQ(probe_of(bench, request).compute_s, 0.5);
  bench.loop->abort_all();
  bench.run();
}

TEST(LoopProbe, AsksForTheSameBlocksAsTheRequestItself) {
  MeteredLoop bench;
  EngineRequest request = make_request(64, 1);
  request.cache_salt = "salt";
  bench.run(1, request);
  EXPECT_EQ(probe_of(bench, request).cache.num_local_tokens, 48U);
  EngineRequest plain = request;
  plain.cache_salt.clear();
  EXPECT_EQ(probe_of(bench, plain).cache.num_local_tokens, 0U) << "another salt";
  EngineRequest scored = request;
  scored.sampling.prompt_logprobs = 1;
  EXPECT_EQ(probe_of(bench, scored).cache.num_local_tokens, 0U) << "all rows of the prompt are computed";
}

// The tenant has computed two blocks. They have left the prefix cache, and tiers may still hold them.
TEST(LoopProbe, ReportsOnlyTheTenantsBlocksInTiers) {
  struct Case {
    std::vector<TierMatch> found, shown;
  };
  const auto matches = [](std::vector<std::uint32_t> counts) {
    std::vector<TierMatch> made;
    for (std::uint32_t i = 0; i < counts.size(); ++i) made.push_back({.tier = i, .num_tokens = counts[i]});
    return made;
  };
  const Case cases[] = {{matches({16, 16, 16}), matches({16, 16})},
                        {matches({48}), matches({32})},
                        {matches({16}), matches({16})},
                        {matches({32}), matches({32})},
                        {{}, {}}};
  for (const Case& one : cases) {
    SCOPED_TRACE(one.found.size());
    ScriptedConnector connector;
    const auto explainer = std::make_shared<Explainer>(ExplainOptions{.num_blocks = 1000, .block_size = 16, .hash_block_size = 16});
    MeteredLoop bench({.eos_ids = {}, .explainer = explainer}, {.connector = &connector, .events = explainer.get()});
    explainer->follow(*bench.core);
    EngineRequest own = make_request(41, 1);
    own.tags.tenant = "own";
    own.probes_tenant_blocks = true;
    bench.run(1, own);
    EXPECT_EQ(probe_of(bench, own).cache.num_local_tokens, 32U);
    EXPECT_EQ(bench.loop->reset_prefix_cache({}), true);
    connector.found = one.found;
    own.prompt = make_request(90, 1).prompt;
    const CacheProbe probe = probe_of(bench, own).cache;
    EXPECT_EQ(probe.num_local_tokens, 0U);
    EXPECT_EQ(probe.external, one.shown);
    own.tags.tenant = "other";
    EXPECT_TRUE(probe_of(bench, own).cache.external.empty());
    own.probes_tenant_blocks = false;
    EXPECT_EQ(probe_of(bench, own).cache.external, one.found) << "an operator's probe shows all";
  }
}

// A foreign block in the prefix cache ends what the tenant sees, also in tiers after it.
TEST(LoopProbe, HidesTiersAfterABlockOfAnotherTenant) {
  ScriptedConnector connector;
  const auto explainer = std::make_shared<Explainer>(ExplainOptions{.num_blocks = 1000, .block_size = 16, .hash_block_size = 16});
  MeteredLoop bench({.eos_ids = {}, .explainer = explainer}, {.connector = &connector, .events = explainer.get()});
  explainer->follow(*bench.core);
  EngineRequest own = make_request(33, 1);
  own.tags.tenant = "own";
  bench.run(1, own);
  EngineRequest longer = make_request(65, 1);
  longer.tags.tenant = "other";
  bench.run(2, longer);
  connector.found = std::vector<TierMatch>{{.tier = 0, .num_tokens = 16}};
  own.prompt = make_request(90, 1).prompt;
  own.probes_tenant_blocks = true;
  EXPECT_EQ(probe_of(bench, own).cache.num_local_tokens, 32U);
  EXPECT_TRUE(probe_of(bench, own).cache.external.empty());
  own.probes_tenant_blocks = false;
  EXPECT_EQ(probe_of(bench, own).cache.num_local_tokens, 64U);
  EXPECT_EQ(probe_of(bench, own).cache.external.size(), 1U);
}

std::uint32_t most_hits(MeteredLoop& bench) {
  WatchFrame frame;
  bench.loop->watch(frame);
  EXPECT_EQ(frame.now_s, bench.clock->now);
  std::uint32_t most = 0;
  for (const WatchedBlock& block : frame.blocks) most = std::max<std::uint32_t>(most, block.num_hits);
  return most;
}

TEST(LoopWatch, CountsBlockUsesUntilTenSecondsAfterTheLastLook) {
  MeteredLoop bench;
  bench.clock->now = 100.0;
  EXPECT_EQ(most_hits(bench), 0U);
  for (std::uint64_t id = 1; id <= 3; ++id) bench.run(id, make_request(40, 1));
  EXPECT_EQ(most_hits(bench), 2U);
  bench.clock->now = 110.0;
  bench.run(4, make_request(40, 1));
  EXPECT_EQ(most_hits(bench), 3U) << "not longer than ten seconds ago";
  bench.clock->now = 120.25;
  bench.run(5, make_request(40, 1));
  EXPECT_EQ(most_hits(bench), 0U) << "counting begins again";
  bench.run(6, make_request(40, 1));
  EXPECT_EQ(most_hits(bench), 1U);
}

TEST(LoopWatch, ReportsWhatWaitingRequestsWaitFor) {
  EngineOptions options;
  options.scheduler.max_num_seqs = 1;
  for (const bool explains : {true, false}) {
    const auto explainer = std::make_shared<Explainer>(ExplainOptions{.num_blocks = 1000, .block_size = 16, .hash_block_size = 16});
    MeteredLoop bench({.eos_ids = {}, .explainer = explains ? explainer : nullptr}, {.events = explainer.get()}, options);
    explainer->follow(*bench.core);
    EngineRequest request = make_request(20, 5);
    request.name = "first";
    bench.add(1, request);
    request.name = "second";
    bench.add(2, request);
    bench.step();
    WatchFrame frame;
    bench.loop->watch(frame);
    ASSERT_EQ(frame.requests.size(), 2U);
    EXPECT_EQ(frame.requests[0].waits_for, EventCause::none) << "it runs";
    EXPECT_EQ(frame.requests[1].waits_for, explains ? EventCause::no_slot : EventCause::none);
    if (explains) {
      const auto known = bench.loop->explain("second").value();
      ASSERT_EQ(known.size(), 1U);
      EXPECT_TRUE(bench.loop->explain("third").value().empty());
    }
    bench.loop->abort_all();
    bench.run();
  }
}

TEST(LoopCurve, ReportsTheMeasuredSpeedOrWhyThereIsNoCurve) {
  MeteredLoop without({.eos_ids = {}, .curve = {.refusal = {ErrorCode::unsupported, "curve_blocks", "is 0", ""}}});
  EXPECT_EQ(without.loop->cache_curve(std::nullopt).error().to_string(), "curve_blocks: is 0");
  const auto sampler =
      std::make_shared<CurveSampler>(CurveOptions{.num_blocks = 99, .block_size = 16, .hash_block_size = 16, .sizes = {99}});
  MeteredLoop bench({.eos_ids = {}, .curve = {.sampler = sampler, .costs = {.block_bytes = 77}}}, {.events = sampler.get()});
  sampler->follow(*bench.core);
  EXPECT_EQ(bench.loop->cache_curve(std::nullopt).value().costs.prefill_tokens_per_s, 0.0);
  measure_speed(bench);
  EXPECT_EQ(bench.loop->cache_curve(std::nullopt).value().costs.prefill_tokens_per_s, 32.0);
  EXPECT_EQ(bench.loop->cache_curve(std::nullopt).value().costs.block_bytes, 77U);
}

}  // namespace
}  // namespace quire::test
