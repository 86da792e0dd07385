// Tests which submissions client threads may queue for the engine thread, and how many it takes between two steps.
#include "engine/requests/inbox.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/collector.h"

namespace quire {
namespace {

constexpr double kAtOnce = 0.0;

Inbox::Limits limits_of(std::uint32_t max_num_waiting, std::uint32_t max_num_seqs) {
  return {.max_num_waiting = max_num_waiting, .max_tenant_waiting = max_num_waiting, .max_num_seqs = max_num_seqs};
}

Submission prompt_of(std::size_t num_tokens, std::string tenant = {}, std::uint32_t n = 1) {
  Submission submission;
  submission.request.tags.tenant = std::move(tenant);
  submission.request.n = n;
  submission.request.prompt.resize(num_tokens, 1);
  return submission;
}

std::size_t num_tokens(const InboxBatch& intake) {
  return std::accumulate(intake.submissions.begin(), intake.submissions.end(), std::size_t{0},
                         [](std::size_t sum, const Submission& one) { return sum + one.request.prompt.size(); });
}

// Takes all remaining submissions round by round. Each round stays within the limits, and ids come in the order of submission.
std::vector<std::uint64_t> take_all(Inbox& inbox) {
  std::vector<std::uint64_t> ids;
  InboxBatch intake;
  do {
    inbox.take(intake, kAtOnce);
    EXPECT_LE(intake.submissions.size(), Inbox::kMaxSubmissionsPerTake);
    if (intake.submissions.size() > 1) EXPECT_LE(num_tokens(intake), Inbox::kMaxPromptTokens);
    for (const Submission& submission : intake.submissions) ids.push_back(submission.id.value);
  } while (intake.num_left > 0);
  return ids;
}

std::vector<std::uint64_t> first_ids(std::size_t count) {
  std::vector<std::uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 1U);
  return ids;
}

TEST(Inbox, TakesShortPromptsInOrderInBoundedBatches) {
  Inbox inbox(limits_of(1024, 4));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
  EXPECT_EQ(take_all(inbox), first_ids(1000));
}

TEST(Inbox, TakesFewLongPromptsPerRoundButAtLeastOne) {
  Inbox inbox(limits_of(1024, 4));
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(inbox.submit(prompt_of(i == 7 ? 2 * Inbox::kMaxPromptTokens : 131'072)));
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  EXPECT_EQ(intake.submissions.size(), 2U);
  EXPECT_EQ(intake.num_left, 38U);
  const std::vector<std::uint64_t> rest = take_all(inbox);
  EXPECT_EQ(rest.size(), 38U);
  EXPECT_EQ(rest.front(), 3U);
}

TEST(Inbox, TakesAsManySubmissionsAsTheStepHasRows) {
  for (const std::uint32_t num_rows : {0U, 63U, 65U, 700U, 5000U}) {
    Inbox inbox(limits_of(1024, 4));
    for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
    InboxBatch intake;
    inbox.take(intake, kAtOnce, num_rows);
    EXPECT_EQ(intake.submissions.size(), std::clamp<std::size_t>(num_rows, Inbox::kMaxSubmissionsPerTake, 1000));
  }
}

TEST(Inbox, CountsEachAnswerOfARequestAsARow) {
  Inbox inbox(limits_of(10'000, 4));
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3, {}, 10)));
  InboxBatch intake;
  inbox.take(intake, kAtOnce, 1005);
  EXPECT_EQ(intake.submissions.size(), 101U);
}

TEST(Inbox, TakesMorePromptTokensWhenAStepComputesMore) {
  Inbox::Limits limits = limits_of(1024, 4);
  limits.max_num_batched_tokens = 4 * Inbox::kMaxPromptTokens;
  Inbox inbox(limits);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(inbox.submit(prompt_of(131'072)));
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  EXPECT_EQ(intake.submissions.size(), 8U);
}

// However much was submitted before, a tenant with short prompts is served immediately.
TEST(Inbox, TakesTurnsBetweenTenants) {
  Inbox inbox(limits_of(4096, 4));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(5000, "long")));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(7, "many")));
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(inbox.submit(prompt_of(7, "late")));
  inbox.take(intake, kAtOnce);
  const auto count = [&](const char* tenant) {
    return std::ranges::count(intake.submissions, tenant, [](const Submission& one) { return one.request.tags.tenant; });
  };
  EXPECT_EQ(count("late"), 20);
  EXPECT_LE(count("long"), 1);
  EXPECT_GT(count("many"), 40);
}

// A tenant that was away gets no larger share later for requests that it did not send.
TEST(Inbox, AReturningTenantGetsNoMoreTurnsThanOthers) {
  Inbox inbox(limits_of(4096, 4));
  ASSERT_TRUE(inbox.submit(prompt_of(10, "back")));
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(10, "steady")));
  InboxBatch intake;
  for (int i = 0; i < 5; ++i) inbox.take(intake, kAtOnce);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(10, "back")));
  inbox.take(intake, kAtOnce);
  const auto num_back =
      std::ranges::count(intake.submissions, std::string("back"), [](const Submission& one) { return one.request.tags.tenant; });
  EXPECT_NEAR(static_cast<double>(num_back), 32.0, 2.0);
}

std::vector<std::uint64_t> taken_ids(Inbox& inbox) {
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  std::vector<std::uint64_t> ids;
  for (const Submission& one : intake.submissions) ids.push_back(one.id.value);
  return ids;
}

TEST(Inbox, ATenantWithoutOpenRequestsStartsAgainWithTheOthers) {
  Inbox inbox(limits_of(100, 4));
  const RequestId heavy = inbox.submit(prompt_of(1000, "heavy")).value();
  ASSERT_TRUE(inbox.submit(prompt_of(10, "light")));
  EXPECT_EQ(taken_ids(inbox).size(), 2U);
  const RequestId ended[] = {heavy};
  inbox.ended(ended);
  // "light" has had 10 tokens; "heavy" is new again, with as many as "light" had before its last turn.
  const RequestId next = inbox.submit(prompt_of(10, "light")).value();
  const RequestId again = inbox.submit(prompt_of(10, "heavy")).value();
  EXPECT_EQ(taken_ids(inbox), (std::vector<std::uint64_t>{again.value, next.value}));
}

TEST(Inbox, ATenantIsServedByThePromptTokensOfItsRequests) {
  Inbox inbox(limits_of(100, 4));
  std::vector<std::uint64_t> ids;
  for (const auto& [tenant, length] :
       {std::pair("a", 30U), std::pair("a", 1U), std::pair("b", 10U), std::pair("b", 10U), std::pair("b", 10U), std::pair("b", 10U)})
    ids.push_back(inbox.submit(prompt_of(length, tenant)).value().value);
  // After 30 tokens each, the tenants have had equally much, and "a" comes first.
  EXPECT_EQ(taken_ids(inbox), (std::vector<std::uint64_t>{ids[0], ids[2], ids[3], ids[4], ids[1], ids[5]}));
}

TEST(Inbox, LimitsATenantToItsShareOfTheQueue) {
  Inbox::Limits limits = limits_of(100, 4);
  limits.max_tenant_waiting = 60;
  Inbox inbox(limits);
  ASSERT_TRUE(inbox.submit(prompt_of(3, "a", 50)));
  const auto refused = inbox.submit(prompt_of(3, "a", 11));
  EXPECT_EQ(refused.error().code, ErrorCode::overloaded);
  EXPECT_EQ(inbox.check_room(11, "a").error().code, ErrorCode::overloaded);
  EXPECT_TRUE(inbox.check_room(11, "b").has_value());
  ASSERT_TRUE(inbox.submit(prompt_of(3, "a", 10)));
  ASSERT_TRUE(inbox.submit(prompt_of(3, "b", 40)));
  EXPECT_EQ(inbox.submit(prompt_of(3, "b")).error().code, ErrorCode::overloaded) << "the bound for all tenants";
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  std::vector<RequestId> ids;
  for (std::uint64_t i = 0; i < 100; ++i) ids.push_back({i});
  inbox.admitted(ids);
  inbox.ended(ids);
  EXPECT_TRUE(inbox.submit(prompt_of(3, "a", 60)).has_value());
}

TEST(Inbox, BackgroundRequestsFillHalfOfTheQueueAtMost) {
  Inbox inbox(limits_of(100, 4));
  const auto background = [](std::uint32_t n) {
    Submission submission = prompt_of(3, "a", n);
    submission.request.tags.is_background = true;
    return submission;
  };
  ASSERT_TRUE(inbox.submit(background(50)));
  EXPECT_EQ(inbox.submit(background(1)).error().code, ErrorCode::overloaded);
  EXPECT_TRUE(inbox.submit(prompt_of(3, "a", 50))) << "the other half is for other requests";
}

// A later retry can never succeed, so the error is the client's.
TEST(Inbox, RefusesMoreAnswersThanTheQueueCanHoldAsInvalid) {
  Inbox inbox(limits_of(20, 4));
  const auto refused = inbox.submit(prompt_of(3, {}, 21));
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(refused.error().field, "n");
  EXPECT_TRUE(inbox.submit(prompt_of(3, {}, 20)).has_value());
}

TEST(Inbox, FinishesAndControlsAreNotDelayedBySubmissions) {
  Inbox inbox(limits_of(2048, 4));
  const RequestId known = inbox.submit(prompt_of(3)).value();
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
  inbox.finish(known, FinishReason::abort);
  inbox.finish(known, FinishReason::stop);
  inbox.control({PauseOptions{.mode = PauseMode::keep}, {}});
  inbox.take(intake, kAtOnce);
  ASSERT_EQ(intake.commands.size(), 2U) << "one finish per request";
  EXPECT_EQ(std::get<FinishCommand>(intake.commands[0]).id, known);
  EXPECT_TRUE(std::holds_alternative<Control>(intake.commands[1]));
  EXPECT_GT(intake.num_left, 0U);
}

TEST(Inbox, TakesFinishesInBoundedNumbers) {
  constexpr std::uint32_t kCount = Inbox::kMaxEndings + 1000;
  Inbox inbox(limits_of(kCount, 4));
  std::vector<RequestId> ids;
  for (std::uint32_t i = 0; i < kCount; ++i) ids.push_back(inbox.submit(prompt_of(3)).value());
  take_all(inbox);
  for (const RequestId id : ids) inbox.finish(id, FinishReason::abort);
  std::vector<RequestId> ended;
  InboxBatch intake;
  do {
    inbox.take(intake, kAtOnce);
    EXPECT_EQ(intake.commands.size(), std::min<std::size_t>(Inbox::kMaxEndings, kCount - ended.size()));
    for (const Command& command : intake.commands) ended.push_back(std::get<FinishCommand>(command).id);
  } while (intake.has_more);
  EXPECT_EQ(ended, ids);
}

TEST(Inbox, NeverTakesARequestThatEndedInTheQueue) {
  Inbox inbox(limits_of(1024, 4));
  std::vector<RequestId> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(inbox.submit(prompt_of(3)).value());
  inbox.finish(ids[150], FinishReason::abort);
  inbox.finish(ids[3], FinishReason::stop);
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  ASSERT_EQ(intake.cancelled.size(), 2U);
  EXPECT_EQ(intake.cancelled[0].submission.id, ids[150]);
  EXPECT_EQ(intake.cancelled[0].reason, FinishReason::abort);
  EXPECT_EQ(intake.cancelled[1].submission.id, ids[3]);
  EXPECT_EQ(intake.cancelled[1].reason, FinishReason::stop);
  EXPECT_TRUE(intake.commands.empty());
  EXPECT_EQ(intake.submissions.size() + take_all(inbox).size(), 198U);
}

TEST(Inbox, AnAbortingPauseCancelsOnlyEarlierSubmissions) {
  Inbox inbox(limits_of(1024, 4));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
  inbox.control({PauseOptions{.mode = PauseMode::abort}, {}});
  const RequestId late = inbox.submit(prompt_of(3)).value();
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  ASSERT_EQ(intake.submissions.size(), 1U);
  EXPECT_EQ(intake.submissions[0].id, late);
  EXPECT_EQ(intake.cancelled.size(), 100U);
  EXPECT_FALSE(intake.has_more);
}

TEST(Inbox, PreemptedRequestsDoNotCountAsWaitingAndOpenRequestsAreBounded) {
  Inbox inbox(limits_of(3, 2));
  std::vector<RequestId> ids;
  const auto submit = [&] {
    const Result<RequestId> id = inbox.submit(prompt_of(3));
    if (id) ids.push_back(*id);
    return id.has_value();
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(submit());
  EXPECT_FALSE(submit()) << "three requests wait";
  EXPECT_EQ(inbox.check_room().error().code, ErrorCode::overloaded);
  // Each request is admitted once; all but two may have been preempted since.
  inbox.admitted(ids);
  EXPECT_TRUE(submit());
  EXPECT_TRUE(submit());
  EXPECT_FALSE(submit()) << "two running and three waiting requests are open";
  const RequestId ended[] = {ids[0]};
  inbox.ended(ended);
  EXPECT_TRUE(inbox.check_room().has_value());
  EXPECT_TRUE(submit());
}

// The error of one more request of the length, or no text if it would be accepted.
std::string refusal_of(Inbox& inbox, std::size_t num_prompt_tokens) {
  const Result<RequestId> id = inbox.submit(prompt_of(num_prompt_tokens));
  return id ? "" : id.error().to_string();
}

TEST(Inbox, OpenRequestsAreBoundedByMaxNumQueuedReqs) {
  Inbox::Limits limits = limits_of(1024, 128);
  limits.max_num_queued_reqs = 3;
  Inbox inbox(limits);
  const RequestId first = inbox.submit(prompt_of(5, {}, 2)).value();
  EXPECT_EQ(inbox.submit(prompt_of(5, {}, 2)).error().code, ErrorCode::unavailable) << "each answer counts";
  const RequestId third = inbox.submit(prompt_of(5)).value();
  const RequestId all[] = {first, {first.value + 1}, third};
  inbox.admitted(all);
  EXPECT_EQ(refusal_of(inbox, 5), "3 requests are open already (--max-num-queued-reqs); try again later, or on another server")
      << "running requests count, too";
  inbox.ended(std::span(all).first(1));
  EXPECT_EQ(refusal_of(inbox, 5), "");
}

TEST(Inbox, PromptTokensCountUntilTheFirstToken) {
  Inbox::Limits limits = limits_of(1024, 128);
  limits.max_num_queued_tokens = 100;
  Inbox inbox(limits);
  const RequestId ids[] = {inbox.submit(prompt_of(60, {}, 3)).value(), inbox.submit(prompt_of(39)).value()};
  EXPECT_EQ(inbox.num_queued_tokens(), 99U) << "the answers of a request share its prompt";
  const RequestId last = inbox.submit(prompt_of(1000)).value();
  EXPECT_EQ(refusal_of(inbox, 1), "1099 prompt tokens are queued already (--max-num-queued-tokens); try again later, or on another server");
  EXPECT_EQ(inbox.check_room().error().code, ErrorCode::unavailable);
  inbox.admitted(ids);
  EXPECT_EQ(inbox.num_queued_tokens(), 1099U);
  inbox.prefilled(std::span(&last, 1), 0.0);
  inbox.prefilled(std::span(ids).first(1), 0.0);
  EXPECT_EQ(inbox.num_queued_tokens(), 39U);
  EXPECT_TRUE(inbox.check_room());
  inbox.ended(ids);
  EXPECT_EQ(inbox.num_queued_tokens(), 0U) << "a request that ends without a token does not count any more";
}

TEST(Inbox, RefusesWhatItsFirstTokenWouldWaitForTooLong) {
  Inbox::Limits limits = limits_of(1024, 128);
  limits.max_ttft_s = 10.0;
  Inbox inbox(limits);
  ASSERT_EQ(refusal_of(inbox, 700), "") << "no rate is known";
  inbox.prefilled({}, 100.0);
  EXPECT_EQ(refusal_of(inbox, 300), "") << "7 s for the first prompt and 3 s for this one";
  const Error error = inbox.submit(prompt_of(500)).error();
  EXPECT_EQ(error.code, ErrorCode::overloaded);
  EXPECT_EQ(error.message, "the first token is predicted 5.0 s after the limit of 10.0 s (--max-ttft)");
  EXPECT_EQ(error.retry_after_s, 5U);
  EXPECT_EQ(inbox.submit(prompt_of(90'000)).error().retry_after_s, 10U) << "then all other prompts are computed";
  const RequestId all[] = {{1}, {2}};
  inbox.ended(all);
  EXPECT_EQ(refusal_of(inbox, 90'000), "") << "no prompt is before it";
}

TEST(Inbox, PromptsThatShareStepsDelayEachOtherByTheShorterOne) {
  Inbox::Limits limits = limits_of(1024, 128);
  limits.max_ttft_s = 1.0;
  limits.shares_steps = true;
  Inbox inbox(limits);
  ASSERT_EQ(refusal_of(inbox, 100'000), "");
  inbox.prefilled({}, 100.0);
  EXPECT_EQ(refusal_of(inbox, 50), "") << "0.5 s, shared with the long prompt";
  EXPECT_NE(refusal_of(inbox, 51), "");
  EXPECT_EQ(refusal_of(inbox, 30), "") << "0.3 s, shared with two prompts";
}

TEST(Inbox, BackgroundPromptsDelayOnlyBackgroundRequests) {
  Inbox::Limits limits = limits_of(1024, 128);
  limits.max_ttft_s = 1.0;
  limits.shares_steps = true;
  Inbox inbox(limits);
  inbox.prefilled({}, 100.0);
  Submission first = prompt_of(60), second = prompt_of(60);
  first.request.tags.is_background = second.request.tags.is_background = true;
  ASSERT_TRUE(inbox.submit(std::move(first)));
  EXPECT_EQ(inbox.submit(std::move(second)).error().code, ErrorCode::overloaded);
  EXPECT_EQ(refusal_of(inbox, 100), "") << "1 s alone";
  EXPECT_NE(refusal_of(inbox, 100), "");
}

TEST(Inbox, ACloseRefusesNewRequestsAndAnAbortCancelsTheRest) {
  Inbox inbox(limits_of(1024, 4));
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
  inbox.close();
  EXPECT_EQ(inbox.submit(prompt_of(3)).error().code, ErrorCode::shutting_down);
  InboxBatch intake;
  inbox.take(intake, kAtOnce);
  EXPECT_TRUE(intake.closed);
  EXPECT_FALSE(intake.aborting);
  EXPECT_EQ(intake.submissions.size(), Inbox::kMaxSubmissionsPerTake);
  EXPECT_FALSE(inbox.wait_until_done(0.0));
  inbox.abort_rest();
  inbox.take(intake, kAtOnce);
  EXPECT_TRUE(intake.aborting);
  EXPECT_EQ(intake.cancelled.size(), 100 - Inbox::kMaxSubmissionsPerTake);
  inbox.set_done();
  EXPECT_TRUE(inbox.wait_until_done(0.0));
}

}  // namespace
}  // namespace quire
