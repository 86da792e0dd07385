// Compares beam searches in the engine with a naive search over the same simulated model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <limits>
#include <thread>

#include "engine/requests/naive_beams.h"
#include "engine/simulated_engine.h"
#include "support/toy_tier.h"

namespace quire {
namespace {

class SearchesTest : public testing::TestWithParam<Mode> {};

RequestId answer_of(RequestId search, std::uint32_t i) {
  return RequestId{search.value + i};
}

EngineRequest search_of(std::uint32_t width, std::uint32_t length, std::uint32_t max_tokens, TokenId first = 1) {
  EngineRequest request = make_request(length, max_tokens, first);
  request.n = width;
  request.beam_search = BeamSearchOptions{};
  return request;
}

std::vector<NaiveHypothesis> naive_answers(const EngineRequest& request) {
  const NaiveSearch search{.prompt = request.prompt,
                           .width = request.n,
                           .max_tokens = std::min(request.sampling.max_tokens, 256U - static_cast<std::uint32_t>(request.prompt.size())),
                           .length_penalty = request.beam_search.value_or(BeamSearchOptions{}).length_penalty,
                           .ignore_eos = request.sampling.ignore_eos,
                           .eos_ids = {kEos}};
  return naive_beam_search(
      search, [](std::span<const TokenId> history, std::uint32_t count) { return simulated_top_logprobs(history, kVocab, count); });
}

void expect_answers(Collector& sink, RequestId search, const EngineRequest& request) {
  const auto wanted = naive_answers(request);
  for (std::uint32_t i = 0; i < request.n; ++i) {
    const Collector::Answer answer = sink.wait(answer_of(search, i));
    EXPECT_EQ(answer.tokens, wanted[i].tokens) << "answer " << i;
    EXPECT_EQ(answer.reason, wanted[i].by_eos ? FinishReason::stop : FinishReason::length);
    EXPECT_EQ(answer.stop_token, wanted[i].by_eos ? kEos : -1);
    EXPECT_EQ(answer.num_finals, 1U);
    EXPECT_EQ(answer.num_outputs_after_final, 0U);
    if (!request.sampling.logprobs.has_value()) continue;
    ASSERT_EQ(answer.logprobs.size(), answer.tokens.size());
    double sum = 0.0;
    for (const PositionLogprobs& position : answer.logprobs) {
      EXPECT_EQ(position.entries.size(), 1 + *request.sampling.logprobs);
      sum += static_cast<double>(position.entries[0].logprob);
    }
    EXPECT_EQ(sum, wanted[i].cum_logprob);
  }
}

EngineRequest random_search(Random& random) {
  EngineRequest request = random_request(random);
  request.sampling.stop_token_ids.clear();
  request.n = static_cast<std::uint32_t>(random.between(1, 10));
  request.sampling.max_tokens = static_cast<std::uint32_t>(random.between(1, 25));
  request.beam_search = BeamSearchOptions{.length_penalty = static_cast<double>(random.between(0, 8)) / 4.0};
  return request;
}

// Beam searches run next to each other and next to sampling requests, under every policy, in large pools and in pools that hardly fit one.
struct SearchesMet {
  std::uint64_t num_copies = 0, num_preemptions = 0;
};

// Submits 60 searches and 60 requests together.
void play_searches(const Mode& mode, std::uint32_t num_blocks, SchedulingPolicy policy, std::uint64_t seed, SearchesMet& met) {
  EngineOptions options;
  options.scheduler.policy = policy;
  options.cache.num_blocks = num_blocks;
  options.cache.enable_prefix_caching = num_blocks != 60;
  options.scheduler.max_num_seqs = num_blocks == 60 ? 4 : 64;
  Collector sink;
  const auto engine = start(mode, {.options = options});
  Random random(seed);
  std::vector<std::pair<RequestId, EngineRequest>> searches, others;
  for (int i = 0; i < 60; ++i) {
    const EngineRequest search = random_search(random), other = random_request(random);
    searches.emplace_back(engine->submit(search, sink).value(), search);
    others.emplace_back(engine->submit(other, sink).value(), other);
  }
  for (const auto& [id, request] : others) expect_equal(sink.wait(id), expected(request));
  for (const auto& [id, request] : searches) expect_answers(sink, id, request);
  EXPECT_EQ(engine->stop(10.0), 0U);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  met.num_copies += engine->stats().num_copied_blocks;
  met.num_preemptions += engine->stats().num_preemptions;
}

// The number of concurrent requests depends on the threads, so the test repeats until some were preempted.
TEST_P(SearchesTest, MatchTheNaiveSearch) {
  SearchesMet met;
  for (std::uint64_t round = 0; round < 20 && (met.num_copies <= 300 || met.num_preemptions == 0) && !HasFailure(); ++round)
    for (const auto& [num_blocks, policy] :
         {std::pair(400U, SchedulingPolicy::fcfs), std::pair(60U, SchedulingPolicy::priority), std::pair(20U, SchedulingPolicy::fcfs),
          std::pair(20U, SchedulingPolicy::priority), std::pair(20U, SchedulingPolicy::continuum)})
      play_searches(GetParam(), num_blocks, policy, num_blocks + 1000 * round, met);
  EXPECT_GT(met.num_copies, 300U) << "the run must copy blocks";
  EXPECT_GT(met.num_preemptions, 0U);
}

// Each token is computed once even if several beams share it: the prompt, and one token of each beam in each step.
TEST_P(SearchesTest, ComputeEachTokenOnce) {
  for (const std::uint32_t width : {1U, 2U, 5U, 10U}) {
    std::atomic<std::uint64_t> num_computed = 0;
    EngineOptions options;
    options.cache.enable_prefix_caching = false;
    const auto engine =
        start(GetParam(), {.options = options, .before_step = [&](const StepPlan& plan) { num_computed += plan.num_scheduled_tokens; }});
    Collector sink;
    EngineRequest request = search_of(width, 40, 30);
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 0;
    expect_answers(sink, engine->submit(request, sink).value(), request);
    engine->stop(10.0);
    EXPECT_EQ(num_computed, 40U + 29U * width);
    EXPECT_EQ(engine->stats().num_forks, 29U * width);
    EXPECT_LE(engine->stats().num_copied_blocks, 29U * (width - 1));
    EXPECT_EQ(engine->stats().generation_tokens, 1 + 29U * width);
    EXPECT_EQ(engine->stats().prompt_tokens, 40U);
    EXPECT_EQ(engine->stats().finished_length, width);
  }
}

// The search has more beams than the batch has rows, so some beams get their tokens before others.
TEST_P(SearchesTest, MayBeWiderThanTheBatch) {
  EngineOptions options;
  options.scheduler.max_num_seqs = 3;
  std::atomic<std::uint64_t> num_computed = 0;
  const auto engine =
      start(GetParam(), {.options = options, .before_step = [&](const StepPlan& plan) { num_computed += plan.num_scheduled_tokens; }});
  Collector sink;
  EngineRequest request = search_of(8, 40, 20);
  request.sampling.ignore_eos = true;
  expect_answers(sink, engine->submit(request, sink).value(), request);
  engine->stop(10.0);
  EXPECT_EQ(num_computed, 40U + 19U * 8U) << "beams that wait for others keep their blocks";
}

// Two beams do not fit together: a beam that has its token frees its blocks, and later beams are recomputed.
TEST_P(SearchesTest, PreemptTheirOwnBeams) {
  EngineOptions options;
  options.cache.num_blocks = 7;  // six without the null block
  options.cache.enable_prefix_caching = false;
  options.scheduler.max_model_len = 96;
  Collector sink;
  const auto engine = start(GetParam(), {.options = options});
  EngineRequest request = search_of(5, 46, 40);
  request.sampling.ignore_eos = true;
  expect_answers(sink, engine->submit(request, sink).value(), request);
  EXPECT_EQ(engine->stop(10.0), 0U);
  EXPECT_EQ(engine->stats().num_free_blocks, 6U);
}

TEST_P(SearchesTest, EndWhenAnyOfTheirAnswersIsFinished) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const RequestId search = engine->submit(search_of(4, 30, 100), sink).value();
  const EngineRequest other = make_request(20, 40);
  const RequestId beside = engine->submit(other, sink).value();
  gate.permits.release(9);
  sink.wait_for_tokens(beside, 4);
  engine->finish(answer_of(search, 2), FinishReason::abort);
  gate.open_for_good();
  for (std::uint32_t i = 0; i < 4; ++i) {
    const Collector::Answer answer = sink.wait(answer_of(search, i));
    EXPECT_EQ(answer.reason, FinishReason::abort);
    EXPECT_EQ(answer.num_finals, 1U);
    EXPECT_TRUE(answer.tokens.empty());
  }
  expect_equal(sink.wait(beside), expected(other));
  engine->stop(10.0);
  EXPECT_EQ(engine->stats().finished_abort, 4U);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
}

// The finish may come before or after the engine thread takes the search.
TEST_P(SearchesTest, MayEndImmediately) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  for (std::uint32_t round = 0; round < 60; ++round) {
    const RequestId search = engine->submit(search_of(3, 30, 100), sink).value();
    for (std::uint32_t i = 0; i < (round % 2 == 0 ? 3U : 1U); ++i) engine->finish(answer_of(search, i), FinishReason::abort);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sink.wait(answer_of(search, i)).num_finals, 1U);
  }
  const RequestId last = engine->submit(search_of(3, 30, 200), sink).value();
  engine->stop(0.0);
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(sink.wait(answer_of(last, i)).num_finals, 1U);
}

TEST_P(SearchesTest, EndInErrorWhenTheModelFails) {
  EngineRequest request = search_of(4, 30, 30);
  request.sampling.ignore_eos = true;
  const TokenId poison = naive_answers(request)[1].tokens[5];
  Collector sink;
  const auto engine = start(GetParam(), {.options = {}, .poison = poison});
  const RequestId search = engine->submit(request, sink).value();
  for (std::uint32_t i = 0; i < 4; ++i) {
    EXPECT_EQ(sink.wait(answer_of(search, i)).reason, FinishReason::error);
    EXPECT_NE(sink.wait(answer_of(search, i)).error.find("NaN or Inf"), std::string::npos);
  }
  engine->stop(10.0);
  EXPECT_EQ(engine->stats().finished_error, 4U);
}

TEST_P(SearchesTest, ContinueAfterAPauseAndAResetOfTheCache) {
  for (const PauseMode mode : {PauseMode::keep, PauseMode::wait}) {
    EngineOptions options;
    options.scheduler.max_num_seqs = 3;  // some beams wait for others when the engine pauses
    Gate gate;
    const auto engine = start(GetParam(), {.options = options, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
    Collector sink;
    const EngineRequest request = search_of(7, 30, 30);
    const RequestId search = engine->submit(request, sink).value();
    gate.permits.release(12);
    while (engine->stats().num_steps < 8) std::this_thread::yield();
    Answered paused, reset, resumed;
    engine->pause({.mode = mode, .clear_cache = true}, paused.callback());
    gate.open_for_good();
    EXPECT_TRUE(*paused.wait());
    engine->reset_prefix_cache({.preempt_running = true}, reset.callback());
    EXPECT_TRUE(*reset.wait());
    engine->resume(resumed.callback());
    expect_answers(sink, search, request);
    engine->stop(10.0);
  }
}

TEST_P(SearchesTest, ReportQueueTimeAndCachedTokens) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const EngineRequest request = search_of(3, 40, 10);
  for (int round = 0; round < 2; ++round) {
    const RequestId search = engine->submit(request, sink).value();
    expect_answers(sink, search, request);
    EXPECT_EQ(sink.wait(answer_of(search, 1)).num_cached_tokens, round == 0 ? 0U : 32U);
  }
  engine->stop(10.0);
  EXPECT_EQ(engine->stats().queue_time_s.counts.back(), 2U) << "cumulative: one for each search";
  EXPECT_EQ(engine->stats().num_waiting, 0U);
}

// Beams that do not fit together free their blocks. A connector stores the blocks first, in a plan that no other request causes.
TEST_P(SearchesTest, ContinueWhenAConnectorStoresTheirFreedBlocks) {
  EngineOptions options;
  options.cache.block_size = 4;
  options.cache.num_blocks = 18;
  const auto tier = std::make_shared<test::ToyTier>(test::ToyOptions{.block_size = 4, .load_async = 0.0, .longest_us = 0});
  Collector sink;
  const auto engine = start(GetParam(), {.options = options, .seams = {.connector = tier, .transport = tier}});
  EngineRequest request = search_of(10, 40, 20);
  request.sampling.ignore_eos = true;
  expect_answers(sink, engine->submit(request, sink).value(), request);
  EXPECT_EQ(engine->stop(60.0), 0U);
  EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
}

// Beams share loaded blocks in the same way as computed blocks.
TEST_P(SearchesTest, RunWithAConnector) {
  for (const double failed : {0.0, 0.3}) {
    EngineOptions options;
    options.cache.block_size = 4;
    options.cache.num_blocks = 60;
    options.scheduler.max_num_seqs = 8;
    const auto tier =
        std::make_shared<test::ToyTier>(test::ToyOptions{.block_size = 4, .load_async = 0.5, .seed = 11, .faults = {.failed = failed}});
    const auto engine =
        start(GetParam(), {.options = options, .seams = {.connector = tier, .transport = tier}, .tolerates_garbage = failed > 0.0});
    Collector sink;
    Random random(5);
    std::vector<std::pair<RequestId, EngineRequest>> searches;
    for (int i = 0; i < 20; ++i) {
      const EngineRequest search = random_search(random);
      searches.emplace_back(engine->submit(search, sink).value(), search);
    }
    for (const auto& [id, request] : searches) expect_answers(sink, id, request);
    EXPECT_EQ(engine->stop(60.0), 0U);
    EXPECT_GT(engine->stats().num_forks, 100U);
    EXPECT_GT(engine->stats().num_loads, 10U) << "too few loads";
    EXPECT_EQ(engine->stats().num_free_blocks, engine->stats().num_blocks);
  }
}

// A search holds one request of its family more than its width, so the widest search has --max-forks minus one beams.
TEST_P(SearchesTest, AreRefusedWhenMaxForksIsNotLargerThanTheirWidth) {
  for (const std::uint32_t max_forks : {1U, 3U, 7U}) {
    EngineOptions options;
    options.max_fork_family = max_forks;
    Collector sink;
    const auto engine = start(GetParam(), {.options = options});
    for (std::uint32_t width = 1; width <= 10; ++width) {
      const EngineRequest request = search_of(width, 20, 9);
      const auto search = engine->submit(request, sink);
      if (width < max_forks) {
        expect_answers(sink, search.value(), request);
        continue;
      }
      ASSERT_FALSE(search.has_value());
      EXPECT_EQ(search.error().code, ErrorCode::invalid_argument);
      EXPECT_EQ(search.error().field, "n");
      EXPECT_NE(search.error().to_string().find(fmt::format("--max-forks {}, which is {}", width + 1, max_forks)), std::string::npos);
    }
    engine->stop(10.0);
  }
}

TEST_P(SearchesTest, CannotBeForked) {
  Gate gate;
  const auto engine = start(GetParam(), {.options = {}, .before_step = [&gate](const StepPlan&) { gate.pass(); }});
  Collector sink;
  const EngineRequest request = search_of(2, 30, 20);
  const RequestId search = engine->submit(request, sink).value();
  gate.permits.release(3);
  while (engine->stats().num_steps < 2) std::this_thread::yield();
  const RequestId child = engine->fork(answer_of(search, 1), {}, sink).value();
  gate.open_for_good();
  EXPECT_NE(sink.wait(child).error.find("beam search"), std::string::npos);
  expect_answers(sink, search, request);
  engine->stop(10.0);
}

TEST_P(SearchesTest, RefuseInvalidFields) {
  Collector sink;
  const auto engine = start(GetParam(), {});
  const auto field = [&](auto&& invalidate) {
    EngineRequest request = search_of(2, 30, 10);
    invalidate(request);
    const auto refused = engine->submit(request, sink);
    return refused.has_value() ? "" : refused.error().field;
  };
  EXPECT_EQ(field([](EngineRequest& r) { r.n = 0; }), "n");
  EXPECT_EQ(field([](EngineRequest& r) { r.n = 11; }), "n");
  EXPECT_EQ(field([](EngineRequest& r) { r.beam_search->length_penalty = 10.5; }), "length_penalty");
  EXPECT_EQ(field([](EngineRequest& r) { r.beam_search->length_penalty = std::numeric_limits<double>::quiet_NaN(); }), "length_penalty");
  EXPECT_EQ(field([](EngineRequest& r) { r.sampling.stop_token_ids = {3}; }), "stop_token_ids");
  EXPECT_EQ(field([](EngineRequest& r) { r.sampling.min_tokens = 1; }), "min_tokens");
  EXPECT_EQ(field([](EngineRequest& r) { r.sampling.logit_bias = {{3, 1.0F}}; }), "logit_bias");
  EXPECT_EQ(field([](EngineRequest& r) { r.sampling.repetition_penalty = 1.5F; }), "repetition_penalty");
  EXPECT_EQ(field([](EngineRequest& r) { r.sampling.presence_penalty = 1.5F; }), "presence_penalty");
  EXPECT_EQ(field([](EngineRequest& r) { r.sampling.frequency_penalty = 1.5F; }), "frequency_penalty");
  EXPECT_EQ(field([](EngineRequest& r) { r.tags.job = "job"; }), "job_id");
  engine->stop(10.0);
}

INSTANTIATE_TEST_SUITE_P(Engine, SearchesTest, testing::ValuesIn(played_modes()), mode_name);

}  // namespace
}  // namespace quire
