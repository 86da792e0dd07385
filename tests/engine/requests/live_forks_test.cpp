// How siblings and children of clients' forks reach the core, and what their clients get.
#include "engine/requests/live_forks.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/requests/recorded_loop.h"

namespace quire {
namespace {

EngineRequest answers_of(std::uint32_t n) {
  EngineRequest request = plain_request(20, 50);
  request.n = n;
  request.name = "name";
  request.priority = 3;
  request.cache_salt = "salt";
  request.tags = {.job = "job", .tenant = "tenant", .is_background = true, .retention_s = 9, .hints = {{"a", "b"}}};
  request.sampling.seed = 7;
  request.sampling.prompt_logprobs = 1;
  return request;
}

Fork fork_of(RecordedLoop& bench, std::uint64_t parent, EngineFork options) {
  return {.parent = {parent}, .first = {20}, .options = std::move(options), .sink = &bench.sink, .arrival_s = 0.5};
}

TEST(LiveForks, SiblingsAreForkedWhenTheirPromptIsPlanned) {
  RecordedLoop bench;
  bench.clock->now = 4.0;
  bench.add(10, answers_of(3), 1.0);
  EXPECT_TRUE(bench.calls.forks.empty());
  EXPECT_EQ(bench.loop->stats().num_waiting, 3U) << "siblings count before the core knows them";
  bench.step();
  ASSERT_EQ(bench.calls.forks.size(), 2U);
  for (std::uint64_t i = 0; i < 2; ++i) {
    const ForkCall& call = bench.calls.forks[i];
    EXPECT_EQ(call.parent, RequestId{10});
    EXPECT_EQ(call.id.value, 11 + i);
    EXPECT_EQ(call.name, "name");
    EXPECT_EQ(call.arrival_s, 4.0);
    EXPECT_EQ(call.now_s, 4.0);
    EXPECT_EQ(call.num_tokens, 20U);
    EXPECT_FALSE(call.max_tokens.has_value());
    EXPECT_FALSE(call.resumable || call.waits_for_input);
    EXPECT_EQ(call.sampling.seed, 8 + i);
    EXPECT_FALSE(call.sampling.prompt_logprobs.has_value()) << "the first one computes them";
  }
  EXPECT_EQ(bench.calls.adds.size(), 1U);
  EXPECT_EQ(bench.calls.adds[0].sampling.seed, 7U);
  EXPECT_EQ(bench.loop->stats().num_waiting, 2U);
  bench.step();
  EXPECT_EQ(bench.calls.forks.size(), 2U) << "each sibling is forked once";
  const auto& logprobs = bench.sink.of[{10}].at(0).prompt_logprobs;
  ASSERT_NE(logprobs, nullptr);
  EXPECT_EQ(logprobs->size(), 19U);
  for (const std::uint64_t id : {11U, 12U}) EXPECT_EQ(bench.sink.of[{id}].at(0).prompt_logprobs, logprobs);
  bench.end();
}

TEST(LiveForks, ASiblingMayEndBeforeItIsForked) {
  RecordedLoop bench;
  bench.add(10, answers_of(3));
  bench.loop->finish({11}, FinishReason::stop);
  EXPECT_EQ(bench.loop->stats().num_waiting, 2U);
  bench.loop->deliver();
  EXPECT_EQ(bench.sink.end_of({11}).reason, FinishReason::stop);
  EXPECT_TRUE(bench.calls.finishes.empty()) << "the core does not know it";
  bench.step();
  ASSERT_EQ(bench.calls.forks.size(), 1U);
  EXPECT_EQ(bench.calls.forks[0].id, RequestId{12});
  bench.end();
}

TEST(LiveForks, SiblingsOfAnEndedRequestAreAddedAsTheRequestWasAdded) {
  RecordedLoop bench;
  bench.clock->now = 4.0;
  bench.add(10, answers_of(3), 1.0);
  bench.loop->finish({10}, FinishReason::abort);
  EXPECT_EQ(bench.loop->stats().num_waiting, 2U);
  ASSERT_EQ(bench.calls.adds.size(), 3U);
  for (std::uint64_t i = 1; i < 3; ++i) {
    const AddCall& call = bench.calls.adds[i];
    EXPECT_EQ(call.id.value, 10 + i);
    EXPECT_EQ(call.name, "name");
    EXPECT_EQ(call.prompt, answers_of(1).prompt);
    EXPECT_EQ(call.priority, 3);
    EXPECT_EQ(call.cache_salt, "salt");
    EXPECT_EQ(call.arrival_s, 1.0);
    EXPECT_EQ(call.max_tokens, 50U);
    EXPECT_EQ(call.tags, (RequestTags{.tenant = "tenant", .is_background = true, .retention_s = 9, .hints = {{"a", "b"}}}))
        << "a job has one turn at a time";
    EXPECT_EQ(call.sampling.seed, 7 + i);
    EXPECT_EQ(call.sampling.prompt_logprobs, 1U);
    EXPECT_TRUE(call.skips_prefix_cache);
  }
  bench.step();
  EXPECT_TRUE(bench.calls.forks.empty());
  const auto &first = bench.sink.of[{11}].at(0).prompt_logprobs, &second = bench.sink.of[{12}].at(0).prompt_logprobs;
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_NE(first, second) << "each computes its prompt";
  bench.end();
}

TEST(LiveForks, ASiblingThatCannotBeForkedIsAdded) {
  RecordedOptions options;
  options.engine.max_fork_family = 2;
  RecordedLoop bench(std::move(options));
  bench.add(10, answers_of(3));
  bench.step();
  ASSERT_EQ(bench.calls.adds.size(), 2U);
  EXPECT_EQ(bench.calls.adds[1].id, RequestId{12});
  EXPECT_EQ(bench.calls.adds[1].sampling.prompt_logprobs, 1U);
  bench.run();
  for (const std::uint64_t id : {10U, 11U, 12U}) {
    EXPECT_EQ(bench.sink.end_of({id}).reason, FinishReason::length);
    ASSERT_NE(bench.sink.of[{id}].at(0).prompt_logprobs, nullptr);
    EXPECT_EQ(bench.sink.of[{id}].at(0).prompt_logprobs->size(), 19U);
  }
  bench.loop->check_all_free();
}

TEST(LiveForks, AChildHasItsParentsParametersUnlessTheForkNamesOthers) {
  for (const bool names_others : {false, true}) {
    SCOPED_TRACE(names_others);
    RecordedLoop bench;
    EngineRequest request = answers_of(1);
    request.sampling.logprobs = 2;
    request.sampling.top_k = 9;
    request.sampling.routed_experts = true;
    bench.add(10, request);
    bench.step(3);
    bench.loop->fork(
        fork_of(bench, 10, names_others ? EngineFork{.n = 2, .seed = 100, .max_tokens = 9, .name = "child"} : EngineFork{.n = 2}));
    bench.loop->deliver();
    ASSERT_EQ(bench.calls.forks.size(), 2U);
    for (std::uint64_t i = 0; i < 2; ++i) {
      const ForkCall& call = bench.calls.forks[i];
      EXPECT_EQ(call.parent, RequestId{10});
      EXPECT_EQ(call.id.value, 20 + i);
      EXPECT_EQ(call.name, names_others ? "child" : "");
      EXPECT_EQ(call.arrival_s, 3.0);
      EXPECT_EQ(call.now_s, 3.0);
      EXPECT_EQ(call.num_tokens, 0U) << "all known tokens";
      EXPECT_EQ(call.max_tokens, names_others ? 9U : 50U);
      EXPECT_FALSE(call.resumable || call.waits_for_input);
      EXPECT_EQ(call.sampling.max_tokens, names_others ? 9U : 50U);
      EXPECT_EQ(call.sampling.logprobs, 2U);
      EXPECT_EQ(call.sampling.top_k, 9);
      EXPECT_FALSE(call.sampling.prompt_logprobs.has_value());
      EXPECT_FALSE(call.sampling.routed_experts);
      if (names_others) EXPECT_EQ(call.sampling.seed, 100 + i);
      const std::vector<RequestOutput>& outputs = bench.sink.of[call.id];
      ASSERT_EQ(outputs.size(), 1U);
      EXPECT_EQ(outputs[0].tokens.size(), 3U);
      EXPECT_EQ(outputs[0].logprobs.size(), 3U);
      EXPECT_FALSE(outputs[0].finished || outputs[0].input_ended);
    }
    if (!names_others) {
      EXPECT_NE(bench.calls.forks[0].sampling.seed, bench.calls.forks[1].sampling.seed);
      EXPECT_NE(bench.calls.forks[0].sampling.seed, 7U) << "a child with its parent's seed would repeat its parent";
    }
    bench.run();
    for (const std::uint64_t id : {20U, 21U}) EXPECT_EQ(bench.sink.end_of({id}).reason, FinishReason::length);
    EXPECT_EQ(bench.loop->stats().e2e_latency_s.counts.back(), 3U);
    bench.loop->check_all_free();
  }
}

TEST(LiveForks, AChildOfASiblingThatIsNotForkedYetBeginsWithThePrompt) {
  RecordedLoop bench;
  bench.add(10, answers_of(2));
  bench.loop->fork(fork_of(bench, 11, {.n = 1}));
  ASSERT_EQ(bench.calls.forks.size(), 1U);
  EXPECT_EQ(bench.calls.forks[0].parent, RequestId{10}) << "the core knows only the first of the siblings";
  EXPECT_EQ(bench.calls.forks[0].num_tokens, 20U);
  bench.run();
  const auto tokens_of = [&](std::uint64_t id) {
    std::vector<TokenId> tokens;
    for (const RequestOutput& output : bench.sink.of[{id}]) tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
    return tokens;
  };
  EXPECT_EQ(tokens_of(20).size(), 50U);
  EXPECT_EQ(tokens_of(20), tokens_of(11));
  bench.loop->check_all_free();
}

TEST(LiveForks, AChildOfASessionIsASession) {
  RecordedLoop bench;
  EngineRequest request = plain_request(20, 3);
  request.session = true;
  bench.add(10, request);
  bench.step();
  bench.loop->fork(fork_of(bench, 10, {.n = 1}));
  ASSERT_EQ(bench.calls.forks.size(), 1U);
  EXPECT_TRUE(bench.calls.forks[0].resumable);
  EXPECT_FALSE(bench.calls.forks[0].waits_for_input);
  bench.loop->deliver();
  EXPECT_FALSE(bench.sink.of[{20}].at(0).input_ended);
  bench.run();
  EXPECT_TRUE(bench.sink.of[{20}].back().input_ended);
  Fork second = fork_of(bench, 10, {.n = 1});
  second.first = {30};
  bench.loop->fork(second);
  ASSERT_EQ(bench.calls.forks.size(), 2U);
  EXPECT_TRUE(bench.calls.forks[1].resumable);
  EXPECT_TRUE(bench.calls.forks[1].waits_for_input);
  bench.loop->deliver();
  ASSERT_EQ(bench.sink.of[{30}].size(), 1U);
  EXPECT_TRUE(bench.sink.of[{30}][0].input_ended);
  EXPECT_EQ(bench.sink.of[{30}][0].tokens.size(), 3U);
  for (const std::uint64_t id : {10U, 20U, 30U}) bench.loop->append({.id = {id}, .tokens = {5, 6}});
  bench.run();
  for (const std::uint64_t id : {10U, 20U, 30U}) {
    EXPECT_TRUE(bench.sink.of[{id}].back().input_ended) << id;
    EXPECT_EQ(bench.sink.of[{id}].back().tokens, bench.sink.of[{10}].back().tokens);
  }
  bench.end();
}

TEST(LiveForks, AForkThatFailsEndsEachChildWithItsError) {
  RecordedOptions options;
  options.engine.max_fork_family = 2;
  RecordedLoop bench(std::move(options));
  bench.clock->now = 2.5;
  bench.loop->fork(fork_of(bench, 99, {.n = 2}));
  bench.loop->deliver();
  for (const std::uint64_t id : {20U, 21U}) {
    const RequestOutput& end = bench.sink.end_of({id});
    EXPECT_EQ(end.reason, FinishReason::error);
    EXPECT_EQ(end.error, "parent: the request has ended; fork a request before it ends");
    ASSERT_TRUE(end.refusal.has_value());
    EXPECT_EQ(end.refusal->code, ErrorCode::not_found);
  }
  EXPECT_EQ(bench.loop->stats().finished_error, 2U);
  EXPECT_EQ(bench.loop->stats().e2e_latency_s.sum, 4.0) << "two seconds since the fork, for each child";
  bench.sink.of.clear();

  bench.add(10, answers_of(1));
  bench.step();
  bench.loop->fork(fork_of(bench, 10, {.n = 2}));
  bench.loop->deliver();
  EXPECT_FALSE(bench.sink.of[{20}].at(0).finished);
  const RequestOutput& end = bench.sink.end_of({21});
  ASSERT_TRUE(end.refusal.has_value());
  EXPECT_EQ(end.refusal->code, ErrorCode::overloaded);
  EXPECT_EQ(end.refusal->field, "n") << "the field of the client, not the option of the core";
  EXPECT_EQ(end.error, "n: 2 requests of one fork family have not ended; try again when some of them have ended");
  bench.loop->fork({.parent = {10}, .first = {40}, .options = {.n = 1, .max_tokens = 1}, .sink = &bench.sink});
  bench.loop->deliver();
  EXPECT_EQ(bench.sink.end_of({40}).refusal.value_or(Error{}).field, "max_tokens");
  bench.end();
}

TEST(LiveForks, ChildrenThatAreNeverForkedGetTheirLastOutput) {
  RecordedLoop bench;
  EngineOptions options;
  options.cache.num_blocks = 20;
  const auto core = Core::create(resolve_options(options, simulated_model(), {1, 0}).value().core).value();
  LiveRequests live(*core, {.eos_ids = {kEos}, .clock = bench.clock, .tools = std::make_shared<ToolNames>(), .grammars = nullptr});
  LiveSessions sessions(*core, live);
  LiveForks forks(*core, live, sessions);
  bench.clock->now = 2.5;
  forks.cancel(fork_of(bench, 10, {.n = 2}), FinishReason::stop);
  live.deliver();
  ASSERT_EQ(bench.sink.of.size(), 2U);
  for (const std::uint64_t id : {20U, 21U}) {
    EXPECT_EQ(bench.sink.of[{id}].size(), 1U);
    EXPECT_EQ(bench.sink.end_of({id}).reason, FinishReason::stop);
  }
  EXPECT_EQ(std::vector<RequestId>(live.ended().begin(), live.ended().end()), (std::vector<RequestId>{{20}, {21}}));
  EXPECT_EQ(live.counts().stats().e2e_latency_s.sum, 4.0);
  EXPECT_TRUE(live.is_empty());
}

TEST(LiveForks, ARequestWithBeamSearchCannotBeForked) {
  RecordedLoop bench;
  EngineRequest search = plain_request(20, 5);
  search.n = 2;
  search.beam_search.emplace();
  bench.add(10, search);
  bench.loop->fork(fork_of(bench, 11, {.n = 1}));
  bench.loop->deliver();
  const RequestOutput& end = bench.sink.end_of({20});
  EXPECT_EQ(end.error, "parent: a request with beam search cannot be forked; fork a request without beam search");
  EXPECT_EQ(end.refusal.value_or(Error{}).code, ErrorCode::unsupported);
  bench.end();
}

}  // namespace
}  // namespace quire
