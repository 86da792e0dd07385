#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace quire {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::uint32_t> matched;
};

Outcome run(StopStrings stops, std::string_view text, std::mt19937* random = nullptr) {
  Outcome result;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = random == nullptr ? text.size() : 1 + (*random)() % 4;
    const auto output = stops.push(text.substr(at, length));
    result.text += output.text;
    if (output.matched) result.matched = output.matched;
    at += length;
  }
  result.text += stops.flush();
  return result;
}

// Returns the match that ends first; among equal ends, the longest one.
Outcome naive(const std::vector<std::string>& stops, const std::string& text, bool include) {
  for (std::size_t end = 0; end <= text.size(); ++end) {
    std::optional<std::uint32_t> best;
    for (std::uint32_t i = 0; i < stops.size(); ++i) {
      const bool ends_here = !stops[i].empty() && text.substr(0, end).ends_with(stops[i]);
      if (ends_here && (!best || stops[i].size() > stops[*best].size())) best = i;
    }
    if (best) return {text.substr(0, include ? end : end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

TEST(StopStrings, AgreesWithTheNaiveModelForAnyChunking) {
  std::mt19937 random(3);
  const auto random_text = [&](std::size_t longest) {
    std::string text;
    for (std::size_t i = 0, length = random() % (longest + 1); i < length; ++i) text += static_cast<char>('a' + random() % 2);
    return text;
  };
  int num_matched = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops(random() % 4);
    for (std::string& stop : stops) stop = random_text(6);
    const std::string text = random_text(40);
    const bool include = random() % 2 == 0;
    const Outcome expected = naive(stops, text, include);
    const Outcome actual = run(StopStrings(stops, include), text, &random);
    ASSERT_EQ(actual.text, expected.text) << "round " << round;
    ASSERT_EQ(actual.matched, expected.matched) << "round " << round;
    num_matched += expected.matched.has_value() ? 1 : 0;
  }
  EXPECT_GT(num_matched, 500);
  EXPECT_LT(num_matched, 2900);
}

TEST(StopStrings, HoldsBackOnlyPossibleBeginningsOfAStop) {
  const std::vector<std::string> stops{"</s>", "\n\nUser:"};
  StopStrings matcher(stops);
  EXPECT_EQ(matcher.push("hello <").text, "hello ");
  EXPECT_EQ(matcher.push("/").text, "");
  EXPECT_EQ(matcher.num_held_bytes(), 2U);
  EXPECT_EQ(matcher.push("b>\n").text, "</b>");
  EXPECT_EQ(matcher.push("\n").text, "");
  EXPECT_EQ(matcher.push("\n").text, "\n");
  const auto last = matcher.push("User: more");
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(last.matched, 1U);
  EXPECT_TRUE(matcher.stopped());
  EXPECT_EQ(matcher.push("nothing").text, "");
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopStrings, HoldsBackNothingWithoutStops) {
  StopStrings matcher({});
  EXPECT_EQ(matcher.push("abc").text, "abc");
  const std::vector<std::string> empty{""};
  StopStrings blank(empty);
  EXPECT_EQ(blank.push("abc").text, "abc");
}

TEST(StopStrings, FlushBeginsANewText) {
  const std::vector<std::string> stops{"ab"};
  StopStrings matcher(stops);
  EXPECT_EQ(matcher.push("xa").text, "x");
  EXPECT_EQ(matcher.flush(), "a");
  EXPECT_EQ(matcher.num_held_bytes(), 0U);
  const auto next = matcher.push("b");
  EXPECT_EQ(next.text, "b") << "the letter before it belongs to the text that has ended";
  EXPECT_FALSE(next.matched);
  EXPECT_FALSE(matcher.stopped());
  EXPECT_EQ(matcher.push("ab").matched, 0U);
  EXPECT_EQ(matcher.flush(), "");
}

TEST(StopStrings, TheLongestOfTheStopsThatEndTogetherCounts) {
  for (const bool include : {false, true}) {
    const std::vector<std::string> stops{"c", "abc", "bc", "", "abc"};
    StopStrings matcher(stops, include);
    EXPECT_EQ(matcher.push("xab").text, "x");
    const auto last = matcher.push("cd");
    EXPECT_EQ(last.matched, 1U) << "the first of two equal ones";
    EXPECT_EQ(last.text, include ? "abc" : "");
    EXPECT_FALSE(matcher.push("c").matched);
  }
}

}  // namespace
}  // namespace quire
