#include "text/tool_calls/answer_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <random>
#include <string>

#include "text/tool_calls/read_answer.h"
#include "text/tool_calls/tool_prompt.h"

namespace quire {
namespace {

const std::vector<Tool>& weather_and_clock() {
  static const std::vector<Tool> tools{
      {.name = "weather",
       .parameters = boost::json::parse(R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                                            "exact": {"type": "boolean"}, "where": {"type": ["object", "null"]}}})"),
       .strict = false},
      {.name = "clock", .parameters = nullptr, .strict = false}};
  return tools;
}

CallFormat format_of(CallStyle style, std::string open = {}, std::string close = {}) {
  CallFormat format;
  format.style = style;
  format.open = std::move(open);
  format.close = std::move(close);
  return format;
}

CallFormat hermes() {
  return format_of(CallStyle::marked, "<tool_call>", "</tool_call>");
}

CallFormat listed(std::string open, std::string close) {
  CallFormat format = format_of(CallStyle::marked, std::move(open), std::move(close));
  format.is_list = true;
  return format;
}

CallFormat thinking(CallFormat format) {
  if (format.style == CallStyle::harmony) return format;
  format.think_open = "<think>";
  format.think_close = "</think>";
  return format;
}

CallFormat harmony_format() {
  return detect_call_format("<|channel|><|message|>");
}

std::vector<CallFormat> all_formats() {
  return {format_of(CallStyle::plain),
          format_of(CallStyle::llama, "<|python_tag|>"),
          hermes(),
          listed("<|tool_call|>", ""),
          listed("<TOOLCALL>", "</TOOLCALL>"),
          format_of(CallStyle::mistral, "[TOOL_CALLS]"),
          format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"),
          format_of(CallStyle::deepseek, std::string(section_marks(CallStyle::deepseek).begin)),
          format_of(CallStyle::deepseek_v31, std::string(section_marks(CallStyle::deepseek).begin)),
          format_of(CallStyle::kimi, std::string(section_marks(CallStyle::kimi).begin)),
          format_of(CallStyle::pythonic),
          format_of(CallStyle::pythonic, "<|tool_call_start|>", "<|tool_call_end|>"),
          format_of(CallStyle::xml, "<tool_call>", "</tool_call>"),
          harmony_format()};
}

ReadAnswer read(const CallFormat& format, std::string_view text, AnswerParserOptions options = {}) {
  ReadAnswer whole = read_answer(format, weather_and_clock(), text, {}, options);
  EXPECT_TRUE(whole.is_well_formed) << text;
  for (std::size_t cut = 1; cut < text.size(); ++cut)
    EXPECT_EQ(read_answer(format, weather_and_clock(), text, {cut}, options), whole) << text << " cut at " << cut;
  return whole;
}

TEST(AnswerParser, HermesCallsComeOutOfTheText) {
  const auto answer = read(hermes(),
                           "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Z\\u00fc \\\"}<\"}}\n</tool_call>\n"
                           "<tool_call>\n{\"arguments\": {\"a\": [1, {}]}, \"name\": \"clock\", \"id\": 3}\n</tool_call>\n");
  EXPECT_EQ(answer.content, "I look.");
  EXPECT_EQ(answer.calls, (std::vector<ReadCall>{{"weather", "{\"city\": \"Z\\u00fc \\\"}<\"}"}, {"clock", "{\"a\": [1, {}]}"}}));
}

TEST(AnswerParser, ArgumentsMayBeMissingNullOrQuoted) {
  EXPECT_EQ(read(hermes(), "<tool_call>{\"name\": \"clock\"}</tool_call>").calls, (std::vector<ReadCall>{{"clock", "{}"}}));
  EXPECT_EQ(read(hermes(), "<tool_call>{\"name\": \"clock\", \"arguments\": null}</tool_call>").calls[0].arguments, "{}");
  EXPECT_EQ(read(hermes(), R"(<tool_call>{"name": "clock", "arguments": "{\"a\": 1}"}</tool_call>)").calls[0].arguments, "{\"a\": 1}");
}

TEST(AnswerParser, WhatIsNoObjectIsText) {
  for (const char* text :
       {"<tool_call>{\"name\": \"clock\", \"arguments\": [1]}</tool_call>", "<tool_call>{\"name\": \"clock\", \"arguments\": 3}",
        "<tool_call>{\"name\": 1}</tool_call>", "<tool_call>{\"arguments\": {}}</tool_call>", "<tool_call>[1, 2]</tool_call>",
        "<tool_call>{\"name\": \"clock\", \"arguments\": \"yes\"}</tool_call>", "<tool_call>{\"name\": \"\"}</tool_call>",
        "<tool_call>clock()</tool_call>", "<tool_call>{\"name\": \"clock\", \"name\": \"clock\"}</tool_call>"}) {
    const auto answer = read(hermes(), text);
    EXPECT_EQ(answer.content, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
  }
}

TEST(AnswerParser, ACallThatBreaksOffIsGivenBackAsText) {
  const std::string text = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zur";
  const auto answer = read(hermes(), "So: " + text);
  EXPECT_EQ(answer.content, "So: " + text);
  EXPECT_EQ(answer.num_broken, 1U);
  EXPECT_TRUE(answer.calls.empty());
}

TEST(AnswerParser, WhereNoMarkEndsCallsABrokenOneIsTextToo) {
  const std::string text = "So: <|tool_call|>{\"name\": \"clock\"<b>";
  EXPECT_EQ(read(listed("<|tool_call|>", ""), text).content, text);
}

TEST(AnswerParser, BehindABrokenCallTheNextIsFound) {
  const auto answer = read(hermes(), "<tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call> bye");
  EXPECT_EQ(answer.content, "<tool_call> bye");
  EXPECT_EQ(answer.calls, (std::vector<ReadCall>{{"clock", "{}"}}));
}

TEST(AnswerParser, ACallMayEndWithoutItsMark) {
  const auto answer = read(hermes(), "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.calls.size(), 1U);
  EXPECT_EQ(read(hermes(), "<tool_call>{\"name\": \"clock\"}</tool Hm").content, "</tool Hm");
}

TEST(AnswerParser, LlamasCallIsTheWholeAnswer) {
  const CallFormat llama = format_of(CallStyle::llama, "<|python_tag|>");
  const std::string call = R"({"name": "weather", "parameters": {"city": "Bern"}})";
  const std::vector<ReadCall> once{{"weather", R"({"city": "Bern"})"}};
  EXPECT_EQ(read(llama, call).calls, once);
  EXPECT_EQ(read(llama, "\n<|python_tag|>" + call).calls, once);
  EXPECT_EQ(read(llama, call + "; " + call).calls.size(), 2U);
  EXPECT_EQ(read(llama, "Here: " + call).content, "Here: " + call) << "not at the beginning";
  EXPECT_EQ(read(llama, R"({"name": "Bob", "age": 3})").content, R"({"name": "Bob", "age": 3})") << "no tool of the request";
  EXPECT_EQ(read(llama, R"({"answer": {"name": "clock"}})").content, R"({"answer": {"name": "clock"}})");
  EXPECT_EQ(read(llama, "<|python_tag|>print(1)").content, "<|python_tag|>print(1)");
}

TEST(AnswerParser, PlainCallsMayBeAList) {
  const CallFormat plain = format_of(CallStyle::plain);
  const auto answer = read(plain, R"([{"name": "clock", "arguments": {}}, {"name": "weather", "arguments": {"days": 2}}])");
  EXPECT_EQ(answer.calls, (std::vector<ReadCall>{{"clock", "{}"}, {"weather", R"({"days": 2})"}}));
  EXPECT_EQ(read(plain, "[1, 2]").content, "[1, 2]");
  EXPECT_EQ(read(plain, "[]").content, "[]");
}

TEST(AnswerParser, MistralsForms) {
  const CallFormat mistral = format_of(CallStyle::mistral, "[TOOL_CALLS]");
  const std::vector<ReadCall> once{{"weather", R"({"city": "[x]"})"}};
  EXPECT_EQ(read(mistral, R"([TOOL_CALLS][{"name": "weather", "arguments": {"city": "[x]"}, "id": "abcdefghi"}])").calls, once);
  EXPECT_EQ(read(mistral, R"([TOOL_CALLS]weather[ARGS]{"city": "[x]"})").calls, once);
  EXPECT_EQ(read(mistral, R"([TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "[x]"})").calls, once);
  EXPECT_EQ(read(mistral, R"(Hm[TOOL_CALLS]weather{"city": "[x]"}[TOOL_CALLS]clock[ARGS]{})").calls.size(), 2U);
  EXPECT_EQ(read(mistral, "[TOOL_CALLS]weather[ARGS]x{}").content, "[TOOL_CALLS]weather[ARGS]x{}");
  EXPECT_EQ(read(mistral, "[TOOL_CALLS]na[TOOL_CALLS]clock[ARGS]{}").calls, (std::vector<ReadCall>{{"clock", "{}"}}));
}

TEST(AnswerParser, DeepSeeksForms) {
  const CallFormat r1 = format_of(CallStyle::deepseek, std::string(section_marks(CallStyle::deepseek).begin));
  const auto answer =
      read(r1,
           "Ja ｜<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"```\"}\n```"
           "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
  EXPECT_EQ(answer.content, "Ja ｜");
  EXPECT_EQ(answer.calls, (std::vector<ReadCall>{{"weather", "{\"city\": \"```\"}"}, {"clock", "{}"}}));
  const auto half = read(r1, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜>");
  EXPECT_EQ(half.content, "");
  EXPECT_EQ(half.calls.size(), 1U);
  const CallFormat kimi = format_of(CallStyle::kimi, std::string(section_marks(CallStyle::kimi).begin));
  EXPECT_EQ(read(kimi,
                 "<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
                 "<|tool_calls_section_end|>")
                .calls,
            (std::vector<ReadCall>{{"clock", "{}"}}));
}

TEST(AnswerParser, PythonBecomesJson) {
  const CallFormat llama4 = format_of(CallStyle::pythonic);
  const auto arguments = [&](const std::string& values) {
    const auto calls = read(llama4, "[weather(" + values + "), clock()]").calls;
    return calls.size() == 2 ? calls[0].arguments : "not two calls";
  };
  EXPECT_EQ(arguments("city='a\"b\\'\\n', days=-1.5e-3, exact=True, where=None"),
            R"({"city": "a\"b'\n", "days": -1.5e-3, "exact": true, "where": null})");
  EXPECT_EQ(arguments("city=\"\\x41\\u00e9\\U0001F600\\q\", days=[1, (2,), [], {}], where={'a': {'b': False}, \"c\": 'd',}"),
            R"({"city": "\u0041\u00e9\ud83d\ude00\\q", "days": [1, [2], [], {}], "where": {"a": {"b": false}, "c": "d"}})");
  EXPECT_EQ(arguments(" days=1 , "), R"({"days": 1})");
  EXPECT_EQ(arguments(R"(city='\ud83d\ude00 \ud83d \ude00\ud83dx\ud83d')"), R"({"city": "\ud83d\ude00 \ufffd \ufffd\ufffdx\ufffd"})")
      << "half a character is none";
}

TEST(AnswerParser, WhatIsNoCallInPythonIsText) {
  const CallFormat llama4 = format_of(CallStyle::pythonic);
  for (const char* text : {"[1, 2, 3]", "[weather(1)]", "[weather(city=x)]", "[other()]", "[weather(days=1_0)]", "[weather(city={1: 2})]",
                           "[weather(city='a]", "[link](https://a.b)", "[]", "[weather(days=[1)]", "[weather(where={'a'})]"})
    EXPECT_EQ(read(llama4, text).content, text);
}

TEST(AnswerParser, XmlValuesAreWhatTheSchemaSays) {
  const CallFormat coder = format_of(CallStyle::xml, "<tool_call>", "</tool_call>");
  const auto answer = read(coder,
                           "<tool_call>\n<function=weather>\n<parameter=city>\n12\n\"x\"\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
                           "<parameter=exact>\nTrue\n</parameter>\n<parameter=where>\n{\"a\": null}\n</parameter>\n<parameter=other>\n1\n"
                           "</parameter>\n</function>\n</tool_call>");
  ASSERT_EQ(answer.calls.size(), 1U);
  EXPECT_EQ(answer.calls[0].arguments, R"({"city": "12\n\"x\"", "days": 3, "exact": true, "where": {"a": null}, "other": "1"})");
  EXPECT_EQ(read(coder, "<tool_call><function=clock></function></tool_call>").calls[0].arguments, "{}");
  const std::string half = "<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n";
  EXPECT_EQ(read(coder, half).content, half);
}

TEST(AnswerParser, ThoughtsStandApart) {
  const CallFormat qwen = thinking(hermes());
  const auto answer = read(qwen, "<think>\nfirst,\n\nsecond <tool_call>\n</think>\n\n<tool_call>\n{\"name\": \"clock\"}\n</tool_call>");
  EXPECT_EQ(answer.reasoning, "first,\n\nsecond <tool_call>");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.calls.size(), 1U);
  EXPECT_EQ(read(qwen, "four</think>4", {.in_thought = true}).reasoning, "four");
  EXPECT_EQ(read(qwen, "four, I th", {.in_thought = true}).content, "");
  const auto late = read(qwen, "It is a <think> tag.</think>");
  EXPECT_EQ(late.content, "It is a <think> tag.</think>");
  EXPECT_EQ(late.reasoning, "");
  const auto empty = read(qwen, "<think>\n\n</think>\n\n Hi\n ");
  EXPECT_EQ(empty.reasoning, "");
  EXPECT_EQ(empty.content, "Hi\n ");
}

TEST(AnswerParser, WithoutToolsOnlyThoughtsAreLookedFor) {
  const CallFormat qwen = thinking(hermes());
  const std::string call = "<tool_call>{\"name\": \"clock\"}</tool_call> \n";
  EXPECT_EQ(read(qwen, call, {.max_calls = 0}).content, call);
  EXPECT_EQ(read(qwen, "<think>a</think>" + call, {.max_calls = 0}).content, call);
}

TEST(AnswerParser, BeyondTheMostCallsIsText) {
  const std::string call = "<tool_call>{\"name\": \"clock\"}</tool_call>";
  const auto answer = read(hermes(), call + "\n" + call, {.max_calls = 1});
  EXPECT_EQ(answer.calls.size(), 1U);
  EXPECT_EQ(answer.content, "\n" + call);
  const auto list = read(listed("<|tool_call|>", ""), R"(<|tool_call|>[{"name": "clock"}, {"name": "clock"}])", {.max_calls = 1});
  EXPECT_EQ(list.calls.size(), 1U);
  EXPECT_EQ(list.content, R"(, {"name": "clock"}])");
  EXPECT_EQ(list.num_broken, 0U);
}

TEST(AnswerParser, ArgumentsComeAsTheyAreWritten) {
  const CallFormat format = hermes();
  const auto parser = make_answer_parser(format, weather_and_clock(), {});
  parser->feed("<tool_call>{\"name\": \"weather\", \"arguments\": {\"ci");
  EXPECT_EQ(parser->take_parts(),
            (std::vector<AnswerPart>{{AnswerPart::Kind::call, 0, "weather"}, {AnswerPart::Kind::arguments, 0, "{\"ci"}}));
  parser->feed("ty\": 1}");
  EXPECT_EQ(parser->take_parts(), (std::vector<AnswerPart>{{AnswerPart::Kind::arguments, 0, "ty\": 1}"}}));
  parser->feed("}");
  EXPECT_EQ(parser->take_parts(), (std::vector<AnswerPart>{{AnswerPart::Kind::call_end, 0, ""}}));
}

TEST(AnswerParser, OnlyWhatMayBeAMarkIsHeldBack) {
  const CallFormat format = hermes();
  const auto parser = make_answer_parser(format, weather_and_clock(), {});
  parser->feed("a <tool");
  EXPECT_EQ(parser->take_parts(), (std::vector<AnswerPart>{{AnswerPart::Kind::content, 0, "a", 0, 1}}));
  parser->feed("box");
  EXPECT_EQ(parser->take_parts(), (std::vector<AnswerPart>{{AnswerPart::Kind::content, 0, " <toolbox", 1, 10}}));
}

// gpt-oss, by the examples of the format's description.
TEST(AnswerParser, HarmonysMessagesGoByTheirChannels) {
  const CallFormat format = harmony_format();
  const ReadAnswer said =
      read(format, "<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>final<|message|>2 + 2 = 4<|return|>");
  EXPECT_EQ(said.reasoning, "Easy.");
  EXPECT_EQ(said.content, "2 + 2 = 4");
  const ReadAnswer called = read(format,
                                 "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
                                 "<|constrain|>json<|message|>{\"city\": \"Bern\"}<|call|>");
  EXPECT_EQ(called.reasoning, "Look.");
  EXPECT_EQ(called.content, "");
  EXPECT_EQ(called.calls, (std::vector<ReadCall>{{"weather", R"({"city": "Bern"})"}}));
  // The control token that ends an answer is none of its text.
  EXPECT_EQ(read(format, " to=functions.clock<|channel|>commentary json<|message|>{}").calls, (std::vector<ReadCall>{{"clock", "{}"}}));
  EXPECT_EQ(read(format, "<|channel|>commentary to=functions.clock<|message|><|call|>").calls, (std::vector<ReadCall>{{"clock", "{}"}}))
      << "no arguments";
  const ReadAnswer noted = read(format,
                                "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
                                "<|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>final"
                                "<|message|>Done");
  EXPECT_EQ(noted.reasoning, "a\nb");
  EXPECT_EQ(noted.content, "Let me see.Done");
  EXPECT_EQ(read(format, "on we go<|end|>", {.in_thought = true}).reasoning, "on we go");
}

TEST(AnswerParser, WhatIsNotInHarmonyIsText) {
  const CallFormat format = harmony_format();
  for (const char* text : {"plain words", " today is no recipient", "to", "<|foo", "a <|channel|> b", "<b>"})
    EXPECT_EQ(read(format, text).content, text);
  EXPECT_EQ(read(format, "<|channel|>fin").content, "") << "a head that breaks off";
  EXPECT_EQ(read(format, std::string("<|channel|>") + std::string(600, 'x')).content.size(), 611U) << "no head is as long";
  const ReadAnswer broken = read(format, "<|channel|>commentary to=functions.weather<|message|>{\"city\": <|end|>");
  EXPECT_EQ(broken.content, "{\"city\": ");
  EXPECT_TRUE(broken.calls.empty());
  EXPECT_EQ(broken.num_broken, 1U);
  EXPECT_EQ(read(format, "<|channel|>commentary to=functions.weather<|message|>no object<|call|>").content, "no object");
  EXPECT_EQ(read(format, "<|channel|>commentary to=browser.open<|message|>{}<|call|>").content, "{}") << "none of the client's";
  EXPECT_EQ(read(format, "<|channel|>commentary to=functions.clock<|message|>{}<|call|>", {.max_calls = 0}).content, "{}");
  const std::string two =
      "<|channel|>commentary to=functions.clock<|message|>{}<|call|><|start|>assistant<|channel|>commentary "
      "to=functions.clock<|message|>{\"n\": 1}<|call|>";
  EXPECT_EQ(read(format, two).calls.size(), 2U);
  EXPECT_EQ(read(format, two, {.max_calls = 1}).content, "{\"n\": 1}");
}

// Random calls ---------------------------------------------------------------------------------------------------------------------------

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

// Real templates write the calls in tests/python/test_tool_calls.py; here it is what they are told where a template knows none.
TEST(AnswerParser, RandomCallsComeBackEqualHoweverCut) {
  for (const CallFormat& format : all_formats()) {
    if (format.style == CallStyle::xml || format.style == CallStyle::mistral_v11) continue;
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

// Whatever is left of a text, or put into it, comes out somewhere, and the same however it is cut.
TEST(AnswerParser, BrokenAndHalfOpenCallsLoseNothing) {
  for (const CallFormat& bare : all_formats()) {
    const CallFormat format = thinking(bare);
    RandomCalls random(11);
    for (int run = 0; run < 300; ++run) {
      std::string text = write_calls(format, random.calls(3));
      if (run % 3 != 0) text.resize(random.below(text.size()));
      // Text is UTF-8 when it comes here, so one character takes another's place.
      const std::size_t at = text.empty() ? 0 : random.below(text.size());
      if (run % 3 != 1 && !text.empty() && static_cast<unsigned char>(text[at]) < 0x80) text[at] = "{}[]<\"' ,a"[random.below(10)];
      const ReadAnswer whole = read_answer(format, weather_and_clock(), text);
      EXPECT_TRUE(whole.is_well_formed) << text;
      EXPECT_EQ(read_answer(format, weather_and_clock(), text, random.cuts(text.size())), whole) << text;
      const bool has_heads = format.style == CallStyle::harmony;  // which are no text, whole or not
      if (whole.calls.empty() && whole.reasoning.empty() && text.find("<think>") != 0 && !has_heads) EXPECT_EQ(whole.content, text);
      for (const ReadCall& call : whole.calls) EXPECT_TRUE(boost::json::parse(call.arguments).is_object()) << text;
    }
  }
}

TEST(AnswerParser, RandomBytesAreReadInAnyFormat) {
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
      const AnswerParserOptions options{.in_thought = run % 5 == 0, .max_calls = run % 4 == 0 ? 1U : 9U};
      const ReadAnswer whole = read_answer(format, weather_and_clock(), text, {}, options);
      EXPECT_TRUE(whole.is_well_formed) << text;
      EXPECT_LE(whole.calls.size(), options.max_calls);
      EXPECT_EQ(read_answer(format, weather_and_clock(), text, random.cuts(text.size()), options), whole) << text;
    }
  }
}

}  // namespace
}  // namespace quire
