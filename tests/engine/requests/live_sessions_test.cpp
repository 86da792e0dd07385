// How the inputs of a session reach the core, and when a session continues, ends or fails.
#include "engine/requests/live_sessions.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/requests/recorded_loop.h"

namespace quire {
namespace {

EngineRequest recorded_session(std::uint32_t length, std::uint32_t max_tokens) {
  EngineRequest request = plain_request(length, max_tokens);
  request.session = true;
  return request;
}

std::vector<TokenId> tokens_sent(RecordedLoop& bench, std::uint64_t id) {
  std::vector<TokenId> tokens;
  for (const RequestOutput& output : bench.sink.of[{id}]) tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
  return tokens;
}

TEST(LiveSessions, PassEachInputToTheCoreWithTheTokenThatItDrops) {
  for (const bool async_scheduling : {false, true}) {
    SCOPED_TRACE(async_scheduling);
    RecordedLoop bench({.async_scheduling = async_scheduling});
    EngineRequest request = recorded_session(20, 3);
    request.sampling.ignore_eos = false;
    request.sampling.min_tokens = 3;
    request.sampling.stop_token_ids = {150, 151};
    request.sampling.repetition = {.min_pattern_tokens = 2, .max_pattern_tokens = 3, .min_count = 4};
    request.sampling.top_k = 9;
    bench.add(7, request);
    bench.run();
    const std::vector<TokenId> answer = tokens_sent(bench, 7);
    ASSERT_EQ(answer.size(), 3U);
    bench.clock->now = 50.0;
    bench.loop->append({.id = {7}, .tokens = {4, 5}});
    ASSERT_EQ(bench.calls.inputs.size(), 1U) << "the session was waiting";
    const ContinueCall& call = bench.calls.inputs[0];
    EXPECT_EQ(call.id, RequestId{7});
    EXPECT_EQ(call.tokens, (std::vector<TokenId>{answer.back(), 4, 5})) << "the core drops the last token of an answer";
    EXPECT_EQ(call.arrival_s, 50.0);
    EXPECT_EQ(call.now_s, 50.0);
    EXPECT_EQ(call.min_tokens, 3U);
    EXPECT_EQ(call.eos_ids, std::vector<TokenId>{kEos});
    EXPECT_EQ(call.stop_token_ids, request.sampling.stop_token_ids);
    EXPECT_EQ(call.repetition, request.sampling.repetition);
    EXPECT_EQ(call.sampling.top_k, 9);
    bench.run();
    const EngineStats& stats = bench.loop->stats();
    EXPECT_EQ(stats.time_to_first_token_s.counts.back(), 2U) << "one for each answer";
    EXPECT_EQ(stats.time_to_first_token_s.sum, 1.0 + 1.0) << "counted from the input";
    EXPECT_EQ(stats.inter_token_latency_s.counts.back(), 4U);
    bench.end();
    EXPECT_EQ(bench.loop->stats().e2e_latency_s.sum, bench.clock->now - 50.0) << "from the last input";
  }
}

TEST(LiveSessions, KeepIgnoringEosAfterAnInput) {
  RecordedLoop bench;
  bench.add(7, recorded_session(20, 3));
  bench.run();
  bench.loop->append({.id = {7}, .tokens = {4}});
  EXPECT_TRUE(bench.calls.inputs.at(0).eos_ids.empty());
  bench.end();
}

TEST(LiveSessions, AnswerTheirInputsOneAfterTheOther) {
  RecordedLoop bench;
  Submission submission = bench.submission(7, recorded_session(20, 3));
  submission.inputs = {{4, 5}, {6}};
  bench.loop->add(std::move(submission));
  bench.loop->append({.id = {7}, .tokens = {8}});
  EXPECT_TRUE(bench.calls.inputs.empty()) << "the first answer is not complete";
  bench.loop->append({.id = {7}, .tokens = {}});
  bench.run();
  ASSERT_EQ(bench.calls.inputs.size(), 3U);
  const std::vector<TokenId> answers = tokens_sent(bench, 7);
  ASSERT_EQ(answers.size(), 12U);
  EXPECT_EQ(bench.calls.inputs[0].tokens, (std::vector<TokenId>{answers[2], 4, 5}));
  EXPECT_EQ(bench.calls.inputs[1].tokens, (std::vector<TokenId>{answers[5], 6}));
  EXPECT_EQ(bench.calls.inputs[2].tokens, (std::vector<TokenId>{answers[8], 8}));
  EXPECT_EQ(bench.sink.end_of({7}).reason, FinishReason::stop);
  ASSERT_EQ(bench.calls.finishes.size(), 1U);
  EXPECT_EQ(bench.calls.finishes[0].status, RequestStatus::finished_stopped);
  bench.loop->check_all_free();
}

TEST(LiveSessions, IgnoreInputForRequestsThatHaveEndedOrAreNoSessions) {
  RecordedLoop bench;
  bench.add(7, plain_request(20, 3));
  bench.loop->append({.id = {7}, .tokens = {4}});
  bench.loop->append({.id = {99}, .tokens = {4}});
  bench.run();
  bench.loop->append({.id = {7}, .tokens = {4}});
  EXPECT_TRUE(bench.calls.inputs.empty());
  EXPECT_EQ(tokens_sent(bench, 7).size(), 3U);
  bench.loop->check_all_free();
}

TEST(LiveSessions, AnAbortedSessionDoesNotContinue) {
  RecordedLoop bench;
  bench.add(7, recorded_session(20, 3));
  bench.run();
  bench.loop->finish({7}, FinishReason::abort);
  bench.loop->append({.id = {7}, .tokens = {4}});
  bench.run();
  EXPECT_TRUE(bench.calls.inputs.empty());
  EXPECT_EQ(bench.sink.end_of({7}).reason, FinishReason::abort);
  bench.loop->check_all_free();
}

TEST(LiveSessions, EndWithTheClientsFieldIfTheCoreRefusesAnInput) {
  RecordedLoop bench;
  bench.add(7, recorded_session(20, 3));
  bench.add(8, recorded_session(20, 3));
  bench.run();
  bench.loop->append({.id = {7}, .tokens = std::vector<TokenId>(250, 1)});
  bench.loop->deliver();
  const RequestOutput& end = bench.sink.end_of({7});
  EXPECT_EQ(end.reason, FinishReason::error);
  ASSERT_TRUE(end.refusal.has_value());
  EXPECT_EQ(end.refusal->field, "session");
  EXPECT_EQ(end.error, end.refusal->to_string());
  ASSERT_EQ(bench.calls.finishes.size(), 1U);
  EXPECT_EQ(bench.calls.finishes[0].status, RequestStatus::finished_error);
  bench.loop->append({.id = {8}, .tokens = {4}});
  bench.run();
  EXPECT_EQ(tokens_sent(bench, 8).size(), 6U) << "the other session continues";
  bench.end();
}

// With asynchronous scheduling the step after the answer has already started and computes a token that the client must not see.
TEST(LiveSessions, WaitForTheStepThatStartedTooEarly) {
  RecordedLoop bench({.async_scheduling = true});
  EngineRequest request = recorded_session(20, 50);
  const Expected whole = expected(request);
  request.sampling.stop_token_ids = {whole.tokens[2]};
  bench.add(7, request);
  while (tokens_sent(bench, 7).size() < 3) bench.step();
  bench.loop->append({.id = {7}, .tokens = {4}});
  EXPECT_TRUE(bench.calls.inputs.empty()) << "a step in flight includes the session";
  bench.run();
  ASSERT_EQ(bench.calls.inputs.size(), 1U);
  EXPECT_EQ(bench.calls.inputs[0].tokens.back(), 4);
  EXPECT_EQ(tokens_sent(bench, 7)[2], whole.tokens[2]);
  EngineRequest rest = request;
  rest.prompt.insert(rest.prompt.end(), whole.tokens.begin(), whole.tokens.begin() + 3);
  rest.prompt.push_back(4);
  const std::vector<TokenId> sent = tokens_sent(bench, 7);
  EXPECT_EQ(std::vector<TokenId>(sent.begin() + 3, sent.end()), expected(rest).tokens);
  bench.end();
}

}  // namespace
}  // namespace quire
