// The commands that clients queue for the engine thread: forks, inputs of sessions, endings, questions. Also the exact bounds and texts of
// refusals.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/context_overflow.h"
#include "engine/requests/inbox.h"

namespace quire {
namespace {

constexpr std::uint32_t kSessionContext = 20;  // max_model_len

Inbox::Limits queue_of(std::uint32_t max_num_waiting, std::uint32_t max_num_seqs = 4) {
  return {.max_num_waiting = max_num_waiting, .max_tenant_waiting = max_num_waiting, .max_num_seqs = max_num_seqs};
}

Submission queued_prompt(std::size_t num_tokens, std::uint32_t n = 1, std::string tenant = {}) {
  Submission submission;
  submission.request.prompt.resize(num_tokens, 1);
  submission.request.n = n;
  submission.request.tags.tenant = std::move(tenant);
  return submission;
}

Submission queued_session(std::size_t num_tokens) {
  Submission submission = queued_prompt(num_tokens);
  submission.request.session = true;
  return submission;
}

// Takes what there is. It waits, so it returns only if the inbox knows of something to take.
InboxBatch taken(Inbox& inbox) {
  InboxBatch batch;
  inbox.take(batch, std::nullopt);
  return batch;
}

template <class T>
std::string refusal_text(const Result<T>& result, ErrorCode code) {
  if (result.has_value()) return "";
  EXPECT_EQ(result.error().code, code);
  return result.error().to_string();
}

std::vector<std::uint64_t> ids_of(const std::vector<Submission>& submissions) {
  std::vector<std::uint64_t> ids;
  std::ranges::transform(submissions, std::back_inserter(ids), [](const Submission& one) { return one.id.value; });
  return ids;
}

TEST(InboxRoom, CountsRequestsUpToEachBound) {
  Inbox inbox(queue_of(3));
  ASSERT_TRUE(inbox.submit(queued_prompt(1, 2)));
  EXPECT_EQ(refusal_text(inbox.submit(queued_prompt(1, 2)), ErrorCode::overloaded), "2 requests are waiting already; try again later");
  EXPECT_EQ(refusal_text(inbox.submit(queued_prompt(1, 4)), ErrorCode::invalid_argument),
            "n: is 4, but at most 3 requests of a client can wait at once; use at most 3, or start the server with a larger "
            "--max-num-waiting");
  EXPECT_TRUE(inbox.submit(queued_prompt(1)));

  Inbox::Limits limits = queue_of(10);
  limits.max_tenant_waiting = 3;
  Inbox shared(limits);
  ASSERT_TRUE(shared.submit(queued_prompt(1, 2, "a")));
  EXPECT_EQ(refusal_text(shared.submit(queued_prompt(1, 2, "a")), ErrorCode::overloaded),
            "2 requests of this client are waiting already; try again later");
  EXPECT_EQ(refusal_text(shared.check_room(4, "b"), ErrorCode::invalid_argument),
            "n: is 4, but at most 3 requests of a client can wait at once; use at most 3, or start the server with a larger "
            "--max-num-waiting");
  EXPECT_TRUE(shared.check_room(3, "b"));
  EXPECT_TRUE(shared.submit(queued_prompt(1, 1, "a")));
}

TEST(InboxRoom, CountsAnAdmissionAndAnEndOnce) {
  Inbox inbox(queue_of(4, 10));
  const RequestId first = inbox.submit(queued_prompt(1, 2)).value();
  const RequestId second = inbox.submit(queued_prompt(1, 2)).value();
  EXPECT_FALSE(inbox.check_room(1));
  const RequestId admitted[] = {first, first, {99}};
  inbox.admitted(admitted);
  EXPECT_TRUE(inbox.check_room(1));
  EXPECT_FALSE(inbox.check_room(2)) << "three requests wait";
  const RequestId ended[] = {first, second, second, {99}};
  inbox.ended(ended);
  EXPECT_TRUE(inbox.check_room(2));
  EXPECT_FALSE(inbox.check_room(3)) << "two requests wait";
}

TEST(InboxRoom, RefusesAsSoonAsTheQueueHoldsAsManyPromptTokensAsAllowed) {
  Inbox::Limits limits = queue_of(100);
  limits.max_num_queued_tokens = 10;
  Inbox inbox(limits);
  ASSERT_TRUE(inbox.submit(queued_prompt(9)));
  ASSERT_TRUE(inbox.submit(queued_prompt(1)));
  EXPECT_EQ(refusal_text(inbox.submit(queued_prompt(1)), ErrorCode::unavailable),
            "10 prompt tokens are queued already (--max-num-queued-tokens); try again later, or on another server");
  EXPECT_EQ(inbox.num_queued_tokens(), 10U);

  limits.max_num_queued_tokens = 1;
  Inbox smallest(limits);
  EXPECT_TRUE(smallest.submit(queued_prompt(5)));
  EXPECT_FALSE(smallest.submit(queued_prompt(5)));
  limits = queue_of(100);
  limits.max_num_queued_reqs = 1;
  Inbox single(limits);
  EXPECT_TRUE(single.submit(queued_prompt(5)));
  EXPECT_FALSE(single.submit(queued_prompt(5)));
}

TEST(InboxRoom, PredictsTheFirstTokenOnlyWithALimitAndARate) {
  Inbox without(queue_of(100));
  without.prefilled({}, 1.0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(without.submit(queued_prompt(1000)));

  Inbox::Limits limits = queue_of(100);
  limits.max_ttft_s = 1.0;
  Inbox inbox(limits);
  ASSERT_TRUE(inbox.submit(queued_prompt(100'000)));
  inbox.prefilled({}, 10.0);
  const Error error = inbox.submit(queued_prompt(50'000)).error();
  EXPECT_EQ(error.to_string(),
            "the first token is predicted 14999.0 s after the limit of 1.0 s (--max-ttft); try again later, or on another server");
  EXPECT_EQ(error.retry_after_s, 3600U) << "the advice is never longer than an hour";
  inbox.prefilled({}, 0.5);
  EXPECT_FALSE(inbox.submit(queued_prompt(1)));
  inbox.prefilled({}, 0.0);
  EXPECT_TRUE(inbox.submit(queued_prompt(1))) << "no rate is known";
}

TEST(InboxForks, GiveEachChildAnIdAndCountIt) {
  Inbox inbox(queue_of(3));
  EXPECT_EQ(refusal_text(inbox.fork({.parent = {7}, .options = {}}), ErrorCode::not_found),
            "parent: request 7 is not open; fork a request before it ends");
  const RequestId parent = inbox.submit(queued_prompt(5, 2)).value();
  for (const std::uint64_t id : {parent.value, parent.value + 1})
    EXPECT_EQ(refusal_text(inbox.fork({.parent = {id}, .options = {}}), ErrorCode::overloaded),
              "parent: request " + std::to_string(id) + " is still queued for the scheduler; try again");
  EXPECT_EQ(ids_of(taken(inbox).submissions), std::vector<std::uint64_t>{parent.value});
  EXPECT_EQ(refusal_text(inbox.fork({.parent = parent, .options = {.n = 2}}), ErrorCode::overloaded),
            "2 requests are waiting already; try again later");
  const RequestId admitted[] = {parent, {parent.value + 1}};
  inbox.admitted(admitted);
  const RequestId first = inbox.fork({.parent = parent, .options = {.n = 2, .seed = 5}, .arrival_s = 2.5}).value();
  EXPECT_EQ(first.value, parent.value + 2);
  EXPECT_EQ(inbox.num_queued_tokens(), 5U) << "a child has no prompt to compute";
  EXPECT_FALSE(inbox.check_room(2)) << "the children wait";
  EXPECT_TRUE(inbox.check_room(1));
  const InboxBatch batch = taken(inbox);
  ASSERT_EQ(batch.commands.size(), 1U);
  const Fork& fork = std::get<Fork>(batch.commands[0]);
  EXPECT_EQ(fork.parent, parent);
  EXPECT_EQ(fork.first, first);
  EXPECT_EQ(fork.options.n, 2U);
  EXPECT_EQ(fork.options.seed, 5U);
  EXPECT_EQ(fork.arrival_s, 2.5);
  EXPECT_EQ(inbox.submit(queued_prompt(5)).value().value, first.value + 2) << "ids of children are not given again";
  for (const std::uint64_t id : {first.value, first.value + 1})
    EXPECT_EQ(refusal_text(inbox.append({.id = {id}, .tokens = {1}}, kSessionContext), ErrorCode::invalid_argument),
              "session: does not accept input: the request is not a session, or its input has ended; begin a session");
}

TEST(InboxSessions, BoundAllInputsTogether) {
  Inbox inbox(queue_of(10));
  const RequestId id = inbox.submit(queued_session(10)).value();
  ASSERT_TRUE(inbox.append({.id = id, .tokens = {1, 2, 3, 4}}, kSessionContext));
  EXPECT_EQ(refusal_text(inbox.append({.id = id, .tokens = std::vector<TokenId>(6, 1)}, kSessionContext), ErrorCode::invalid_argument),
            overflow_error("session", {.prompt_tokens = 20, .max_model_len = kSessionContext}).to_string());
  ASSERT_TRUE(inbox.append({.id = id, .tokens = std::vector<TokenId>(5, 1)}, kSessionContext)) << "the refused input does not count";
  const InboxBatch batch = taken(inbox);
  EXPECT_TRUE(batch.commands.empty()) << "inputs of a queued session are in its submission";
  ASSERT_EQ(batch.submissions.size(), 1U);
  ASSERT_EQ(batch.submissions[0].inputs.size(), 2U);
  EXPECT_EQ(batch.submissions[0].inputs[0], (std::vector<TokenId>{1, 2, 3, 4}));
  EXPECT_EQ(batch.submissions[0].inputs[1].size(), 5U);

  // A child begins with the tokens that its parent was given.
  const RequestId child = inbox.fork({.parent = id, .options = {.n = 2}}).value();
  (void)taken(inbox);
  for (const std::uint64_t one : {id.value, child.value, child.value + 1})
    EXPECT_FALSE(inbox.append({.id = {one}, .tokens = {1}}, kSessionContext)) << one;
  ASSERT_TRUE(inbox.append({.id = child, .tokens = {}}, kSessionContext));
  const InboxBatch ending = taken(inbox);
  ASSERT_EQ(ending.commands.size(), 1U);
  EXPECT_EQ(std::get<SessionTokens>(ending.commands[0]).id, child);
  EXPECT_TRUE(std::get<SessionTokens>(ending.commands[0]).tokens.empty());
  EXPECT_EQ(refusal_text(inbox.append({.id = child, .tokens = {}}, kSessionContext), ErrorCode::invalid_argument),
            "session: does not accept input: the request is not a session, or its input has ended; begin a session");
  EXPECT_TRUE(inbox.append({.id = {child.value + 1}, .tokens = {}}, kSessionContext)) << "the other child is still open";
}

TEST(InboxSessions, AcceptNoInputAfterTheirEndOrAClose) {
  Inbox inbox(queue_of(10));
  EXPECT_EQ(refusal_text(inbox.append({.id = {9}, .tokens = {1}}, kSessionContext), ErrorCode::not_found),
            "session: request 9 is not open; begin another session");
  const RequestId id = inbox.submit(queued_session(10)).value();
  const RequestId other = inbox.submit(queued_session(10)).value();
  inbox.finish(id, FinishReason::stop);
  EXPECT_EQ(refusal_text(inbox.append({.id = id, .tokens = {1}}, kSessionContext), ErrorCode::not_found),
            "session: request " + std::to_string(id.value) + " is not open; begin another session");
  inbox.close();
  const std::string closed = "the engine is shutting down; send the request again after the restart, or to another server";
  EXPECT_EQ(refusal_text(inbox.append({.id = other, .tokens = {1}}, kSessionContext), ErrorCode::shutting_down), closed);
  EXPECT_EQ(refusal_text(inbox.check_room(), ErrorCode::shutting_down), closed);
  (void)taken(inbox);
  EXPECT_EQ(refusal_text(inbox.fork({.parent = other, .options = {}}), ErrorCode::shutting_down), closed);
}

TEST(InboxRoom, ASingleSubmissionThatIsLeftIsTakenNext) {
  Inbox inbox(queue_of(100));
  for (std::size_t i = 0; i <= Inbox::kMaxSubmissionsPerTake; ++i) ASSERT_TRUE(inbox.submit(queued_prompt(1)));
  const InboxBatch batch = taken(inbox);
  EXPECT_EQ(batch.submissions.size(), Inbox::kMaxSubmissionsPerTake);
  EXPECT_EQ(batch.num_left, 1U);
  EXPECT_TRUE(batch.has_more);
  EXPECT_EQ(taken(inbox).submissions.size(), 1U);
}

TEST(InboxEndings, CancelASubmissionWhenItsLastAnswerEnds) {
  Inbox inbox(queue_of(10));
  const RequestId first = inbox.submit(queued_prompt(3, 3)).value();
  const RequestId other = inbox.submit(queued_prompt(3, 3)).value();
  inbox.finish({first.value + 1}, FinishReason::stop);
  inbox.finish({first.value + 1}, FinishReason::abort);
  inbox.finish({first.value + 2}, FinishReason::abort);
  inbox.finish({other.value + 2}, FinishReason::stop);
  inbox.finish(first, FinishReason::stop);
  const InboxBatch batch = taken(inbox);
  ASSERT_EQ(batch.cancelled.size(), 1U);
  EXPECT_EQ(batch.cancelled[0].submission.id, first);
  EXPECT_EQ(batch.cancelled[0].reason, FinishReason::stop);
  ASSERT_EQ(batch.submissions.size(), 1U);
  ASSERT_EQ(batch.submissions[0].ended.size(), 1U);
  EXPECT_EQ(batch.submissions[0].ended[0].id.value, other.value + 2);
  EXPECT_EQ(batch.submissions[0].ended[0].reason, FinishReason::stop);
  EXPECT_TRUE(batch.commands.empty());
  EXPECT_EQ(batch.num_left, 0U);
  EXPECT_FALSE(batch.has_more);
}

TEST(InboxEndings, OfAChildWithTheIdAfterAQueuedSubmissionAreCommands) {
  Inbox inbox(queue_of(10));
  const RequestId parent = inbox.submit(queued_prompt(3)).value();
  (void)taken(inbox);
  ASSERT_TRUE(inbox.submit(queued_prompt(3, 2)));
  const RequestId child = inbox.fork({.parent = parent, .options = {}}).value();
  inbox.finish(child, FinishReason::stop);
  const InboxBatch batch = taken(inbox);
  ASSERT_EQ(batch.commands.size(), 2U);
  EXPECT_EQ(std::get<FinishCommand>(batch.commands[1]).id, child);
  ASSERT_EQ(batch.submissions.size(), 1U);
  EXPECT_TRUE(batch.submissions[0].ended.empty());
}

TEST(InboxEndings, ACancelledSubmissionTakesNoTurnOfItsTenant) {
  Inbox inbox(queue_of(10));
  inbox.finish(inbox.submit(queued_prompt(3, 1, "a")).value(), FinishReason::abort);
  const RequestId other = inbox.submit(queued_prompt(3, 1, "b")).value();
  const InboxBatch batch = taken(inbox);
  EXPECT_EQ(ids_of(batch.submissions), std::vector<std::uint64_t>{other.value});
  EXPECT_EQ(batch.cancelled.size(), 1U);
  const RequestId next = inbox.submit(queued_prompt(3, 1, "a")).value();
  EXPECT_EQ(ids_of(taken(inbox).submissions), std::vector<std::uint64_t>{next.value});
}

TEST(InboxEndings, AreTakenOnceAfterAnAbortingPause) {
  Inbox inbox(queue_of(10));
  const RequestId first = inbox.submit(queued_prompt(3, 2)).value();
  inbox.control({PauseOptions{.mode = PauseMode::abort}, {}});
  inbox.finish(first, FinishReason::stop);
  inbox.finish({first.value + 1}, FinishReason::stop);
  inbox.control({PauseOptions{.mode = PauseMode::abort}, {}});
  const InboxBatch batch = taken(inbox);
  ASSERT_EQ(batch.cancelled.size(), 1U);
  EXPECT_EQ(batch.cancelled[0].reason, FinishReason::abort);
  EXPECT_EQ(batch.cancelled[0].submission.request.n, 2U);
  EXPECT_EQ(batch.commands.size(), 2U);
  EXPECT_TRUE(batch.submissions.empty());
}

TEST(InboxEndings, OfQueuedRequestsAreTakenInBoundedNumbers) {
  constexpr std::uint32_t kCount = Inbox::kMaxEndings + 1;
  Inbox inbox(queue_of(kCount));
  for (std::uint32_t i = 0; i < kCount; ++i) inbox.finish(inbox.submit(queued_prompt(1)).value(), FinishReason::abort);
  InboxBatch batch = taken(inbox);
  EXPECT_EQ(batch.cancelled.size(), Inbox::kMaxEndings);
  EXPECT_TRUE(batch.has_more);
  EXPECT_EQ(batch.num_left, 0U);
  inbox.take(batch, std::nullopt);
  EXPECT_EQ(batch.cancelled.size(), 1U) << "the batch holds nothing of the one before";
  EXPECT_FALSE(batch.has_more);
}

TEST(InboxCommands, AreTakenInOrderAndCostlyOnesInBoundedNumbers) {
  Inbox inbox(queue_of(1000));
  const RequestId id = inbox.submit(queued_prompt(1)).value();
  const RequestId last = inbox.submit(queued_prompt(1)).value();
  (void)taken(inbox);
  for (std::size_t i = 0; i + 1 < Inbox::kMaxSubmissionsPerTake; ++i) inbox.ask(ExplainQuery{std::to_string(i), {}});
  inbox.finish(id, FinishReason::abort);
  inbox.ask(ExplainQuery{"the last of this batch", {}});
  inbox.finish(last, FinishReason::stop);
  const InboxBatch batch = taken(inbox);
  ASSERT_EQ(batch.commands.size(), Inbox::kMaxSubmissionsPerTake + 1);
  EXPECT_EQ(std::get<ExplainQuery>(batch.commands[1]).name, "1");
  EXPECT_EQ(std::get<FinishCommand>(batch.commands[Inbox::kMaxSubmissionsPerTake - 1]).id, id);
  EXPECT_EQ(std::get<ExplainQuery>(batch.commands.back()).name, "the last of this batch");
  EXPECT_TRUE(batch.has_more);
  const InboxBatch rest = taken(inbox);
  ASSERT_EQ(rest.commands.size(), 1U);
  EXPECT_EQ(std::get<FinishCommand>(rest.commands[0]).id, last);
  EXPECT_EQ(std::get<FinishCommand>(rest.commands[0]).reason, FinishReason::stop);
  EXPECT_FALSE(rest.has_more);
}

TEST(InboxCommands, AreAnsweredWithAnErrorAfterAClose) {
  Inbox inbox(queue_of(10));
  inbox.control({ResumeOptions{}, {}});
  EXPECT_EQ(taken(inbox).commands.size(), 1U);
  inbox.ask(ExplainQuery{"name", {}});
  EXPECT_EQ(taken(inbox).commands.size(), 1U);
  inbox.close();
  std::vector<ErrorCode> codes;
  inbox.control({ResumeOptions{}, [&codes](const Result<bool>& answer) { codes.push_back(answer.error().code); }});
  inbox.ask(
      ExplainQuery{"name", [&codes](const Result<std::vector<RequestExplanation>>& answer) { codes.push_back(answer.error().code); }});
  EXPECT_EQ(codes, (std::vector<ErrorCode>{ErrorCode::shutting_down, ErrorCode::shutting_down}));
  const InboxBatch batch = taken(inbox);
  EXPECT_TRUE(batch.commands.empty());
  EXPECT_TRUE(batch.closed);
}

// The engine thread sleeps until a command comes.
TEST(InboxCommands, EachCommandWakesTheThreadThatTakesThem) {
  Inbox inbox(queue_of(1000));
  const RequestId session = inbox.submit(queued_session(3)).value();
  (void)taken(inbox);
  std::atomic<std::size_t> num_taken = 0;
  std::thread taker([&] {
    while (num_taken < 300) {
      const InboxBatch batch = taken(inbox);
      EXPECT_FALSE(batch.commands.empty()) << "it sleeps while there is none";
      num_taken += batch.commands.size();
      num_taken.notify_one();
    }
  });
  for (std::size_t i = 0; i < 300; ++i) {
    if (i % 3 == 0) inbox.ask(ExplainQuery{"name", {}});
    if (i % 3 == 1) EXPECT_TRUE(inbox.fork({.parent = session, .options = {}}));
    if (i % 3 == 2) EXPECT_TRUE(inbox.append({.id = session, .tokens = {1}}, 1000));
    num_taken.wait(i);
  }
  taker.join();
}

TEST(InboxCommands, EndAWaitWithATimeLimit) {
  Inbox inbox(queue_of(10));
  InboxBatch batch;
  std::thread taker([&] { inbox.take(batch, 3600.0); });
  inbox.ask(ExplainQuery{"name", {}});
  taker.join();
  EXPECT_EQ(batch.commands.size(), 1U);
}

TEST(InboxCommands, AWakeOrAnAbortEndsAWaitWithoutCommands) {
  Inbox inbox(queue_of(10));
  inbox.wake();
  const InboxBatch batch = taken(inbox);
  EXPECT_TRUE(batch.commands.empty() && batch.submissions.empty() && batch.cancelled.empty());
  EXPECT_FALSE(batch.has_more);
  inbox.abort_rest();
  EXPECT_TRUE(taken(inbox).aborting);
}

}  // namespace
}  // namespace quire
