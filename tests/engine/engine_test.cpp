// Tests the engine around the simulated worker, which aborts the program when a block does not contain what a plan states.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "engine/simulated_engine.h"

namespace quire {
namespace {

class EngineTest : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Modes, EngineTest, testing::ValuesIn(played_modes()), mode_name);

TEST_P(EngineTest, AnswersARequest) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  EngineRequest request = make_request(40, 30);
  request.sampling.logprobs = 0;
  const RequestId id = engine->submit(request, sink).value();
  const Collector::Answer answer = sink.wait(id);
  expect_equal(answer, expected(request));
  EXPECT_EQ(answer.logprobs.size(), answer.tokens.size());
  EXPECT_EQ(engine->stop(10.0), 0U);
}

TEST_P(EngineTest, GeneratesOneWholeOutput) {
  const auto engine = start(GetParam(), {});
  EngineRequest request = make_request(40, 30);
  request.sampling.logprobs = 0;
  const auto whole = engine->generate(request);
  ASSERT_TRUE(whole.has_value()) << whole.error().to_string();
  const Expected answer = expected(request);
  EXPECT_EQ(whole->tokens, answer.tokens);
  EXPECT_EQ(whole->logprobs.size(), answer.tokens.size());
  EXPECT_EQ(whole->reason, answer.reason);
  EXPECT_EQ(engine->generate(request)->num_cached_tokens, 32U);
}

TEST_P(EngineTest, GeneratesNothingForRequestsWithoutOneEnd) {
  const auto engine = start(GetParam(), {});
  EngineRequest request = make_request(4, 3);
  request.n = 2;
  EXPECT_EQ(engine->generate(request).error().field, "n");
  request = make_request(4, 3);
  request.session = true;
  EXPECT_EQ(engine->generate(request).error().field, "session");
  EXPECT_EQ(engine->generate({}).error().field, "prompt");
  engine->stop(10.0);
  EXPECT_EQ(engine->generate(make_request(4, 3)).error().code, ErrorCode::shutting_down);
}

TEST_P(EngineTest, RefusesInvalidRequestsAndServesTheNextOnes) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  EXPECT_EQ(engine->submit({}, sink).error().field, "prompt");
  EXPECT_EQ(engine->submit(make_request(256, 1), sink).error().field, "prompt");
  EngineRequest bad = make_request(3, 3);
  bad.sampling.top_p = 2.0F;
  EXPECT_EQ(engine->submit(bad, sink).error().field, "top_p");
  const EngineRequest longest = make_request(255, 100);
  expect_equal(sink.wait(engine->submit(longest, sink).value()), expected(longest));
}

TEST_P(EngineTest, FindsASecondEqualPromptInTheCache) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const EngineRequest request = make_request(40, 2);
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).num_cached_tokens, 0U);
  EXPECT_EQ(sink.wait(engine->submit(request, sink).value()).num_cached_tokens, 32U);
  EngineRequest salted = request;
  salted.cache_salt = "other tenant";
  EXPECT_EQ(sink.wait(engine->submit(salted, sink).value()).num_cached_tokens, 0U);
}

// Each step computes one block: if the draws were equal in each step, residency tracking would follow either all blocks or none.
TEST_P(EngineTest, FollowsASampleOfBlocksUntilTheirEviction) {
  EXPECT_FALSE(start(GetParam(), {})->stats().kv_residency.has_value()) << "residency tracking is off by default";
  std::vector<std::uint64_t> num_lives;
  for (const double share : {1.0, 0.5}) {
    quire::Setup setup;  // not the fixture's Setup
    setup.options.cache.num_blocks = 17;
    setup.options.cache.kv_cache_metrics = true;
    setup.options.cache.kv_cache_metrics_sample = share;
    Collector sink;
    const auto engine = start(GetParam(), std::move(setup));
    for (TokenId first = 1; first <= 6; ++first) {
      EngineRequest request = make_request(1, 200, first);
      request.sampling.ignore_eos = true;
      sink.wait(engine->submit(request, sink).value());
    }
    engine->stop(10.0);
    const EngineStats stats = engine->stats();
    ASSERT_TRUE(stats.kv_residency.has_value());
    num_lives.push_back(stats.kv_residency->lifetime_s.counts.back());
    EXPECT_EQ(stats.kv_residency->idle_before_evict_s.counts.back(), num_lives.back());
    EXPECT_LE(stats.kv_residency->idle_before_evict_s.sum, stats.kv_residency->lifetime_s.sum);
    if (share == 1.0) EXPECT_GE(num_lives.back(), stats.num_evicted_blocks) << "blocks without a hash are reused too";
  }
  EXPECT_GT(num_lives[0], num_lives[1]);
  EXPECT_GT(num_lives[1], num_lives[0] / 8);
}

TEST_P(EngineTest, CountsCommonPrefixBlocksOfRequestsThatRunTogether) {
  for (const bool counts : {false, true}) {
    quire::Setup setup;  // not the fixture's Setup
    setup.options.cache.count_common_prefix = counts;
    Gate gate;
    setup.before_step = [&](const StepPlan&) { gate.pass(); };
    Collector sink;
    const auto engine = start(GetParam(), std::move(setup));
    EngineRequest request = make_request(40, 20);
    request.sampling.ignore_eos = true;
    const RequestId first = engine->submit(request, sink).value();
    const RequestId second = engine->submit(request, sink).value();
    gate.open_for_good();
    sink.wait(first);
    sink.wait(second);
    engine->stop(10.0);
    const EngineStats stats = engine->stats();
    ASSERT_EQ(stats.common_prefix_blocks.has_value(), counts);
    if (!counts) continue;
    const double num_steps = static_cast<double>(stats.common_prefix_blocks->counts.back());
    EXPECT_GT(num_steps, 0.0);
    EXPECT_EQ(stats.common_prefix_blocks->sum, 2 * num_steps) << "40 tokens fill two blocks, and the second request finds them";
  }
}

TEST_P(EngineTest, FinishFreesTheBlocksAndReportsTheReason) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  EngineRequest request = make_request(40, 200);
  request.sampling.ignore_eos = true;
  const RequestId first = engine->submit(request, sink).value();
  const RequestId second = engine->submit(request, sink).value();
  gate.permits.release(3);
  sink.wait_for_tokens(first, 2);
  engine->finish(first, FinishReason::abort);
  engine->finish(first, FinishReason::stop);
  engine->finish(second, FinishReason::stop);
  engine->finish(RequestId{999}, FinishReason::abort);
  gate.open_for_good();
  EXPECT_EQ(sink.wait(first).reason, FinishReason::abort);
  EXPECT_EQ(sink.wait(second).reason, FinishReason::stop);
  EXPECT_EQ(sink.wait(first).num_finals, 1U);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_EQ(stats.finished_abort, 1U);
  EXPECT_EQ(stats.finished_stop, 1U);
}

TEST_P(EngineTest, BoundsTheWaitingQueue) {
  Gate gate;
  EngineOptions options;
  options.scheduler.max_num_seqs = 2;
  options.scheduler.max_num_waiting = 3;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  std::vector<RequestId> ids;
  std::uint32_t num_refused = 0;
  for (int i = 0; i < 20; ++i) {
    const Result<RequestId> id = engine->submit(make_request(5, 3, i), sink);
    if (id.has_value()) {
      ids.push_back(*id);
    } else {
      EXPECT_EQ(id.error().code, ErrorCode::overloaded);
      ++num_refused;
    }
  }
  EXPECT_GE(num_refused, 17U - 2U);
  gate.open_for_good();
  for (const RequestId id : ids) EXPECT_EQ(sink.wait(id).num_finals, 1U);
  EXPECT_TRUE(engine->submit(make_request(5, 3), sink).has_value()) << "the queue has room again";
  EXPECT_EQ(engine->stop(10.0), 0U);
}

TEST_P(EngineTest, CountsPromptTokensUntilTheFirstToken) {
  Gate gate;
  EngineOptions options;
  options.max_num_queued_tokens = 12;
  options.max_num_queued_reqs = 5;
  const auto engine = start(GetParam(), {.options = options, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(engine->submit(make_request(5, 3, i), sink).value());
  EXPECT_EQ(engine->submit(make_request(5, 3), sink).error().code, ErrorCode::unavailable) << "15 prompt tokens are queued";
  gate.open_for_good();
  for (const RequestId id : ids) EXPECT_EQ(sink.wait(id).num_finals, 1U);
  EXPECT_EQ(sink.wait(engine->submit(make_request(5, 3), sink).value()).num_finals, 1U);
  EXPECT_EQ(engine->stop(10.0), 0U);
  EXPECT_EQ(engine->stats().num_queued_tokens, 0U);
}

TEST_P(EngineTest, OnlyTheRequestWithoutADistributionFails) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = {}, .poison = kPoison});
  EngineRequest bad = make_request(5, 10);
  bad.prompt.back() = kPoison;
  const EngineRequest good = make_request(5, 10, 9);
  const RequestId bad_id = engine->submit(bad, sink).value();
  const RequestId good_id = engine->submit(good, sink).value();
  const Collector::Answer failed = sink.wait(bad_id);
  EXPECT_EQ(failed.reason, FinishReason::error);
  EXPECT_NE(failed.error, "");
  EXPECT_TRUE(failed.tokens.empty());
  expect_equal(sink.wait(good_id), expected(good, kPoison));
}

// A cached block with NaN or Inf would end every request that hits it.
TEST_P(EngineTest, ForgetsBlocksThatMayContainNaNImmediately) {
  Collector sink;
  const auto engine = start(GetParam(), {.options = {}, .poison = kPoison});
  EngineRequest bad = make_request(64, 10), again = bad, good = make_request(64, 2, 9);
  bad.prompt.back() = kPoison;
  EXPECT_EQ(sink.wait(engine->submit(bad, sink).value()).reason, FinishReason::error);
  EXPECT_EQ(sink.wait(engine->submit(again, sink).value()).num_cached_tokens, 0U);
  sink.wait(engine->submit(good, sink).value());
  EXPECT_GT(sink.wait(engine->submit(good, sink).value()).num_cached_tokens, 0U) << "valid blocks stay cached";
}

TEST_P(EngineTest, ARepeatedPatternEndsTheAnswer) {
  const auto engine = start(GetParam(), {.options = {}, .next_token = [](std::span<const TokenId>) { return TokenId{5}; }});
  Collector sink;
  EngineRequest request = make_request(10, 40);
  request.sampling.ignore_eos = true;
  request.sampling.repetition = {.min_pattern_tokens = 2, .max_pattern_tokens = 3, .min_count = 4};
  const Collector::Answer answer = sink.wait(engine->submit(request, sink).value());
  EXPECT_EQ(answer.reason, FinishReason::repetition);
  EXPECT_EQ(answer.tokens, std::vector<TokenId>(8, 5)) << "four times a pattern of two";
}

TEST_P(EngineTest, StopDrainsThenRefuses) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const EngineRequest request = make_request(30, 50);
  const RequestId id = engine->submit(request, sink).value();
  EXPECT_EQ(engine->stop(30.0), 0U);
  expect_equal(sink.wait(id), expected(request));
  EXPECT_EQ(engine->submit(request, sink).error().code, ErrorCode::shutting_down);
  EXPECT_EQ(engine->stop(0.0), 0U) << "a second stop does nothing";
}

TEST_P(EngineTest, StopAbortsAndCountsRemainingRequests) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&](const StepPlan&) { gate.pass(); }});
  Collector sink;
  EngineRequest request = make_request(30, 200);
  request.sampling.ignore_eos = true;
  const RequestId first = engine->submit(request, sink).value();
  const RequestId second = engine->submit(request, sink).value();
  std::atomic<bool> stopped = false;
  std::thread opener([&] {
    Result<RequestId> late = engine->submit(request, sink);
    while (late.has_value() || late.error().code != ErrorCode::shutting_down) late = engine->submit(request, sink);
    while (!stopped) {
      gate.permits.release();
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
  const std::uint32_t num_aborted = engine->stop(0.0);
  stopped = true;
  opener.join();
  EXPECT_GE(num_aborted, 2U);
  EXPECT_EQ(sink.wait(first).reason, FinishReason::abort);
  EXPECT_EQ(sink.wait(second).reason, FinishReason::abort);
}

TEST_P(EngineTest, StatisticsAddUp) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  std::uint64_t num_tokens = 0;
  for (int i = 0; i < 10; ++i) num_tokens += sink.wait(engine->submit(make_request(20, 5, i * 7), sink).value()).tokens.size();
  engine->stop(10.0);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.generation_tokens, num_tokens);
  EXPECT_EQ(stats.prompt_tokens, 200U);
  EXPECT_EQ(stats.finished_length + stats.finished_stop, 10U);
  EXPECT_EQ(stats.time_to_first_token_s.counts.back(), 10U);
  EXPECT_EQ(stats.queue_time_s.counts.back(), 10U);
  EXPECT_EQ(stats.e2e_latency_s.counts.back(), 10U);
  const std::uint64_t num_at_once = stats.speculation ? stats.speculation->num_accepted_tokens : 0;
  EXPECT_EQ(GetParam().num_drafts > 0, num_at_once > 0);
  EXPECT_LE(stats.inter_token_latency_s.counts.back(), num_tokens - 10) << "when tokens arrive together, only one counts an interval";
  EXPECT_GE(stats.inter_token_latency_s.counts.back() + num_at_once, num_tokens - 10);
  EXPECT_EQ(stats.step_time_s.counts.back(), stats.num_steps);
  EXPECT_EQ(stats.forward_time_s.counts.back(), stats.sample_time_s.counts.back());
  EXPECT_GT(stats.forward_time_s.counts.back(), 0U);
  EXPECT_LE(stats.forward_time_s.counts.back(), stats.num_steps) << "an empty step runs no forward pass";
}

struct Storm {
  const char* name;
  std::uint32_t num_blocks, block_size, max_num_seqs, max_num_batched_tokens, threshold;
  bool prefix_caching;
  std::uint64_t least_preemptions;
};

class EngineStorm : public testing::TestWithParam<std::tuple<Mode, Storm>> {};

// One client: submits, waits for or aborts its requests, and checks each answer.
void storm_client(Engine& engine, std::uint64_t seed, std::uint32_t num_requests) {
  Random random(seed);
  Collector sink;
  std::vector<std::pair<RequestId, EngineRequest>> open;
  for (std::uint32_t i = 0; i < num_requests; ++i) {
    EngineRequest request = random_request(random);
    const RequestId id = engine.submit(request, sink).value();
    if (random.chance(0.3)) {
      if (random.chance(0.7)) sink.wait_for_tokens(id, random.below(10));
      engine.finish(id, FinishReason::abort);
      const Collector::Answer answer = sink.wait(id);
      const Expected wanted = expected(request, kPoison);
      EXPECT_LE(answer.tokens.size(), wanted.tokens.size());
      EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), wanted.tokens.begin()));
      EXPECT_EQ(answer.num_finals, 1U);
    } else {
      open.emplace_back(id, std::move(request));
    }
  }
  for (const auto& [id, request] : open) expect_equal(sink.wait(id), expected(request, kPoison));
}

TEST_P(EngineStorm, ManyClientsGetExactlyTheirAnswers) {
  const auto& [mode, storm] = GetParam();
  EngineOptions options;
  options.cache.num_blocks = storm.num_blocks;
  options.cache.block_size = storm.block_size;
  options.cache.enable_prefix_caching = storm.prefix_caching;
  options.scheduler.max_num_seqs = storm.max_num_seqs;
  options.scheduler.max_num_batched_tokens = storm.max_num_batched_tokens;
  options.scheduler.long_prefill_token_threshold = storm.threshold;
  const auto engine = start(mode, {.options = options, .poison = kPoison});
  std::vector<std::thread> clients;
  for (std::uint64_t seed = 0; seed < 8; ++seed) clients.emplace_back([&engine, seed] { storm_client(*engine, seed, 120); });
  std::ranges::for_each(clients, [](std::thread& client) { client.join(); });
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.num_free_blocks, stats.num_blocks);
  EXPECT_EQ(stats.finished_stop + stats.finished_length + stats.finished_abort + stats.finished_error, 960U);
  EXPECT_GE(stats.num_preemptions, storm.least_preemptions);
  RecordProperty("preemptions", static_cast<int>(stats.num_preemptions));
  EXPECT_EQ(engine->stop(10.0), 0U);
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, EngineStorm,
    testing::Combine(testing::ValuesIn(played_modes()),
                     testing::Values(Storm{"roomy", 2000, 16, 64, 2048, 0, true, 0}, Storm{"tiny_cache", 40, 4, 32, 256, 0, true, 200},
                                     Storm{"tiny_cache_no_prefix", 40, 4, 32, 256, 0, false, 200},
                                     Storm{"tiny_steps", 60, 4, 16, 7, 0, true, 0}, Storm{"tiny_chunks", 200, 1, 16, 64, 3, true, 0},
                                     Storm{"one_at_a_time", 100, 8, 1, 64, 0, true, 0})),
    [](const auto& one) { return std::string(std::get<0>(one.param).name) + "_" + std::get<1>(one.param).name; });

}  // namespace
}  // namespace quire
