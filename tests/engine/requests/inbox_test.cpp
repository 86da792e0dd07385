// What client threads may put into the queue of the engine thread, and how much of it that takes between two steps.
#include "engine/requests/inbox.h"

#include <gtest/gtest.h>

#include <numeric>

#include "engine/collector.h"

namespace quire {
namespace {

constexpr double kAtOnce = 0.0;

Submission prompt_of(std::size_t num_tokens) {
  Submission submission;
  submission.request.prompt.resize(num_tokens, 1);
  return submission;
}

std::size_t num_tokens(const Intake& intake) {
  return std::accumulate(intake.submissions.begin(), intake.submissions.end(), std::size_t{0},
                         [](std::size_t sum, const Submission& one) { return sum + one.request.prompt.size(); });
}

// All that is left, round by round; each round is within the limits, and ids come in the order of submission.
std::vector<std::uint64_t> take_all(Inbox& inbox) {
  std::vector<std::uint64_t> ids;
  Intake intake;
  do {
    inbox.take(intake, kAtOnce);
    EXPECT_LE(intake.submissions.size(), Inbox::kMaxTaken);
    if (intake.submissions.size() > 1) EXPECT_LE(num_tokens(intake), Inbox::kMaxPromptTokens);
    for (const Submission& submission : intake.submissions) ids.push_back(submission.id.value);
  } while (intake.num_left > 0);
  return ids;
}

std::vector<std::uint64_t> first_ids(std::size_t count) {
  std::vector<std::uint64_t> ids(count);
  std::iota(ids.begin(), ids.end(), 0U);
  return ids;
}

TEST(Inbox, ShortPromptsAreTakenInBoundedNumbersInTheirOrder) {
  Inbox inbox(1024, 4);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
  EXPECT_EQ(take_all(inbox), first_ids(1000));
}

TEST(Inbox, OfLongPromptsFewAreTakenAtOnceButAlwaysOne) {
  Inbox inbox(1024, 4);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(inbox.submit(prompt_of(i == 7 ? 2 * Inbox::kMaxPromptTokens : 131'072)));
  Intake intake;
  inbox.take(intake, kAtOnce);
  EXPECT_EQ(intake.submissions.size(), 2U);
  EXPECT_EQ(intake.num_left, 38U);
  const std::vector<std::uint64_t> rest = take_all(inbox);
  EXPECT_EQ(rest.size(), 38U);
  EXPECT_EQ(rest.front(), 2U);
}

TEST(Inbox, EndingsAndControlsDoNotWaitBehindSubmissions) {
  Inbox inbox(2048, 4);
  const RequestId known = inbox.submit(prompt_of(3)).value();
  Intake intake;
  inbox.take(intake, kAtOnce);
  for (int i = 0; i < 1000; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
  inbox.finish(known, FinishReason::abort);
  inbox.finish(known, FinishReason::stop);
  inbox.control({PauseOptions{.mode = PauseMode::keep}, {}});
  inbox.take(intake, kAtOnce);
  ASSERT_EQ(intake.commands.size(), 2U) << "one ending per request";
  EXPECT_EQ(std::get<Ending>(intake.commands[0]).id, known);
  EXPECT_TRUE(std::holds_alternative<Control>(intake.commands[1]));
  EXPECT_GT(intake.num_left, 0U);
}

TEST(Inbox, EndingsAreTakenInBoundedNumbersToo) {
  Inbox inbox(1024, 4);
  std::vector<RequestId> ids;
  for (int i = 0; i < 500; ++i) ids.push_back(inbox.submit(prompt_of(3)).value());
  take_all(inbox);
  for (const RequestId id : ids) inbox.finish(id, FinishReason::abort);
  std::vector<RequestId> ended;
  Intake intake;
  do {
    inbox.take(intake, kAtOnce);
    EXPECT_LE(intake.commands.size(), Inbox::kMaxTaken);
    for (const Command& command : intake.commands) ended.push_back(std::get<Ending>(command).id);
  } while (intake.has_more);
  EXPECT_EQ(ended, ids);
}

TEST(Inbox, ARequestEndedBeforeItWasTakenIsNeverTaken) {
  Inbox inbox(1024, 4);
  std::vector<RequestId> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(inbox.submit(prompt_of(3)).value());
  inbox.finish(ids[150], FinishReason::abort);
  inbox.finish(ids[3], FinishReason::stop);
  Intake intake;
  inbox.take(intake, kAtOnce);
  ASSERT_EQ(intake.cancelled.size(), 2U);
  EXPECT_EQ(intake.cancelled[0].submission.id, ids[150]);
  EXPECT_EQ(intake.cancelled[0].reason, FinishReason::abort);
  EXPECT_EQ(intake.cancelled[1].submission.id, ids[3]);
  EXPECT_EQ(intake.cancelled[1].reason, FinishReason::stop);
  EXPECT_TRUE(intake.commands.empty());
  EXPECT_EQ(intake.submissions.size() + take_all(inbox).size(), 198U);
}

TEST(Inbox, APauseThatAbortsEndsWhatWasSubmittedBeforeItAndNothingAfter) {
  Inbox inbox(1024, 4);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
  inbox.control({PauseOptions{.mode = PauseMode::abort}, {}});
  const RequestId late = inbox.submit(prompt_of(3)).value();
  Intake intake;
  inbox.take(intake, kAtOnce);
  ASSERT_EQ(intake.submissions.size(), 1U);
  EXPECT_EQ(intake.submissions[0].id, late);
  std::size_t num_cancelled = intake.cancelled.size();
  EXPECT_EQ(num_cancelled, Inbox::kMaxTaken);
  EXPECT_TRUE(intake.has_more);
  inbox.take(intake, kAtOnce);
  EXPECT_EQ(num_cancelled + intake.cancelled.size(), 100U);
  EXPECT_FALSE(intake.has_more);
}

TEST(Inbox, PreemptedRequestsDoNotCountAsNewOnesAndEverythingIsBounded) {
  Inbox inbox(3, 2);
  std::vector<RequestId> ids;
  const auto submit = [&] {
    const Result<RequestId> id = inbox.submit(prompt_of(3));
    if (id) ids.push_back(*id);
    return id.has_value();
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(submit());
  EXPECT_FALSE(submit()) << "three wait";
  EXPECT_EQ(inbox.check_room().error().code, ErrorCode::overloaded);
  // Each is admitted once; all but two of them may have been preempted since.
  inbox.admitted(ids);
  EXPECT_TRUE(submit());
  EXPECT_TRUE(submit());
  EXPECT_FALSE(submit()) << "two that run and three that wait are open";
  const RequestId ended[] = {ids[0]};
  inbox.ended(ended);
  EXPECT_TRUE(inbox.check_room().has_value());
  EXPECT_TRUE(submit());
}

TEST(Inbox, AClosedOneRefusesAndAnAbortedOneEndsTheRest) {
  Inbox inbox(1024, 4);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(inbox.submit(prompt_of(3)));
  inbox.close();
  EXPECT_EQ(inbox.submit(prompt_of(3)).error().code, ErrorCode::shutting_down);
  Intake intake;
  inbox.take(intake, kAtOnce);
  EXPECT_TRUE(intake.closed);
  EXPECT_FALSE(intake.aborting);
  EXPECT_EQ(intake.submissions.size(), Inbox::kMaxTaken);
  EXPECT_FALSE(inbox.wait_until_done(0.0));
  inbox.abort_rest();
  inbox.take(intake, kAtOnce);
  EXPECT_TRUE(intake.aborting);
  EXPECT_EQ(intake.cancelled.size(), 100 - Inbox::kMaxTaken);
  inbox.set_done();
  EXPECT_TRUE(inbox.wait_until_done(0.0));
}

}  // namespace
}  // namespace quire
