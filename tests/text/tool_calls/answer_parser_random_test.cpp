// Random tool calls, broken calls and random bytes in all formats, in pieces of any size.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <random>
#include <string>

#include "text/tool_calls/answer_parser.h"
#include "text/tool_calls/answer_samples.h"

namespace quire {
namespace {

class RandomCalls {
 public:
  explicit RandomCalls(std::uint64_t seed) : random_(seed) {}

  boost::json::array calls(std::size_t most) {
    boost::json::array calls;
    for (std::size_t i = 0, count = 1 + below(most); i < count; ++i) {
      boost::json::object arguments;
      for (std::size_t k = below(4); k > 0; --k) arguments["key_" + std::to_string(below(9))] = value(0);
      const char* name = below(2) == 0 ? "weather" : "clock";
      calls.push_back(boost::json::object{{"function", boost::json::object{{"name", name}, {"arguments", std::move(arguments)}}}});
    }
    return calls;
  }
  std::vector<std::size_t> cuts(std::size_t size) {
    std::vector<std::size_t> cuts;
    for (std::size_t at = below(8); at < size; at += 1 + below(12)) cuts.push_back(at);
    return cuts;
  }
  std::size_t below(std::size_t end) { return std::uniform_int_distribution<std::size_t>(0, end - 1)(random_); }

 private:
  boost::json::value value(int depth) {
    switch (below(depth < 3 ? 8 : 6)) {
      case 0:
        return nullptr;
      case 1:
        return below(2) == 0;
      case 2:
        return static_cast<std::int64_t>(below(2'000'000)) - 1'000'000;
      case 3:
        return (static_cast<double>(below(2'000'000)) - 1e6) / 1024.0;
      case 4:
      case 5:
        return boost::json::value(text());
      case 6: {
        boost::json::array items;
        for (std::size_t k = below(4); k > 0; --k) items.push_back(value(depth + 1));
        return items;
      }
      default: {
        boost::json::object fields;
        for (std::size_t k = below(4); k > 0; --k) fields[text()] = value(depth + 1);
        return fields;
      }
    }
  }
  std::string text() {
    static const std::vector<std::string> pieces{
        "a",   " ",  "é",  "世界", "\"",   "'", "\\", "\n", "{",   "}",      "]", "<", "</tool_call>", "[TOOL_CALLS]",
        "<｜", "|>", "😀", "\t",   "True", "1", ",",  ":",  "```", "<think>"};
    std::string text;
    for (std::size_t k = below(6); k > 0; --k) text += pieces[below(pieces.size())];
    return text;
  }

  std::mt19937_64 random_;
};

void expect_calls(const ReadAnswer& answer, const boost::json::array& calls, const std::string& text) {
  ASSERT_EQ(answer.calls.size(), calls.size()) << text;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto& function = calls[i].at("function");
    EXPECT_EQ(answer.calls[i].name, function.at("name").as_string());
    EXPECT_EQ(boost::json::parse(answer.calls[i].arguments), function.at("arguments")) << text;
  }
}

// The tests in tests/python/test_tool_calls.py use calls that real templates write. Here calls have the form that write_calls() gives to
// templates without tools.
TEST(AnswerParser, RandomCallsRoundTripForAnyChunking) {
  for (const CallFormat& format : all_formats()) {
    if (format.style == CallStyle::xml || format.style == CallStyle::glm || format.style == CallStyle::mistral_v11) continue;
    RandomCalls random(7);
    for (int run = 0; run < 300; ++run) {
      const boost::json::array calls = random.calls(format.style == CallStyle::llama ? 1 : 3);
      const std::string text = write_calls(format, calls);
      const ReadAnswer answer = read_answer(format, weather_and_clock(), text, random.cuts(text.size()));
      EXPECT_TRUE(answer.is_well_formed);
      EXPECT_EQ(answer.content, "") << text;
      ASSERT_NO_FATAL_FAILURE(expect_calls(answer, calls, text));
    }
  }
}

// Every part of a truncated or corrupted text is returned somewhere, and the result does not depend on the chunks.
TEST(AnswerParser, BrokenCallsLoseNoText) {
  for (const CallFormat& bare : all_formats()) {
    const CallFormat format = thinking(bare);
    RandomCalls random(11);
    for (int run = 0; run < 300; ++run) {
      std::string text = write_calls(format, random.calls(3));
      if (run % 3 != 0) text.resize(random.below(text.size()));
      // The parser receives valid UTF-8, so the test replaces one whole character by another.
      const std::size_t at = text.empty() ? 0 : random.below(text.size());
      if (run % 3 != 1 && !text.empty() && static_cast<unsigned char>(text[at]) < 0x80) text[at] = "{}[]<\"' ,a"[random.below(10)];
      const ReadAnswer whole = read_answer(format, weather_and_clock(), text);
      EXPECT_TRUE(whole.is_well_formed) << text;
      EXPECT_EQ(read_answer(format, weather_and_clock(), text, random.cuts(text.size())), whole) << text;
      const bool has_heads = format.style == CallStyle::harmony;  // headers are never text, complete or not
      if (whole.calls.empty() && whole.reasoning.empty() && text.find("<think>") != 0 && !has_heads) EXPECT_EQ(whole.content, text);
      for (const ReadCall& call : whole.calls) EXPECT_TRUE(boost::json::parse(call.arguments).is_object()) << text;
    }
  }
}

TEST(AnswerParser, ReadsRandomBytesInAnyFormat) {
  static const std::vector<std::string> pieces{"<tool_call>",
                                               "</tool_call>",
                                               "{\"name\": \"clock\"",
                                               ", \"arguments\": ",
                                               "{",
                                               "}",
                                               "[",
                                               "]",
                                               "(",
                                               ")",
                                               "=",
                                               "'",
                                               "\"",
                                               "\\",
                                               "weather",
                                               "[TOOL_CALLS]",
                                               "[ARGS]",
                                               "<function=",
                                               "<parameter=",
                                               "</parameter>",
                                               "</function>",
                                               ">",
                                               "\n",
                                               ",",
                                               ":",
                                               "<think>",
                                               "</think>",
                                               "\xff",
                                               std::string(1, '\0'),
                                               "<｜tool▁calls▁begin｜>",
                                               "<｜tool▁call▁begin｜>",
                                               "<｜tool▁sep｜>",
                                               "<|tool_call|>",
                                               "1"};
  for (const CallFormat& bare : all_formats()) {
    const CallFormat format = thinking(bare);
    RandomCalls random(13);
    for (int run = 0; run < 500; ++run) {
      std::string text;
      for (std::size_t k = random.below(20); k > 0; --k) text += pieces[random.below(pieces.size())];
      const AnswerParserOptions options{.in_reasoning = run % 5 == 0, .max_calls = run % 4 == 0 ? 1U : 9U};
      const ReadAnswer whole = read_answer(format, weather_and_clock(), text, {}, options);
      EXPECT_TRUE(whole.is_well_formed) << text;
      EXPECT_LE(whole.calls.size(), options.max_calls);
      EXPECT_EQ(read_answer(format, weather_and_clock(), text, random.cuts(text.size()), options), whole) << text;
    }
  }
}

}  // namespace
}  // namespace quire
