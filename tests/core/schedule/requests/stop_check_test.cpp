#include "core/schedule/requests/stop_check.h"

#include <gtest/gtest.h>

#include "base/random.h"

namespace quire {
namespace {

using Tokens = std::vector<TokenId>;

constexpr std::uint32_t kPrompt = 3;
constexpr std::uint32_t kMaxModelLen = 100;

Request rules_with(std::uint32_t min_tokens, std::uint32_t max_tokens) {
  Request request;
  request.stops.min_tokens = min_tokens;
  request.stops.max_tokens = max_tokens;
  request.stops.eos_ids = {7};
  request.stops.stop_token_ids = {8, 9};
  request.stops.repetition = {1, 2, 2};
  return request;
}

std::optional<Stop> check(Request request, const Tokens& outputs, std::uint32_t max_model_len = kMaxModelLen) {
  request.tokens.assign(kPrompt, 5);
  request.num_prompt_tokens = kPrompt;
  request.tokens.insert(request.tokens.end(), outputs.begin(), outputs.end());
  request.num_output_tokens = static_cast<std::int32_t>(outputs.size());
  return check_stop(request, max_model_len);
}

TEST(StopCheck, Trap30MinTokensPrecedesAllOtherRules) {
  const Request rules = rules_with(3, 2);
  EXPECT_FALSE(check(rules, {7}));
  EXPECT_FALSE(check(rules, {4, 8})) << "max_tokens is reached, but min_tokens is not";
  EXPECT_EQ(check(rules, {4, 4, 7})->status, RequestStatus::finished_stopped);
}

TEST(StopCheck, Trap30EosPrecedesStopIdsAndReportsNoToken) {
  Request rules = rules_with(0, 10);
  rules.stops.stop_token_ids = {7, 8};
  const auto stop = check(rules, {7});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->status, RequestStatus::finished_stopped);
  EXPECT_FALSE(stop->token);
}

TEST(StopCheck, Trap30StopIdsPrecedeLengthAndReportTheToken) {
  const auto stop = check(rules_with(0, 2), {4, 9});
  ASSERT_TRUE(stop);
  EXPECT_EQ(stop->status, RequestStatus::finished_stopped);
  EXPECT_EQ(stop->token, 9);
}

TEST(StopCheck, Trap30LengthPrecedesRepetition) {
  EXPECT_EQ(check(rules_with(0, 2), {4, 4})->status, RequestStatus::finished_length);
  EXPECT_EQ(check(rules_with(0, 3), {4, 4})->status, RequestStatus::finished_repetition);
}

TEST(StopCheck, IncludesThePromptInTheModelsLimit) {
  EXPECT_FALSE(check(rules_with(0, 50), {4, 5}, kPrompt + 3));
  EXPECT_EQ(check(rules_with(0, 50), {4, 5, 6}, kPrompt + 3)->status, RequestStatus::finished_length);
}

TEST(StopCheck, ContinuesWithoutEosIds) {
  Request rules = rules_with(0, 10);
  rules.stops.eos_ids.clear();
  EXPECT_FALSE(check(rules, {7}));
}

TEST(StopCheck, ChecksOnlyTheLastToken) {
  EXPECT_FALSE(check(rules_with(0, 10), {7, 8, 4}));
}

TEST(Repetition, FindsPatternsOfAllowedLengthsAtTheEnd) {
  EXPECT_TRUE(ends_in_repetition(Tokens{1, 2, 3, 2, 3}, {2, 2, 2}));
  EXPECT_FALSE(ends_in_repetition(Tokens{1, 2, 3, 2, 3}, {2, 2, 3}));
  EXPECT_FALSE(ends_in_repetition(Tokens{2, 3, 2, 3, 1}, {1, 2, 2})) << "the pattern is not at the end";
  EXPECT_FALSE(ends_in_repetition(Tokens{5, 5, 5}, {2, 2, 2})) << "one token is missing";
  EXPECT_TRUE(ends_in_repetition(Tokens{5, 5, 5, 5}, {2, 2, 2})) << "a pattern may repeat within itself";
}

TEST(Repetition, ZeroAndNegativeValuesRemoveTheLowerLimitOrDisableTheRule) {
  EXPECT_TRUE(ends_in_repetition(Tokens{5, 5}, {0, 1, 2}));
  EXPECT_TRUE(ends_in_repetition(Tokens{5, 5}, {-4, 1, 2}));
  EXPECT_FALSE(ends_in_repetition(Tokens{5, 5}, {0, 0, 2}));
  EXPECT_FALSE(ends_in_repetition(Tokens{5, 5}, {1, -1, 2}));
  EXPECT_FALSE(ends_in_repetition(Tokens{5, 5}, {1, 1, 1}));
  EXPECT_FALSE(ends_in_repetition(Tokens{5, 5, 5, 5}, {3, 2, 2})) << "the minimum length exceeds the maximum length";
}

// Implements the rule as it is worded: some pattern p of an allowed length with tokens = ... p p ... p.
bool naive_repetition(const Tokens& tokens, const RepetitionDetection& d) {
  for (std::int32_t length = std::max(1, d.min_pattern_tokens); d.min_count >= 2 && length <= d.max_pattern_tokens; ++length) {
    Tokens repeated;
    if (static_cast<std::size_t>(length) > tokens.size()) continue;
    for (std::int32_t i = 0; i < d.min_count; ++i) repeated.insert(repeated.end(), tokens.end() - length, tokens.end());
    if (repeated.size() <= tokens.size() && std::equal(repeated.rbegin(), repeated.rend(), tokens.rbegin())) return true;
  }
  return false;
}

TEST(Repetition, AgreesWithTheNaiveModel) {
  Random random(11);
  int num_found = 0;
  for (int round = 0; round < 20000; ++round) {
    Tokens tokens(random.below(12));
    for (TokenId& token : tokens) token = static_cast<TokenId>(random.below(2));
    const RepetitionDetection d{static_cast<std::int32_t>(random.below(5)) - 1, static_cast<std::int32_t>(random.below(5)),
                                static_cast<std::int32_t>(random.below(5))};
    const bool expected = naive_repetition(tokens, d);
    ASSERT_EQ(ends_in_repetition(tokens, d), expected);
    num_found += expected ? 1 : 0;
  }
  EXPECT_GT(num_found, 1000);
}

TEST(FinishReasons, FollowTheStatus) {
  EXPECT_EQ(finish_reason(RequestStatus::finished_stopped), FinishReason::stop);
  EXPECT_EQ(finish_reason(RequestStatus::finished_length), FinishReason::length);
  EXPECT_EQ(finish_reason(RequestStatus::finished_aborted), FinishReason::abort);
  EXPECT_EQ(finish_reason(RequestStatus::finished_ignored), FinishReason::length);
  EXPECT_EQ(finish_reason(RequestStatus::finished_error), FinishReason::error);
  EXPECT_EQ(finish_reason(RequestStatus::finished_repetition), FinishReason::repetition);
}

}  // namespace
}  // namespace quire
