// Tests which content each token's log probabilities belong to when tokens and contents do not end together.
#include "server/answers/single_answer_writer.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace quire {
namespace {

using PartKind = AnswerPart::Kind;

// Writes each content as its text and the indices of its tokens: "ab[0,1]".
class TokensOfContent final : public SingleAnswerWriter {
 public:
  void begin(std::string& /*events*/, const Usage& /*usage*/) override {}
  void add(std::string& events, const AnswerPart& part) override {
    if (part.kind != PartKind::content) return;
    std::string tokens;
    for (const PositionLogprobs& position : take_logprobs(part))
      tokens += (tokens.empty() ? "" : ",") + std::to_string(position.entries.front().token);
    events += part.text + "[" + tokens + "]";
  }
  void end(std::string& /*events*/, const AnswerEnd& /*end*/) override {}
  void fail(std::string& /*events*/, const Error& /*error*/) override {}
  [[nodiscard]] std::string whole() const override { return {}; }
};

std::string written(SingleAnswerWriter& writer, const std::vector<AnswerPart>& parts,
                    const std::vector<std::pair<TokenId, TextSpan>>& tokens) {
  std::vector<PositionLogprobs> logprobs;
  std::vector<TextSpan> spans;
  for (const auto& [token, span] : tokens) {
    logprobs.push_back({{{token, -1.0F, 1}}});
    spans.push_back(span);
  }
  std::string events;
  EXPECT_TRUE(writer.write_choice(events, {.parts = &parts, .logprobs = &logprobs, .token_spans = &spans}, {}));
  return events;
}

TEST(SingleAnswerWriter, AssignsATokenToTheFirstContentThatHasOneOfItsBytes) {
  TokensOfContent writer;
  // "ab<" and "x>" do not form a delimiter, "<f>" does. Token 4 has no text.
  EXPECT_EQ(written(writer, {{PartKind::content, 0, "ab", 0, 2}}, {{0, {0, 3}}}), "ab[0]");
  EXPECT_EQ(written(writer, {{PartKind::content, 0, "<x>c", 2, 6}}, {{1, {3, 5}}, {4, {5, 5}}, {2, {5, 7}}}), "<x>c[1,2]");
  EXPECT_EQ(written(writer, {{PartKind::call, 0, "f"}}, {{3, {7, 9}}}), "");
  EXPECT_EQ(
      written(writer, {{PartKind::call_end, 0, ""}, {PartKind::content, 0, "d", 10, 11}}, {{5, {9, 10}}, {6, {10, 11}}, {7, {11, 11}}}),
      "d[6]")
      << "log probabilities of a call belong to no content";
}

// When two tokens form one character, the first one arrives before its text.
TEST(SingleAnswerWriter, HoldsATokenUntilItsTextArrives) {
  TokensOfContent writer;
  EXPECT_EQ(written(writer, {}, {{0, {0, 1}}}), "");
  EXPECT_EQ(written(writer, {{PartKind::content, 0, "\xC3\xA9", 0, 2}}, {{1, {0, 2}}, {2, {2, 3}}}), "\xC3\xA9[0,1]");
  EXPECT_EQ(written(writer, {{PartKind::content, 0, "a", 2, 3}}, {}), "a[2]");
}

}  // namespace
}  // namespace quire
