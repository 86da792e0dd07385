#include "text/tool_calls/python_value.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace quire {
namespace {

// Returns the JSON of a literal that a comma follows, or "bad" or "open".
std::string json_of_literal(std::string_view literal, char end = ',') {
  PythonValue value;
  std::string json;
  for (const char byte : literal)
    if (value.push(byte, json) != PythonValue::State::open) return "bad";
  const PythonValue::State state = value.push(end, json);
  return state == PythonValue::State::whole ? json : state == PythonValue::State::open ? "open" : "bad";
}

struct Literal {
  std::string_view python, json;
};

TEST(PythonValue, ReadsWordsAndNumbers) {
  for (const Literal& one :
       {Literal{"1", "1"},  {" \n\t\r7 ", "7"}, {"+1", "1"},      {"-1.5e-3", "-1.5e-3"}, {"0", "0"},       {"True", "true"},
        {"False", "false"}, {"None", "null"},   {"true", "true"}, {"false", "false"},     {"null", "null"}, {"", "bad"},
        {"01", "bad"},      {"1_0", "bad"},     {"tru", "bad"},   {"TRUE", "bad"},        {"+", "bad"},     {"++1", "bad"},
        {"1 2", "bad"},     {"x", "bad"},       {"]", "bad"},     {"1]", "bad"},          {"1}", "bad"}})
    EXPECT_EQ(json_of_literal(one.python), one.json) << one.python;
  EXPECT_EQ(json_of_literal("1", ')'), "1");
  EXPECT_EQ(json_of_literal("1", ' '), "open");
  EXPECT_EQ(json_of_literal("1", ':'), "bad");
  EXPECT_EQ(json_of_literal("'a'", ')'), "\"a\"");
}

TEST(PythonValue, WritesStringsAsJsonStrings) {
  for (const Literal& one : {Literal{"'a'", R"("a")"},
                             {R"("a'b")", R"("a'b")"},
                             {R"('a"b')", R"("a\"b")"},
                             {"''", R"("")"},
                             {"'\x01\n\x1F \x7F'", "\"\\u0001\\u000a\\u001f \x7F\""},
                             {"'\u00E9'", "\"\u00E9\""},
                             {"'a", "open"},
                             {"'a\"", "open"},
                             {"'a' 'b'", "bad"}})
    EXPECT_EQ(json_of_literal(one.python), one.json) << one.python;
}

TEST(PythonValue, TranslatesEachEscape) {
  for (const Literal& one : {Literal{R"('\\')", R"("\\")"},
                             {R"('\"')", R"("\"")"},
                             {R"('\/')", R"("\/")"},
                             {R"('\n\r\t\b\f')", R"("\n\r\t\b\f")"},
                             {R"('\'')", R"("'")"},
                             {R"('\a\v\0')", R"("\u0007\u000b\u0000")"},
                             {R"('\x41\xfF')", R"("\u0041\u00ff")"},
                             {R"('\u00e9x')", R"("\u00e9x")"},
                             {R"('\q\1')", R"("\\q\\1")"},
                             {"'a\\\nb'", R"("ab")"},
                             {R"('\x4')", "bad"},
                             {R"('\xZZ')", "bad"},
                             {R"('\u00G0')", "bad"},
                             {R"('\u-001')", "bad"}})
    EXPECT_EQ(json_of_literal(one.python), one.json) << one.python;
}

TEST(PythonValue, CodesAreCharactersOrPairsOfSurrogates) {
  for (const Literal& one : {Literal{R"('\ud7ff\ue000')", R"("\ud7ff\ue000")"},
                             {R"('\U0000ffff\U00010000')", R"("\uffff\ud800\udc00")"},
                             {R"('\U0001F600\U0010ffff')", R"("\ud83d\ude00\udbff\udfff")"},
                             {R"('\U00110000')", "bad"},
                             {R"('\ud800\udc00\udbff\udfff')", R"("\ud800\udc00\udbff\udfff")"},
                             {R"('\udc00')", R"("\ufffd")"},
                             {R"('\udfff\ud800')", R"("\ufffd\ufffd")"},
                             {R"('\ud800\ud801\udc02')", R"("\ufffd\ud801\udc02")"},
                             {R"('\ud800\udc00\udc01')", R"("\ud800\udc00\ufffd")"},
                             {R"('\ud800\u0041')", R"("\ufffd\u0041")"},
                             {R"('\ud800\x41')", R"("\ufffd\u0041")"},
                             {R"('\ud800\n')", R"("\ufffd\n")"},
                             {R"('\ud800\U00010000')", R"("\ufffd\ud800\udc00")"},
                             {R"('\ud800a')", R"("\ufffda")"}})
    EXPECT_EQ(json_of_literal(one.python), one.json) << one.python;
}

TEST(PythonValue, ReadsListsTuplesAndDicts) {
  for (const Literal& one : {Literal{"[]", "[]"},
                             {"()", "[]"},
                             {"{}", "{}"},
                             {"[ ]", "[]"},
                             {"[1]", "[1]"},
                             {"[1,]", "[1]"},
                             {"(1, )", "[1]"},
                             {"[1,2 , 3]", "[1, 2, 3]"},
                             {"[[],(),{}]", "[[], [], {}]"},
                             {"{'a':1}", R"({"a": 1})"},
                             {"{'a' : 1, \"b\":[2],}", R"({"a": 1, "b": [2]})"},
                             {"{'a':{'b':None}, 'c':()}", R"({"a": {"b": null}, "c": []})"},
                             {"[{'a':1},{'b':2}]", R"([{"a": 1}, {"b": 2}])"},
                             {"{'a':[1,2],'b':3}", R"({"a": [1, 2], "b": 3})"},
                             {"[,]", "bad"},
                             {"[1,,2]", "bad"},
                             {"[1 2]", "bad"},
                             {"[1)", "bad"},
                             {"(1]", "bad"},
                             {"{'a':1]", "bad"},
                             {"[}", "bad"},
                             {"{,}", "bad"},
                             {"{1:2}", "bad"},
                             {"{'a'}", "bad"},
                             {"{'a':}", "bad"},
                             {"{'a',1}", "bad"},
                             {"{[]:1}", "bad"},
                             {"{'a':1 'b':2}", "bad"},
                             {"['a':1]", "bad"},
                             {"[1", "open"},
                             {"{'a':1", "open"}})
    EXPECT_EQ(json_of_literal(one.python), one.json) << one.python;
}

TEST(PythonValue, LimitsNestingAndWords) {
  for (const auto& [open, close] : {std::pair('[', ']'), {'(', ')'}}) {
    EXPECT_EQ(json_of_literal(std::string(64, open) + std::string(64, close)), std::string(64, '[') + std::string(64, ']'));
    EXPECT_EQ(json_of_literal(std::string(65, open) + std::string(65, close)), "bad");
  }
  EXPECT_EQ(json_of_literal(std::string(64, '7')), std::string(64, '7'));
  EXPECT_EQ(json_of_literal(std::string(65, '7')), "bad");
}

// A value that breaks off has only text that needs no correction.
TEST(PythonValue, WritesOnlyTextThatIsCertain) {
  for (const Literal& one : {Literal{"[1", "["},
                             {"[1,", "[1"},
                             {"[1, 'a", R"([1, "a)"},
                             {"'a\\", R"("a)"},
                             {R"('\ud83d)", "\""},
                             {"{'a':", R"({"a": )"},
                             {"{'a':1,", R"({"a": 1)"},
                             {"Tru", ""}}) {
    PythonValue value;
    std::string json;
    for (const char byte : one.python) ASSERT_EQ(value.push(byte, json), PythonValue::State::open) << one.python;
    EXPECT_EQ(json, one.json) << one.python;
  }
}

}  // namespace
}  // namespace quire
