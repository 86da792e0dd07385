// Tests Whisper's timestamp rules one by one, and all of them against a direct transcription of openai-whisper's code.
#include "runtime/sample/timestamp_state.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random.h"

namespace quire {
namespace {

constexpr float kOut = -std::numeric_limits<float>::infinity();
// Token ids 0 to 9 are words (7 ends the answer, 8 and 9 are special tokens); timestamps begin at 10.
const TimestampRules kTimeRules{.first_time = 10, .end = 7, .max_first = 3, .has_timestamps = true, .not_first = {7, 2}};
constexpr std::size_t kTimedVocab = 20;

std::vector<float> after(const std::vector<TokenId>& outputs, std::vector<float> logits, const TimestampRules& rules = kTimeRules) {
  TimestampState state;
  state.begin(rules, outputs);
  state.apply(rules, logits);
  return logits;
}

std::vector<TokenId> allowed_tokens(const std::vector<float>& logits) {
  std::vector<TokenId> tokens;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if (logits[i] != kOut) tokens.push_back(static_cast<TokenId>(i));
  return tokens;
}

// Words are so much likelier that the rules force no timestamp.
std::vector<float> words_first() {
  std::vector<float> logits(kTimedVocab, 0.0F);
  std::fill_n(logits.begin(), 10, 10.0F);
  return logits;
}

TEST(TimestampStateTest, AnAnswerBeginsWithAnEarlyTimestamp) {
  EXPECT_EQ(allowed_tokens(after({}, words_first())), (std::vector<TokenId>{10, 11, 12, 13}));
}

TEST(TimestampStateTest, AWordFollowsAStartTimestamp) {
  EXPECT_EQ(allowed_tokens(after({11}, words_first())), (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(allowed_tokens(after({11, 3, 14, 14}, words_first())), (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(TimestampStateTest, AStartTimestampOrTheEndFollowsAnEndTimestamp) {
  EXPECT_EQ(allowed_tokens(after({11, 3, 14}, words_first())), (std::vector<TokenId>{7, 8, 9, 14, 15, 16, 17, 18, 19}));
}

TEST(TimestampStateTest, TimestampsIncreaseWithinASegment) {
  EXPECT_EQ(allowed_tokens(after({11, 3}, words_first())),
            (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15, 16, 17, 18, 19}));
}

TEST(TimestampStateTest, ForcesATimestampWhenTimestampsTogetherAreLikelierThanAnyWord) {
  std::vector<float> logits(kTimedVocab, 0.0F);  // eight timestamps with logit 1, together likelier than a word with logit 2
  std::fill(logits.begin() + 12, logits.end(), 1.0F);
  logits[4] = 2.0F;
  EXPECT_EQ(allowed_tokens(after({11, 3}, logits)).front(), 12);
  logits[4] = 4.0F;
  EXPECT_EQ(allowed_tokens(after({11, 3}, logits)).front(), 0);
}

// Each token before the text is chosen from a few candidates, whatever is masked elsewhere. The text begins after them.
TEST(TimestampStateTest, ChoosesPrefixTokensBeforeTheText) {
  TimestampRules rules = kTimeRules;
  rules.begins = {{8, 9}, {2}};
  const auto choice = [&](const std::vector<TokenId>& outputs) {
    TimestampState state;
    state.begin(rules, outputs);
    const auto* found = state.choice(rules);
    return found == nullptr ? std::vector<TokenId>{} : *found;
  };
  EXPECT_EQ(choice({}), (std::vector<TokenId>{8, 9}));
  EXPECT_EQ(choice({9}), std::vector<TokenId>{2});
  EXPECT_EQ(choice({9, 2}), std::vector<TokenId>{});
  EXPECT_EQ(allowed_tokens(after({9, 2}, words_first(), rules)), (std::vector<TokenId>{10, 11, 12, 13}));
  EXPECT_EQ(allowed_tokens(after({9, 2, 11}, words_first(), rules)), (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

TEST(TimestampStateTest, DrawsNoTimestampsWhenTheyAreOff) {
  TimestampRules rules = kTimeRules;
  rules.has_timestamps = false;
  EXPECT_EQ(allowed_tokens(after({}, words_first(), rules)), (std::vector<TokenId>{0, 1, 3, 4, 5, 6, 8, 9}));
  EXPECT_EQ(allowed_tokens(after({4}, words_first(), rules)), (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
}

// Transcribes openai-whisper's ApplyTimestampRules.
std::vector<float> transcribed(const std::vector<TokenId>& seq, std::vector<float> logits) {
  const auto out = [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, logits.size()); ++i) logits[i] = kOut;
  };
  if (seq.empty())
    for (const TokenId token : kTimeRules.not_first) out(static_cast<std::size_t>(token), static_cast<std::size_t>(token) + 1);
  const bool last = !seq.empty() && seq.back() >= 10;
  const bool penultimate = seq.size() < 2 || seq[seq.size() - 2] >= 10;
  if (last && penultimate) out(10, kTimedVocab);
  if (last && !penultimate) out(0, 7);
  std::vector<TokenId> times;
  std::ranges::copy_if(seq, std::back_inserter(times), [](TokenId token) { return token >= 10; });
  if (!times.empty()) out(10, static_cast<std::size_t>(last && !penultimate ? times.back() : times.back() + 1));
  if (seq.empty()) {
    out(0, 10);
    out(14, kTimedVocab);
  }
  double sum = 0.0, word = -1e300;
  for (std::size_t i = 10; i < kTimedVocab; ++i) sum += std::exp(static_cast<double>(logits[i]));
  for (std::size_t i = 0; i < 10; ++i) word = std::max(word, static_cast<double>(logits[i]));
  if (std::log(sum) > word) out(0, 10);
  return logits;
}

TEST(TimestampStateTest, RandomOutputsMatchOpenAiWhisper) {
  Random random(7);
  for (int round = 0; round < 3000; ++round) {
    std::vector<TokenId> outputs;
    for (std::uint64_t i = random.below(9); i > 0; --i) outputs.push_back(static_cast<TokenId>(random.below(kTimedVocab)));
    std::vector<float> logits;
    for (std::size_t i = 0; i < kTimedVocab; ++i) logits.push_back(static_cast<float>(random.unit() * 6.0));
    ASSERT_EQ(allowed_tokens(after(outputs, logits)), allowed_tokens(transcribed(outputs, logits))) << round;
  }
}

}  // namespace
}  // namespace quire
