// Checks the readers of each format of calls: several calls with arguments, text around calls, limits, and text that is no call.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_samples.h"

namespace quire {
namespace {

using Calls = std::vector<ReadCall>;

CallFormat section_format(CallStyle style) {
  return format_of(style, std::string(section_delimiters(style).begin));
}
CallFormat coder_format() {
  return format_of(CallStyle::xml, "<tool_call>", "</tool_call>");
}
CallFormat glm_format() {
  return detect_call_format("<tool_call> <arg_key>");
}
CallFormat marked_pythonic() {
  return format_of(CallStyle::pythonic, "<|tool_call_start|>", "<|tool_call_end|>");
}

struct FormatAnswer {
  CallFormat format;
  std::string text;  // two calls of `weather`, with text around them if the format allows it
  bool has_text;
};

const std::vector<FormatAnswer>& two_weather_calls() {
  static const std::vector<FormatAnswer> all{
      {format_of(CallStyle::plain),
       R"([{"name": "weather", "arguments": {"city": "Bern", "days": 2}}, {"name": "weather", "arguments": {"city": "Rom", "days": 3}}])",
       false},
      {format_of(CallStyle::llama, "<|python_tag|>"),
       R"({"name": "weather", "parameters": {"city": "Bern", "days": 2}};{"name": "weather", "parameters": {"city": "Rom", "days": 3}})",
       false},
      {hermes(),
       "I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 2}}\n</tool_call>\n"
       "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": \"Rom\", \"days\": 3}}</tool_call> Done.",
       true},
      {listed("<TOOLCALL>", "</TOOLCALL>"),
       "I look. <TOOLCALL>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 2}}, {\"name\": \"weather\", "
       "\"arguments\": {\"city\": \"Rom\", \"days\": 3}}]</TOOLCALL> Done.",
       true},
      {listed("<|tool_call|>", ""),
       "I look.\n<|tool_call|>[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 2}},{\"name\": \"weather\", "
       "\"arguments\": {\"city\": \"Rom\", \"days\": 3}}] Done.",
       true},
      {format_of(CallStyle::mistral, "[TOOL_CALLS]"),
       "I look. [TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Bern\", \"days\": 2}}, {\"name\": \"weather\", "
       "\"arguments\": {\"city\": \"Rom\", \"days\": 3}, \"id\": \"abcdefghi\"}] Done.",
       true},
      {format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"),
       "I look. [TOOL_CALLS]weather[ARGS]{\"city\": \"Bern\", \"days\": 2}[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{\"city\": \"Rom\", "
       "\"days\": 3} Done.",
       true},
      {section_format(CallStyle::deepseek),
       "I look. <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Bern\", \"days\": 2}\n```"
       "<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n{\"city\": \"Rom\", \"days\": 3}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜> Done.",
       true},
      {section_format(CallStyle::deepseek_v31),
       "I look. <｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Bern\", \"days\": 2}<｜tool▁call▁end｜>"
       "<｜tool▁call▁begin｜>weather<｜tool▁sep｜>{\"city\": \"Rom\", \"days\": 3}<｜tool▁call▁end｜><｜tool▁calls▁end｜> Done.",
       true},
      {section_format(CallStyle::kimi),
       "I look. <|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>{\"city\": \"Bern\", "
       "\"days\": "
       "2}<|tool_call_end|><|tool_call_begin|>functions.weather:1<|tool_call_argument_begin|>{\"city\": \"Rom\", \"days\": "
       "3}<|tool_call_end|><|tool_calls_section_end|> Done.",
       true},
      {format_of(CallStyle::pythonic), "[weather(city='Bern', days=2), weather(city=\"Rom\", days=3)]", false},
      {marked_pythonic(), "I look. <|tool_call_start|>[weather(city='Bern', days=2), weather(city=\"Rom\", days=3)]<|tool_call_end|> Done.",
       true},
      {coder_format(),
       "I look.\n<tool_call>\n<function=weather>\n<parameter=city>\nBern\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n"
       "</tool_call>\n<tool_call>\n<function=weather>\n<parameter=city>\nRom\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
       "</function>\n</tool_call> Done.",
       true},
      {detect_call_format("<seed:tool_call> <parameter="),
       "I look.\n<seed:tool_call>\n<function=weather>\n<parameter=city>Bern</parameter>\n<parameter=days>2</parameter>\n</function>\n"
       "</seed:tool_call>\n<seed:tool_call>\n<function=weather>\n<parameter=city>Rom</parameter>\n<parameter=days>3</parameter>\n"
       "</function>\n</seed:tool_call> Done.",
       true},
      {glm_format(),
       "I look.\n<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Bern</arg_value>\n<arg_key>days</arg_key>\n"
       "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>weather<arg_key>city</arg_key><arg_value>Rom</arg_value><arg_key>days</arg_key>"
       "<arg_value>3</arg_value></tool_call> Done.",
       true},
      {harmony_format(),
       "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json"
       "<|message|>{\"city\": \"Bern\", \"days\": 2}<|call|><|start|>assistant to=functions.weather<|channel|>commentary<|message|> "
       "{\"city\": \"Rom\", \"days\": 3}<|call|><|start|>assistant<|channel|>final<|message|> Done.<|return|>",
       true}};
  return all;
}

TEST(CallReaders, EachCallHasItsOwnArgumentsInEveryFormat) {
  EXPECT_EQ(two_weather_calls().size(), all_formats().size());
  for (const FormatAnswer& one : two_weather_calls()) {
    const ReadAnswer answer = read(one.format, one.text);
    EXPECT_EQ(answer.calls, (Calls{{"weather", R"({"city": "Bern", "days": 2})"}, {"weather", R"({"city": "Rom", "days": 3})"}}))
        << one.text;
    EXPECT_EQ(answer.content, one.has_text ? "I look. Done." : "") << one.text;
    EXPECT_EQ(answer.num_broken, 0U) << one.text;
    std::vector<std::size_t> each_byte;
    for (std::size_t i = 1; i < one.text.size(); ++i) each_byte.push_back(i);
    EXPECT_EQ(read_answer(one.format, weather_and_clock(), one.text, each_byte), answer) << one.text;
  }
}

TEST(CallReaders, OneAllowedCallHidesTheSecondInEveryFormat) {
  for (const FormatAnswer& one : two_weather_calls()) {
    const ReadAnswer answer = read_answer(one.format, weather_and_clock(), one.text, {}, {.max_calls = 1});
    EXPECT_EQ(answer.calls, (Calls{{"weather", R"({"city": "Bern", "days": 2})"}})) << one.text;
    EXPECT_EQ(answer.content, one.has_text ? "I look. Done." : "") << one.text;
    EXPECT_EQ(answer.num_broken, 0U) << one.text;
  }
}

// Without an end of the answer, each prefix of the text gives a part of the calls, and no prefix gives more.
TEST(CallReaders, CountsCallsAtTheirEndInEveryFormat) {
  for (const FormatAnswer& one : two_weather_calls()) {
    const auto parser = make_answer_parser(one.format, weather_and_clock(), {});
    const std::size_t rom = one.text.find("Rom");
    parser->feed(one.text.substr(0, one.text.find("Bern")));
    EXPECT_EQ(parser->num_calls(), 0U) << one.text;
    parser->feed(one.text.substr(one.text.find("Bern"), rom - one.text.find("Bern")));
    EXPECT_EQ(parser->num_calls(), 1U) << one.text;
    EXPECT_FALSE(parser->is_thinking());
    parser->feed(one.text.substr(rom));
    EXPECT_EQ(parser->num_calls(), 2U) << one.text;
  }
}

void expect_only_text(const CallFormat& format, const std::vector<std::string>& texts) {
  for (const std::string& text : texts) {
    const ReadAnswer answer = read(format, text);
    EXPECT_EQ(answer.content, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
  }
}

TEST(CallReaders, TextThatIsNoCallStaysText) {
  const std::string object = R"({"name": "clock"})";
  expect_only_text(format_of(CallStyle::plain), {"[[" + object + "]]", "[, " + object + "]", "{}", "[{}]", "[", "[x", "(" + object + ")"});
  expect_only_text(format_of(CallStyle::llama, "<|python_tag|>"), {"[" + object + "]", "; " + object, "<|python_tag|>", "<|python_tag|>x"});
  expect_only_text(hermes(), {"<tool_call>[[" + object + "]]</tool_call>", "<tool_call>, " + object, "<tool_call></tool_call>"});
  expect_only_text(format_of(CallStyle::mistral, "[TOOL_CALLS]"), {"[TOOL_CALLS][1]", "[TOOL_CALLS] ]", "[TOOL_CALLS][x"});
  expect_only_text(format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"),
                   {"[TOOL_CALLS]weather[ARG]{}", "[TOOL_CALLS]weather[ARGS]x", "[TOOL_CALLS][ARGS]{}", "[TOOL_CALLS]weather[ARGS][1]",
                    "[TOOL_CALLS]weather[ARGS]{\"a\" 1}", "[TOOL_CALLS]" + std::string(257, 'n') + "[ARGS]{}"});
  const std::string sections(section_delimiters(CallStyle::kimi).begin);
  expect_only_text(section_format(CallStyle::kimi),
                   {sections + "<|tool_call_begin|>clock<|tool_call_argument_begin|>x{}<|tool_call_end|>", sections + "clock",
                    sections + "<|tool_call_begin|><|tool_call_argument_begin|>{}<|tool_call_end|>",
                    sections + "<|tool_call_begin|>functions.:0<|tool_call_argument_begin|>{}",
                    sections + "<|tool_call_begin|>functions.clock:0<|tool_call_argument_begin|>{1}"});
  const CallFormat r1 = section_format(CallStyle::deepseek);
  expect_only_text(r1, {r1.open + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\n```yaml\n{}",
                        r1.open + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>clock\nso\n```json\n{}"});
  expect_only_text(format_of(CallStyle::pythonic),
                   {"[clock]", "[clock(]", "[(a=1)]", "[clock(=1)]", "[clock(a)]", "[clock(a=1]", "[clock(a b=1)]", "[clo ck()]", "clock()",
                    "[clock(a=1 b=2)]", "[" + std::string(257, 'n') + "()]", "[clock(" + std::string(257, 'k') + "=1)]"});
  expect_only_text(marked_pythonic(), {"<|tool_call_start|>clock()<|tool_call_end|>", "<|tool_call_start|>x[clock()]"});
  expect_only_text(coder_format(),
                   {"<tool_call><function=>\n</function></tool_call>", "<tool_call><function=clo\nck></function></tool_call>",
                    "<tool_call><function=clo<ck></function></tool_call>", "<tool_call>x<function=clock></function>",
                    "<tool_call><functions=clock></function>", "<tool_call><function=clock>x</function></tool_call>",
                    "<tool_call><function=clock><parameter=>1</parameter></function></tool_call>",
                    "<tool_call><function=clock><parameter=a<b>1</parameter></function></tool_call>"});
  expect_only_text(glm_format(), {"<tool_call></tool_call>", "<tool_call>\n\n</tool_call>", "<tool_call>clock x</tool_call>",
                                  "<tool_call>clo(ck</tool_call>", "<tool_call>clock<arg_value>1</arg_value></tool_call>",
                                  "<tool_call>clock<arg_key>a</arg_key>1</tool_call>",
                                  "<tool_call>clock<arg_key>a</arg_key><arg_key>b</arg_key></tool_call>"});
}

TEST(CallReaders, TextAfterACallThatDoesNotContinueItIsContent) {
  const std::string object = R"({"name": "clock"})";
  const Calls clock{{"clock", "{}"}};
  struct Tail {
    CallFormat format;
    std::string text, content;
  };
  for (const Tail& one :
       {Tail{format_of(CallStyle::plain), object + " Done.", " Done."},
        {format_of(CallStyle::plain), object + "; x", "; x"},
        {format_of(CallStyle::plain), object + "]", "]"},
        {format_of(CallStyle::plain), "[" + object + "; " + object + "]", "; " + object + "]"},
        {format_of(CallStyle::plain), "[" + object + " " + object + "]", " " + object + "]"},
        {format_of(CallStyle::plain), "[" + object + ",,", ",,"},
        {format_of(CallStyle::plain), "[" + object + ",]", ""},
        {format_of(CallStyle::plain), "[" + object + "] Done.", " Done."},
        {format_of(CallStyle::llama, "<|python_tag|>"), object + ";; x", ";; x"},
        {listed("<|tool_call|>", ""), "<|tool_call|>" + object + " Done.", " Done."},
        {listed("<TOOLCALL>", "</TOOLCALL>"), "<TOOLCALL>[" + object + "]x</TOOLCALL>", "]x</TOOLCALL>"},
        {hermes(), "<tool_call>" + object + "x</tool_call>", "x</tool_call>"},
        {format_of(CallStyle::mistral, "[TOOL_CALLS]"), "[TOOL_CALLS]" + object + " Done.", " Done."},
        {format_of(CallStyle::mistral, "[TOOL_CALLS]"), "[TOOL_CALLS][" + object + "]]", "]"},
        {format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"), "[TOOL_CALLS]clock [ARGS] {}.", "."},
        {format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"), "[TOOL_CALLS] clock{}.", "."},
        {marked_pythonic(), "<|tool_call_start|>[clock()]x", "]x"},
        {marked_pythonic(), "<|tool_call_start|>[clock()] \n<|tool_call_end|>x", "x"},
        {format_of(CallStyle::pythonic), " [ clock( ) ]x", "x"},
        {coder_format(), "<tool_call><function=clock> </function> </tool>", " </tool>"},
        {section_format(CallStyle::kimi),
         "<|tool_calls_section_begin|><|tool_call_begin|>clock<|tool_call_argument_begin|> {} ``` <|tool_call_end|>x", "x"}}) {
    const ReadAnswer answer = read(one.format, one.text);
    EXPECT_EQ(answer.calls, clock) << one.text;
    EXPECT_EQ(answer.content, one.content) << one.text;
  }
  EXPECT_EQ(read(format_of(CallStyle::plain), object + " " + object).calls.size(), 2U) << "objects may follow each other";
  EXPECT_EQ(read(format_of(CallStyle::plain), object + ", " + object).calls.size(), 2U);
  EXPECT_EQ(read(hermes(), "<tool_call>" + object + "\n" + object + "</tool_call>").calls.size(), 2U);
}

TEST(CallReaders, NamesAndKeysHaveALimitInBytes) {
  const auto name_of = [](const CallFormat& format, const std::string& before, std::size_t size, const std::string& after) {
    const std::string name(size, 'n');
    const ReadAnswer answer = read_answer(format, weather_and_clock(), before + name + after);
    return answer.calls.size() == 1 && answer.calls[0].name == name;
  };
  const auto key_of = [](const CallFormat& format, const std::string& before, std::size_t size, const std::string& after) {
    const std::string key(size, 'k');
    const ReadAnswer answer = read_answer(format, weather_and_clock(), before + key + after);
    return answer.calls.size() == 1 && answer.calls[0].arguments.find("\"" + key + "\": ") != std::string::npos;
  };
  for (const bool fits : {true, false}) {
    const std::size_t more = fits ? 0 : 1;
    EXPECT_EQ(name_of(coder_format(), "<tool_call><function=", 256 + more, "></function></tool_call>"), fits);
    EXPECT_EQ(key_of(coder_format(), "<tool_call><function=f><parameter=", 256 + more, ">1</parameter></function></tool_call>"), fits);
    EXPECT_EQ(name_of(glm_format(), "<tool_call>", 256 + more, "<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>"), fits);
    EXPECT_EQ(key_of(glm_format(), "<tool_call>f<arg_key>", 246 + more, "</arg_key><arg_value>1</arg_value></tool_call>"), fits)
        << "with its end tag";
    EXPECT_EQ(name_of(marked_pythonic(), "<|tool_call_start|>[", 256 + more, "()]<|tool_call_end|>"), fits);
    EXPECT_EQ(key_of(marked_pythonic(), "<|tool_call_start|>[f(", 256 + more, "=1)]<|tool_call_end|>"), fits);
    EXPECT_EQ(name_of(format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"), "[TOOL_CALLS]", 256 + more, "[ARGS]{}"), fits);
    const SectionDelimiters sections = section_delimiters(CallStyle::kimi);
    EXPECT_EQ(name_of(section_format(CallStyle::kimi), std::string(sections.begin) + std::string(sections.call),
                      512 - sections.separator.size() + more, std::string(sections.separator) + "{}" + std::string(sections.call_end)),
              fits)
        << "with its separator";
  }
}

TEST(CallReaders, ReadsNamesWithAllTheirCharacters) {
  for (const std::string name : {"a", "Z9", "web.search-2", "ns:tool/v1", "_x"}) {
    EXPECT_EQ(read(glm_format(), "<tool_call>\n" + name + " <arg_key>k</arg_key>\n\t<arg_value>v</arg_value>\r\n</tool_call>").calls,
              (Calls{{name, R"({"k": "v"})"}}));
    EXPECT_EQ(read(coder_format(), "<tool_call><function=" + name + "><parameter=k>v</parameter></function></tool_call>").calls,
              (Calls{{name, R"({"k": "v"})"}}));
    EXPECT_EQ(read(marked_pythonic(), "<|tool_call_start|>[" + name + "(k='v')]<|tool_call_end|>").calls, (Calls{{name, R"({"k": "v"})"}}));
    EXPECT_EQ(read(format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"), "[TOOL_CALLS]" + name + "[ARGS]{\"k\": \"v\"}").calls,
              (Calls{{name, R"({"k": "v"})"}}));
  }
  const CallFormat kimi = section_format(CallStyle::kimi);
  for (const auto& [head, name] : {std::pair("functions.a:0", "a"), {"a:12", "a"}, {"a", "a"}, {"functions.ns:a:3", "ns:a"}})
    EXPECT_EQ(read(kimi, kimi.open + "<|tool_call_begin|>" + head + "<|tool_call_argument_begin|>{}<|tool_call_end|>").calls,
              (Calls{{name, "{}"}}))
        << head;
}

TEST(CallReaders, TaggedValuesLoseOneLineFeedAtEachEnd) {
  const auto xml_value = [](const std::string& value) {
    return read(coder_format(), "<tool_call><function=weather><parameter=city>" + value + "</parameter></function></tool_call>")
        .calls.at(0)
        .arguments;
  };
  EXPECT_EQ(xml_value("\n\nBern\n\n"), R"({"city": "\nBern\n"})");
  EXPECT_EQ(xml_value("Bern"), R"({"city": "Bern"})");
  EXPECT_EQ(xml_value("\n"), R"({"city": ""})");
  EXPECT_EQ(xml_value(""), R"({"city": ""})");
  EXPECT_EQ(xml_value("</parameter"), R"({"city": "</parameter"})");
  EXPECT_EQ(xml_value("a>b</function>"), R"({"city": "a>b</function>"})");
  EXPECT_EQ(
      read(glm_format(), "<tool_call>weather<arg_key>city</arg_key><arg_value>\nBern\n</arg_value></tool_call>").calls.at(0).arguments,
      R"({"city": "\nBern\n"})")
      << "line feeds between these tags belong to the value";
}

// Harmony --------------------------------------------------------------------------------------------------------------------------------

TEST(HarmonyMessages, EachDelimiterHasItsPlace) {
  const CallFormat format = harmony_format();
  struct Case {
    std::string text, content, reasoning;
    Calls calls;
  };
  const Calls clock{{"clock", "{}"}};
  for (const Case& one :
       {Case{"<|channel|>final<|message|>a<|constrain|>b<|channel|>c<|message|>d", "a<|constrain|>b<|channel|>c<|message|>d", "", {}},
        {"<|channel|>final<|message|>a<|start|>assistant<|channel|>final<|message|>b", "ab", "", {}},
        {"<|channel|>final<|message|>a<|return|>", "a", "", {}},
        {"<|channel|>final<|message|>a<|call|>", "a", "", {}},
        {"<|channel|>final<|message|>a<|ret", "a<|ret", "", {}},
        {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", "b", "a", {}},
        {"<|channel|>analysis<|message|>a<|constrain|>b<|end|>", "", "a<|constrain|>b", {}},
        {"<|channel|>analysis to=functions.clock<|message|>{}<|call|>", "", "", clock},
        {"<|channel|>commentary to=clock<|message|>{}<|call|>", "", "", clock},
        {"<|channel|>commentary to=chess<|message|>{}<|call|>", "{}", "", {}},
        {"<|channel|>commentary to=functions.chess<|message|>{}<|call|>", "", "", {{"chess", "{}"}}},
        {" to=functions.clock<|channel|>commentary<|message|>\n {}\n <|call|>", "", "", clock},
        {" to=functions.clock<|channel|>commentary<|message|>{} more<|call|>", "more", "", clock},
        {" to=functions.clock<|channel|>commentary<|message|> <|call|>", "", "", clock},
        {" to=functions.clock<|channel|>commentary<|message|>", "", "", {}},
        {" to=functions.clock<|channel|>commentary<|message|>[1]<|call|>", "[1]", "", {}},
        {"tomorrow", "tomorrow", "", {}},
        {"\n", "\n", "", {}},
        {"<|channel|>final<|message|>a<|end|>\n", "a", "", {}},
        {"<|channel|>final<|message|>a<|end|>b", "ab", "", {}}}) {
    const ReadAnswer answer = read(format, one.text);
    EXPECT_EQ(answer.content, one.content) << one.text;
    EXPECT_EQ(answer.reasoning, one.reasoning) << one.text;
    EXPECT_EQ(answer.calls, one.calls) << one.text;
  }
}

TEST(HarmonyMessages, HeadsHaveALimitOf512Bytes) {
  const CallFormat format = harmony_format();
  const auto text_of_head = [](std::size_t size) { return "<|channel|>" + std::string(size - 11, 'x'); };
  EXPECT_EQ(read_answer(format, weather_and_clock(), text_of_head(512)).content, "");
  EXPECT_EQ(read_answer(format, weather_and_clock(), text_of_head(513)).content, text_of_head(513));
  EXPECT_EQ(read_answer(format, weather_and_clock(), text_of_head(500) + "<|channel|>").content, "");
  EXPECT_EQ(read_answer(format, weather_and_clock(), text_of_head(502) + "<|channel|>").content, text_of_head(502) + "<|channel|>");
}

TEST(HarmonyMessages, TruncatedAnswersKeepTheBeginningOfACall) {
  const CallFormat format = harmony_format();
  const std::string head = "<|channel|>commentary to=functions.weather<|message|>";
  const auto cut = read_answer(format, weather_and_clock(), head + "{\"city\": \"B", {}, {}, true);
  EXPECT_EQ(cut.cut, (Calls{{"weather", "{\"city\": \"B"}}));
  EXPECT_EQ(cut.content, "");
  EXPECT_EQ(cut.num_broken, 0U);
  EXPECT_TRUE(read_answer(format, weather_and_clock(), head, {}, {}, true).cut.empty()) << "no argument has begun";
  EXPECT_EQ(read_answer(format, weather_and_clock(), "<|channel|>final<|message|>a<|en", {}, {}, true).content, "a");
  EXPECT_EQ(read_answer(format, weather_and_clock(), "<|channel|>final<|message|>a<", {}, {}, true).content, "a<") << "a byte may be text";
  EXPECT_EQ(
      read_answer(format, weather_and_clock(), head + "{}<|call|><|start|>assistant<|channel|>final<|message|>a<", {}, {}, true).content,
      "a")
      << "after a call, a byte is the beginning of a delimiter";
}

// Reasoning ------------------------------------------------------------------------------------------------------------------------------

TEST(AnswerParser, ReportsWhetherTheNextTextIsReasoning) {
  const CallFormat qwen = thinking(hermes());
  const auto parser = make_answer_parser(qwen, weather_and_clock(), {});
  std::string states;
  for (const char* text :
       {"<thi", "nk>", "a", "<tool_call>", "</think", ">", "b", "<tool_call>{\"name\": \"clock\"}</tool_call>", "<think>"}) {
    parser->feed(text);
    states += parser->is_thinking() ? 't' : '-';
  }
  EXPECT_EQ(states, "-tt-t----") << "after the delimiter of a call, the reasoning may be over";
  EXPECT_EQ(parser->num_calls(), 1U);
  EXPECT_TRUE(make_answer_parser(qwen, weather_and_clock(), {.in_reasoning = true})->is_thinking());
  const CallFormat harmony = harmony_format();
  EXPECT_TRUE(make_answer_parser(harmony, weather_and_clock(), {.in_reasoning = true})->is_thinking());
  const auto heads = make_answer_parser(harmony, weather_and_clock(), {});
  EXPECT_FALSE(heads->is_thinking());
  heads->feed("<|channel|>analysis<|message|>");
  EXPECT_TRUE(heads->is_thinking());
  heads->feed("a<|end|>");
  EXPECT_FALSE(heads->is_thinking());
}

TEST(AnswerParser, KeepsWhiteSpaceThatIsNotNextToADelimiter) {
  struct Case {
    std::string text, content, reasoning;
  };
  for (const Case& one : {Case{" a  b \n", " a  b \n", ""},
                          {"\n\n", "\n\n", ""},
                          {"<think>\na\n\nb \n</think>\n\nc \n", "c \n", "a\n\nb "},
                          {"<think></think>\n", "", ""},
                          {"<think>a</think>", "", "a"},
                          {" <think>a</think> b", "b", "a"},
                          {"x <think>a</think>", "x <think>a</think>", ""},
                          {"a \n<tool_call>{\"name\": \"clock\"}</tool_call>\n b ", "a\n b", ""},
                          {"a \n<tool_call>{\"name\": \"clock\"}</tool_call>\n ", "a", ""},
                          {"a \n<tool_call>no", "a \n<tool_call>no", ""}}) {
    const ReadAnswer answer = read(thinking(hermes()), one.text);
    EXPECT_EQ(answer.reasoning, one.reasoning) << one.text;
    EXPECT_EQ(answer.content, one.content) << one.text;
  }
}

}  // namespace
}  // namespace quire
