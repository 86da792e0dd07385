#include "text/tool_calls/answer_parser.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>

#include "text/tool_calls/answer_samples.h"

namespace quire {
namespace {

TEST(AnswerParser, ExtractsHermesCallsFromTheText) {
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

TEST(AnswerParser, InvalidCallsAreText) {
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

TEST(AnswerParser, BrokenCallIsText) {
  const std::string text = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zur";
  const auto answer = read(hermes(), "So: " + text);
  EXPECT_EQ(answer.content, "So: " + text);
  EXPECT_EQ(answer.num_broken, 1U);
  EXPECT_TRUE(answer.calls.empty());
}

TEST(AnswerParser, BrokenCallIsTextInFormatsWithoutAnEndDelimiter) {
  const std::string text = "So: <|tool_call|>{\"name\": \"clock\"<b>";
  EXPECT_EQ(read(listed("<|tool_call|>", ""), text).content, text);
}

TEST(AnswerParser, FindsTheNextCallAfterABrokenCall) {
  const auto answer = read(hermes(), "<tool_call>\n<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call> bye");
  EXPECT_EQ(answer.content, "<tool_call> bye");
  EXPECT_EQ(answer.calls, (std::vector<ReadCall>{{"clock", "{}"}}));
}

TEST(AnswerParser, CallMayEndWithoutItsDelimiter) {
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
  EXPECT_EQ(read(llama, "Here: " + call).content, "Here: " + call) << "a call must begin the answer";
  EXPECT_EQ(read(llama, R"({"name": "Bob", "age": 3})").content, R"({"name": "Bob", "age": 3})") << "the request has no such tool";
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

TEST(AnswerParser, ReadsMistralsFormats) {
  const CallFormat mistral = format_of(CallStyle::mistral, "[TOOL_CALLS]");
  const std::vector<ReadCall> once{{"weather", R"({"city": "[x]"})"}};
  EXPECT_EQ(read(mistral, R"([TOOL_CALLS][{"name": "weather", "arguments": {"city": "[x]"}, "id": "abcdefghi"}])").calls, once);
  EXPECT_EQ(read(mistral, R"([TOOL_CALLS]weather[ARGS]{"city": "[x]"})").calls, once);
  EXPECT_EQ(read(mistral, R"([TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{"city": "[x]"})").calls, once);
  EXPECT_EQ(read(mistral, R"(Hm[TOOL_CALLS]weather{"city": "[x]"}[TOOL_CALLS]clock[ARGS]{})").calls.size(), 2U);
  EXPECT_EQ(read(mistral, "[TOOL_CALLS]weather[ARGS]x{}").content, "[TOOL_CALLS]weather[ARGS]x{}");
  EXPECT_EQ(read(mistral, "[TOOL_CALLS]na[TOOL_CALLS]clock[ARGS]{}").calls, (std::vector<ReadCall>{{"clock", "{}"}}));
}

TEST(AnswerParser, ReadsDeepSeeksFormats) {
  const CallFormat r1 = format_of(CallStyle::deepseek, std::string(section_delimiters(CallStyle::deepseek).begin));
  const auto answer =
      read(r1,
           "Ja ｜<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"```\"}\n```"
           "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
  EXPECT_EQ(answer.content, "Ja ｜");
  EXPECT_EQ(answer.calls, (std::vector<ReadCall>{{"weather", "{\"city\": \"```\"}"}, {"clock", "{}"}}));
  const auto half = read(r1, "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>clock<｜tool▁sep｜>{}<｜tool▁call▁end｜>");
  EXPECT_EQ(half.content, "");
  EXPECT_EQ(half.calls.size(), 1U);
  const CallFormat kimi = format_of(CallStyle::kimi, std::string(section_delimiters(CallStyle::kimi).begin));
  EXPECT_EQ(read(kimi,
                 "<|tool_calls_section_begin|><|tool_call_begin|>functions.clock:0<|tool_call_argument_begin|>{}<|tool_call_end|>"
                 "<|tool_calls_section_end|>")
                .calls,
            (std::vector<ReadCall>{{"clock", "{}"}}));
}

TEST(AnswerParser, ConvertsPythonToJson) {
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
      << "an incomplete character is invalid";
}

TEST(AnswerParser, InvalidPythonCallsAreText) {
  const CallFormat llama4 = format_of(CallStyle::pythonic);
  for (const char* text : {"[1, 2, 3]", "[weather(1)]", "[weather(city=x)]", "[other()]", "[weather(days=1_0)]", "[weather(city={1: 2})]",
                           "[weather(city='a]", "[link](https://a.b)", "[]", "[weather(days=[1)]", "[weather(where={'a'})]"})
    EXPECT_EQ(read(llama4, text).content, text);
}

TEST(AnswerParser, XmlValuesHaveTheTypesOfTheSchema) {
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

TEST(AnswerParser, ReadsSeedsValuesBetweenTags) {
  const CallFormat seed = detect_call_format("<seed:tool_call> <parameter=");
  const auto answer =
      read(seed,
           "Hm\n<seed:tool_call>\n<function=weather>\n<parameter=city>\nBern\n\n</parameter>\n<parameter=days>3</parameter>\n"
           "<parameter=where>{'a': True}</parameter>\n</function>\n</seed:tool_call>");
  EXPECT_EQ(answer.content, "Hm");
  ASSERT_EQ(answer.calls.size(), 1U);
  EXPECT_EQ(answer.calls[0].arguments, R"({"city": "\nBern\n\n", "days": 3, "where": {"a": true}})");
}

TEST(AnswerParser, ReadsGlmsArgumentsAsKeysAndValues) {
  const CallFormat glm = detect_call_format("<tool_call> <arg_key>");
  const std::string arguments = R"({"city": "12\n<b>", "days": 3, "exact": true, "where": {"a": null}, "other": "1"})";
  const auto answer =
      read(glm,
           "I look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>12\n<b></arg_value>\n<arg_key>days</arg_key>\n"
           "<arg_value>3</arg_value>\n<arg_key>exact</arg_key>\n<arg_value>True</arg_value>\n<arg_key>where</arg_key>\n"
           "<arg_value>{\"a\": "
           "null}</arg_value>\n<arg_key>other</arg_key>\n<arg_value>1</arg_value>\n</tool_call>\n<tool_call>clock</tool_call>");
  EXPECT_EQ(answer.content, "I look.");
  EXPECT_EQ(answer.calls, (std::vector<ReadCall>{{"weather", arguments}, {"clock", "{}"}}));
  EXPECT_EQ(read(glm, "<tool_call>chess<arg_key>a</arg_key><arg_value>b</arg_value></tool_call>").calls,
            (std::vector<ReadCall>{{"chess", R"({"a": "b"})"}}));
  for (const char* text : {"A <tool_call> opens it.", "<tool_call>name</tool_call>", "<tool_call>clock is a tool", "`<tool_call>`s",
                           "<tool_call>weather\n<arg_key>city</arg_key>\nBern"})
    EXPECT_EQ(read(glm, text).content, text);
}

TEST(AnswerParser, SeparatesReasoning) {
  const CallFormat qwen = thinking(hermes());
  const auto answer = read(qwen, "<think>\nfirst,\n\nsecond <tool_call>\n</think>\n\n<tool_call>\n{\"name\": \"clock\"}\n</tool_call>");
  EXPECT_EQ(answer.reasoning, "first,\n\nsecond <tool_call>");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.calls.size(), 1U);
  EXPECT_EQ(read(qwen, "four</think>4", {.in_reasoning = true}).reasoning, "four");
  EXPECT_EQ(read(qwen, "four, I th", {.in_reasoning = true}).content, "");
  const auto late = read(qwen, "It is a <think> tag.</think>");
  EXPECT_EQ(late.content, "It is a <think> tag.</think>");
  EXPECT_EQ(late.reasoning, "");
  const auto empty = read(qwen, "<think>\n\n</think>\n\n Hi\n ");
  EXPECT_EQ(empty.reasoning, "");
  EXPECT_EQ(empty.content, "Hi\n ");
}

TEST(AnswerParser, ReadsOnlyReasoningWithoutTools) {
  const CallFormat qwen = thinking(hermes());
  const std::string call = "<tool_call>{\"name\": \"clock\"}</tool_call> \n";
  EXPECT_EQ(read(qwen, call, {.max_calls = 0}).content, call);
  EXPECT_EQ(read(qwen, "<think>a</think>" + call, {.max_calls = 0}).content, call);
}

TEST(AnswerParser, DropsFurtherCallsWhenOneIsAllowed) {
  const std::string clock = R"({"name": "clock", "arguments": {}})";
  const std::string call = "<tool_call>" + clock + "</tool_call>";
  const auto answer = read(hermes(), "Hm\n" + call + "\n" + call + "\n" + call + " Done.", {.max_calls = 1});
  EXPECT_EQ(answer.calls.size(), 1U);
  EXPECT_EQ(answer.content, "Hm Done.");
  EXPECT_EQ(read(hermes(), call + "<tool_call>{\"name\": \"clock\", \"arguments\": {\"a\": x", {.max_calls = 1}).content, "");
  for (const CallFormat& format :
       {listed("<|tool_call|>", ""), format_of(CallStyle::mistral, "[TOOL_CALLS]"), format_of(CallStyle::plain)}) {
    const auto list = read(format, format.open + "[" + clock + ", " + clock + "]", {.max_calls = 1});
    EXPECT_EQ(list.calls.size(), 1U);
    EXPECT_EQ(list.content, "");
    EXPECT_EQ(list.num_broken, 0U);
  }
}

// Reasoning ------------------------------------------------------------------------------------------------------------------------------

TEST(AnswerParser, ReasoningMayMentionDelimiters) {
  const CallFormat qwen = thinking(hermes());
  for (const char* thought :
       {"I could use <tool_call> here, but no.", "<tool_call>", "a <tool_call><tool_call> b", "<tool_call>\n</tool_call>",
        R"(<tool_call>{"name": "clock", "arguments": {}}</tool_call> would be too much.)", R"(<tool_call>{"name": "cl)",
        R"(<tool_call>{"name": <name>, "arguments": {}}</tool_call>)", R"(<tool_call>{"name": "chess", "arguments": {}}</tool_call>)"}) {
    const auto answer = read(qwen, std::string("<think>") + thought + "</think>No call needed.");
    EXPECT_EQ(answer.reasoning, thought);
    EXPECT_EQ(answer.content, "No call needed.");
    EXPECT_TRUE(answer.calls.empty()) << thought;
    const auto called = read(qwen, std::string(thought) + "</think>\n<tool_call>{\"name\": \"clock\"}</tool_call>", {.in_reasoning = true});
    EXPECT_EQ(called.reasoning, thought);
    EXPECT_EQ(called.calls, (std::vector<ReadCall>{{"clock", "{}"}})) << thought;
  }
}

TEST(AnswerParser, EndsUnclosedReasoningAtTheCall) {
  const CallFormat qwen = thinking(hermes());
  const std::string clock = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>";
  const auto answer = read(qwen, "<think>\nThe time, with <tool_call>s.\n" + clock + "\n" + clock + "\n");
  EXPECT_EQ(answer.reasoning, "The time, with <tool_call>s.");
  EXPECT_EQ(answer.content, "");
  EXPECT_EQ(answer.calls.size(), 2U);
  const auto more = read(qwen, "The time.\n" + clock + "\nSo?", {.in_reasoning = true});
  EXPECT_EQ(more.reasoning, "The time.");
  EXPECT_EQ(more.content, "\nSo?");
  EXPECT_EQ(more.calls.size(), 1U);
  const std::string quoted = "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"</think>\"}}</tool_call>";
  EXPECT_EQ(read(qwen, "<think>a" + quoted).calls[0].arguments, R"({"city": "</think>"})");
  const auto cut = read_answer(qwen, weather_and_clock(), "<think>a<tool_call>{\"name\": \"clock\", \"arguments\": {\"b", {}, {}, true);
  EXPECT_EQ(cut.reasoning, "a");
  EXPECT_EQ(cut.cut, (std::vector<ReadCall>{{"clock", "{\"b"}}));
}

// Truncated answers ----------------------------------------------------------------------------------------------------------------------

TEST(AnswerParser, KeepsTheBeginningOfATruncatedCall) {
  const std::string text = "So:\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Zur";
  const auto answer = read_answer(hermes(), weather_and_clock(), text, {}, {}, true);
  EXPECT_EQ(answer.content, "So:");
  EXPECT_EQ(answer.cut, (std::vector<ReadCall>{{"weather", "{\"city\": \"Zur"}}));
  EXPECT_EQ(answer.num_broken, 0U);
  EXPECT_TRUE(answer.is_well_formed);
}

// A truncated answer has its text, whole calls and possibly the beginning of one call, but never the markup of a call.
TEST(AnswerParser, TruncatedAnswersHaveNoMarkup) {
  for (const CallFormat& format : all_formats()) {
    const bool is_marked = !format.open.empty() && format.style != CallStyle::llama;
    const std::string before = is_marked ? "Look. " : "";
    const std::string text = before + answer_of(format);
    for (std::size_t size = 0; size < text.size(); ++size) {
      const auto answer = read_answer(format, weather_and_clock(), text.substr(0, size), {}, {}, true);
      EXPECT_TRUE(answer.is_well_formed);
      EXPECT_LE(answer.calls.size() + answer.cut.size(), 2U);
      EXPECT_EQ(answer.num_broken, 0U);
      if (is_marked || !answer.calls.empty() || !answer.cut.empty())
        EXPECT_TRUE(std::string_view("Look. ").starts_with(answer.content) || answer.content == "Look. " + format.open.substr(0, 1))
            << text.substr(0, size) << " has the content " << answer.content;
    }
    EXPECT_EQ(read_answer(format, weather_and_clock(), text, {}, {}, true).calls.size(), 2U) << text;
  }
}

TEST(AnswerParser, ReturnsArgumentsAsTheyArrive) {
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

TEST(AnswerParser, HoldsBackOnlyPossibleDelimiters) {
  const CallFormat format = hermes();
  const auto parser = make_answer_parser(format, weather_and_clock(), {});
  parser->feed("a <tool");
  EXPECT_EQ(parser->take_parts(), (std::vector<AnswerPart>{{AnswerPart::Kind::content, 0, "a", 0, 1}}));
  parser->feed("box");
  EXPECT_EQ(parser->take_parts(), (std::vector<AnswerPart>{{AnswerPart::Kind::content, 0, " <toolbox", 1, 10}}));
}

// The examples come from the description of gpt-oss's format.
TEST(AnswerParser, ReadsHarmonyMessagesByChannel) {
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
  // The control token that ends an answer does not belong to its text.
  EXPECT_EQ(read(format, " to=functions.clock<|channel|>commentary json<|message|>{}").calls, (std::vector<ReadCall>{{"clock", "{}"}}));
  EXPECT_EQ(read(format, "<|channel|>commentary to=functions.clock<|message|><|call|>").calls, (std::vector<ReadCall>{{"clock", "{}"}}))
      << "the call has no arguments";
  const ReadAnswer noted = read(format,
                                "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
                                "<|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>final"
                                "<|message|>Done");
  EXPECT_EQ(noted.reasoning, "a\nb");
  EXPECT_EQ(noted.content, "Let me see.Done");
  EXPECT_EQ(read(format, "on we go<|end|>", {.in_reasoning = true}).reasoning, "on we go");
}

TEST(AnswerParser, TextOutsideHarmonyMessagesIsContent) {
  const CallFormat format = harmony_format();
  for (const char* text : {"plain words", " today is no recipient", "to", "<|foo", "a <|channel|> b", "<b>"})
    EXPECT_EQ(read(format, text).content, text);
  EXPECT_EQ(read(format, "<|channel|>fin").content, "") << "a truncated header is dropped";
  EXPECT_EQ(read(format, std::string("<|channel|>") + std::string(600, 'x')).content.size(), 611U) << "no header is this long";
  const ReadAnswer broken = read(format, "<|channel|>commentary to=functions.weather<|message|>{\"city\": <|end|>");
  EXPECT_EQ(broken.content, "{\"city\": ");
  EXPECT_TRUE(broken.calls.empty());
  EXPECT_EQ(broken.num_broken, 1U);
  EXPECT_EQ(read(format, "<|channel|>commentary to=functions.weather<|message|>no object<|call|>").content, "no object");
  EXPECT_EQ(read(format, "<|channel|>commentary to=browser.open<|message|>{}<|call|>").content, "{}")
      << "it is not a function of the client";
  EXPECT_EQ(read(format, "<|channel|>commentary to=functions.clock<|message|>{}<|call|>", {.max_calls = 0}).content, "{}");
  const std::string two =
      "<|channel|>commentary to=functions.clock<|message|>{}<|call|><|start|>assistant<|channel|>commentary "
      "to=functions.clock<|message|>{\"n\": 1}<|call|>";
  EXPECT_EQ(read(format, two).calls.size(), 2U);
  EXPECT_EQ(read(format, two, {.max_calls = 1}).content, "") << "a further call is dropped";
  EXPECT_EQ(read(format, two, {.max_calls = 1}).calls.size(), 1U);
}

}  // namespace
}  // namespace quire
