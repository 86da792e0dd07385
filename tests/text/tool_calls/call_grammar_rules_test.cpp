// Checks all rules of the grammars for calls in each format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_samples.h"
#include "text/tool_calls/call_grammar.h"
#include "text/tool_calls/rule_lines.h"

namespace quire {
namespace {

const std::vector<Tool>& rule_tools() {
  static const std::vector<Tool> tools{
      {.name = "f",
       .parameters = boost::json::parse(
           R"({"type": "object", "properties": {"t": {"type": "string"}, "n": {"type": "integer"}}, "required": ["n"]})"),
       .strict = true},
      {.name = "g"}};
  return tools;
}

std::string rules_for(const CallFormat& format, const CallGrammarOptions& options) {
  return all_rules(call_grammar(format, rule_tools(), options));
}

CallFormat glm_with_feeds() {
  return detect_call_format("<tool_call> <arg_key></arg_key>\n<arg_value>");
}

// The rules of both calls in formats that write them as JSON objects.
std::string object_calls(const std::string& key, const std::string& id = "") {
  std::string text;
  for (const auto& [i, name] : {std::pair(0, "f"), {1, "g"}})
    text += fmt::format(
        "named_{0}: \", \\\"{2}\\\": \" args_{0}{3} \"}}\"\ncall_{0}: \"{{\\\"name\\\": \\\"{1}\\\"\" named_{0}\nargs_{0}: %json\n", i,
        name, key, id);
  return text + "call: call_0 | call_1\n";
}

TEST(CallGrammarRules, RequiredCallsOfObjects) {
  const CallGrammarOptions required{.is_required = true};
  EXPECT_EQ(rules_for(format_of(CallStyle::plain), required),
            object_calls("arguments") + R"(start: (call | "[" call (", " call)* "]"))" + "\n");
  EXPECT_EQ(rules_for(format_of(CallStyle::plain), {.is_required = true, .parallel = false}),
            object_calls("arguments") + "start: (call)\n");
  EXPECT_EQ(rules_for(format_of(CallStyle::llama, "<|python_tag|>"), required),
            object_calls("parameters") + R"(start: (call (/[;,]/ /[ \n]{0,2}/ call)*))" + "\n");
  EXPECT_EQ(rules_for(hermes(), required), object_calls("arguments") + R"(section: "<tool_call>" "\n" call "\n" "</tool_call>"
start: (section ("\n" section)*)
)");
  EXPECT_EQ(rules_for(listed("<TOOLCALL>", "</TOOLCALL>"), required),
            object_calls("arguments") + R"(section: "<TOOLCALL>" "[" call (", " call)* "]" "</TOOLCALL>"
start: (section)
)");
  EXPECT_EQ(rules_for(format_of(CallStyle::mistral, "[TOOL_CALLS]"), required),
            object_calls("arguments", R"( (", \"id\": \"" /[a-zA-Z0-9]{9}/ "\"")?)") +
                R"(section: "[TOOL_CALLS]" " "? "[" call (", " call)* "]"
start: (section)
)");
}

TEST(CallGrammarRules, RequiredCallsWithDelimitersInsideThem) {
  const CallGrammarOptions required{.is_required = true}, single{.is_required = true, .parallel = false};
  const CallFormat v11 = format_of(CallStyle::mistral_v11, "[TOOL_CALLS]");
  const std::string v11_calls = R"(call_0: "f" ("[CALL_ID]" /[a-zA-Z0-9]{9}/)? "[ARGS]" args_0
args_0: %json
call_1: "g" ("[CALL_ID]" /[a-zA-Z0-9]{9}/)? "[ARGS]" args_1
args_1: %json
call: call_0 | call_1
section: "[TOOL_CALLS]" call
)";
  EXPECT_EQ(rules_for(v11, required), v11_calls + "start: (section ( section)*)\n");
  EXPECT_EQ(rules_for(v11, single), v11_calls + "start: (section)\n");
  const CallFormat r1 = format_of(CallStyle::deepseek, std::string(section_delimiters(CallStyle::deepseek).begin));
  const std::string r1_calls = R"(named_0: "function" "<｜tool▁sep｜>" "f\n```json\n" args_0 "\n```" "<｜tool▁call▁end｜>"
call_0: "<｜tool▁call▁begin｜>" named_0
args_0: %json
named_1: "function" "<｜tool▁sep｜>" "g\n```json\n" args_1 "\n```" "<｜tool▁call▁end｜>"
call_1: "<｜tool▁call▁begin｜>" named_1
args_1: %json
call: call_0 | call_1
)";
  EXPECT_EQ(rules_for(r1, required), r1_calls + R"(section: "<｜tool▁calls▁begin｜>" call ("\n" call)* "<｜tool▁calls▁end｜>"
start: (section)
)");
  EXPECT_EQ(rules_for(r1, single), r1_calls + R"(section: "<｜tool▁calls▁begin｜>" call "<｜tool▁calls▁end｜>"
start: (section)
)");
  const CallFormat v31 = format_of(CallStyle::deepseek_v31, r1.open);
  EXPECT_EQ(rules_for(v31, required), R"(named_0: "f" "<｜tool▁sep｜>" args_0 "<｜tool▁call▁end｜>"
call_0: "<｜tool▁call▁begin｜>" named_0
args_0: %json
named_1: "g" "<｜tool▁sep｜>" args_1 "<｜tool▁call▁end｜>"
call_1: "<｜tool▁call▁begin｜>" named_1
args_1: %json
call: call_0 | call_1
section: "<｜tool▁calls▁begin｜>" call ( call)* "<｜tool▁calls▁end｜>"
start: (section)
)");
  const CallFormat kimi = format_of(CallStyle::kimi, std::string(section_delimiters(CallStyle::kimi).begin));
  EXPECT_EQ(rules_for(kimi, required),
            R"(named_0: "functions.f:" /[0-9]{1,3}/ "<|tool_call_argument_begin|>" args_0 "<|tool_call_end|>"
call_0: "<|tool_call_begin|>" named_0
args_0: %json
named_1: "functions.g:" /[0-9]{1,3}/ "<|tool_call_argument_begin|>" args_1 "<|tool_call_end|>"
call_1: "<|tool_call_begin|>" named_1
args_1: %json
call: call_0 | call_1
section: "<|tool_calls_section_begin|>" call ( call)* "<|tool_calls_section_end|>"
start: (section)
)");
}

TEST(CallGrammarRules, RequiredCallsWithOneRulePerArgument) {
  const CallGrammarOptions canonical{.is_required = true, .is_canonical = true};
  EXPECT_EQ(rules_for(format_of(CallStyle::pythonic, "<|tool_call_start|>", "<|tool_call_end|>"), canonical), R"_(call_0: "f(" args_0 ")"
value_arg_0_0: %json
arg_0_0: "n=" value_arg_0_0
value_arg_0_1: %json
arg_0_1: "t=" value_arg_0_1
args_0: arg_0_0 (", " arg_0_1)?
call_1: "g(" args_1 ")"
args_1: ""
call: call_0 | call_1
section: "<|tool_call_start|>" "[" call (", " call)* "]" "<|tool_call_end|>"
start: (section)
)_");
  EXPECT_TRUE(has_rule(call_grammar(format_of(CallStyle::pythonic), rule_tools(), canonical), R"(start: ("[" call (", " call)* "]"))"));
  EXPECT_EQ(rules_for(format_of(CallStyle::xml, "<tool_call>", "</tool_call>"), canonical), R"(named_0: "f>\n" args_0 "</function>"
json_arg_0_0: %json
value_arg_0_0: json_arg_0_0 "\n</parameter>\n"
arg_0_0: "<parameter=n>\n" value_arg_0_0
value_arg_0_1[lazy]: TEXT "\n</parameter>\n"
arg_0_1: "<parameter=t>\n" value_arg_0_1
args_0: arg_0_0 arg_0_1?
call_0: "\n<function=" named_0
named_1: "g>\n" args_1 "</function>"
args_1: ""
call_1: "\n<function=" named_1
call: call_0 | call_1
section: "<tool_call>" call "\n" "</tool_call>"
start: (section ("\n" section)*)
)");
  const std::string seed = rules_for(detect_call_format("<seed:tool_call> <parameter="), canonical);
  EXPECT_NE(seed.find("arg_0_0: \"<parameter=n>\" value_arg_0_0\n"), std::string::npos) << "no line feeds are around values";
  EXPECT_NE(seed.find("value_arg_0_1[lazy]: TEXT \"</parameter>\\n\"\n"), std::string::npos) << seed;
  EXPECT_EQ(rules_for(glm_with_feeds(), canonical), R"(named_0: "\n" args_0
json_arg_0_0: %json
value_arg_0_0: json_arg_0_0 "</arg_value>"
arg_0_0: "<arg_key>" "n" "</arg_key>" "\n" "<arg_value>" value_arg_0_0 "\n"
value_arg_0_1[lazy]: TEXT "</arg_value>"
arg_0_1: "<arg_key>" "t" "</arg_key>" "\n" "<arg_value>" value_arg_0_1 "\n"
args_0: arg_0_0 arg_0_1?
call_0: "f" named_0
named_1: "\n" args_1
args_1: ""
call_1: "g" named_1
call: call_0 | call_1
section: "<tool_call>" call "</tool_call>"
start: (section ("\n" section)*)
)");
  const std::string tight = rules_for(detect_call_format("<tool_call> <arg_key>"), canonical);
  EXPECT_NE(tight.find("arg_0_0: \"<arg_key>\" \"n\" \"</arg_key>\" \"<arg_value>\" value_arg_0_0\n"), std::string::npos) << tight;
  const auto token = [](std::string_view text) { return text == kArgValueEnd ? std::optional<TokenId>(8) : std::nullopt; };
  const std::string tokens = rules_for(glm_with_feeds(), {.is_required = true, .token = token});
  EXPECT_NE(tokens.find("value_arg_0_1: TEXT <[8]>\n"), std::string::npos) << "a token ends the text: " << tokens;
  EXPECT_NE(tokens.find("value_arg_0_0: json_arg_0_0 <[8]>\n"), std::string::npos) << tokens;
}

TEST(CallGrammarRules, HarmonyMessages) {
  const std::string calls =
      R"(call_0: ("<|channel|>" "commentary to=functions.f" | " to=functions.f" "<|channel|>" "commentary") (" " "<|constrain|>"? "json")? "<|message|>" args_0
args_0: %json
call_1: ("<|channel|>" "commentary to=functions.g" | " to=functions.g" "<|channel|>" "commentary") (" " "<|constrain|>"? "json")? "<|message|>" args_1
args_1: %json
call: call_0 | call_1
noted[lazy]: "<|message|>" TEXT "<|end|>"
)";
  const std::string held = R"(note: "<|channel|>" "analysis" noted "<|start|>" "assistant")";
  const std::string free = R"(note: "<|channel|>" ("analysis" | "commentary") noted "<|start|>" "assistant")";
  const std::string said = R"(said: "<|channel|>" "final" "<|message|>" )";
  const std::string several = R"(calls: call (("<|call|>" | "<|end|>") "<|start|>" "assistant" call)*)";
  EXPECT_EQ(rules_for(harmony_format(), {.is_required = true}), calls + held + "\n" + several + "\nstart: note* calls\n");
  EXPECT_EQ(rules_for(harmony_format(), {.is_required = true, .parallel = false}), calls + held + "\ncalls: call\nstart: note* calls\n");
  EXPECT_EQ(rules_for(harmony_format(), {}), calls + free + "\n" + said + "TEXT\n" + several + "\nstart: note* (said | calls)\n");
  EXPECT_EQ(rules_for(harmony_format(), {.is_required = true, .otherwise = "/x/"}),
            calls + held + "\nform: /x/\n" + said + "form\n" + several + "\nstart: note* (said | calls)\n");
  EXPECT_EQ(rules_for(harmony_format(), {.is_required = true, .in_reasoning = true}),
            calls + held + "\nthought[lazy]: TEXT \"<|end|>\"\n" + several + "\nstart: thought \"<|start|>\" \"assistant\" note* calls\n");
  EXPECT_EQ(rules_for(harmony_format(), {.is_required = true, .in_reasoning = true, .is_after_reasoning = true}),
            calls + held + "\n" + several + "\nstart: \"<|start|>\" \"assistant\" note* calls\n");
  EXPECT_EQ(all_rules(form_grammar(harmony_format(), "/x/", {})),
            "noted[lazy]: \"<|message|>\" TEXT \"<|end|>\"\n" + held + "\nform: /x/\n" + said + "form\nstart: note* said\n");
}

TEST(CallGrammarRules, ReasoningAndOtherAnswersSurroundRequiredCalls) {
  const CallFormat format = thinking(hermes());
  const std::string calls = "section (\"\\n\" section)*";
  const auto made = [&](const CallGrammarOptions& options) { return call_grammar(format, rule_tools(), options); };
  EXPECT_TRUE(has_rule(made({.is_required = true}), "start: (thought space)? (" + calls + ")"));
  EXPECT_TRUE(has_rule(made({.is_required = true}), R"(space: /[ \n]{0,4}/)"));
  EXPECT_TRUE(has_rule(made({.is_required = true, .in_reasoning = true}), "start: thought space (" + calls + ")"));
  EXPECT_TRUE(has_rule(made({.is_required = true, .is_after_reasoning = true}), R"(start: /[ \n]{0,4}/ ()" + calls + ")"));
  EXPECT_TRUE(has_rule(made({.is_required = true, .otherwise = "/x/"}), "start: (thought space)? (" + calls + " | otherwise)"));
  EXPECT_TRUE(has_rule(made({.is_required = true, .otherwise = "/x/"}), "otherwise: /x/"));
  EXPECT_EQ(all_rules(form_grammar(format, "/x/", {})),
            "form: /x/\nthought[lazy]: \"<think>\" TEXT \"</think>\"\nspace: /[ \\n]{0,4}/\nstart: (thought space)? form\n");
  EXPECT_EQ(all_rules(form_grammar(hermes(), "/x/", {.in_reasoning = true})), "form: /x/\nstart: form\n") << "the format has no reasoning";
  const auto open_token = [](std::string_view text) { return text == "<think>" ? std::optional<TokenId>(1) : std::nullopt; };
  const auto close_token = [](std::string_view text) { return text == "</think>" ? std::optional<TokenId>(2) : std::nullopt; };
  EXPECT_TRUE(has_rule(made({.is_required = true, .token = open_token}), "thought: <[1]> TEXT \"</think>\""));
  EXPECT_TRUE(has_rule(made({.is_required = true, .token = close_token}), "thought: \"<think>\" TEXT <[2]>"));
  EXPECT_TRUE(has_rule(made({.is_required = true, .in_reasoning = true, .token = open_token}), "thought[lazy]: TEXT \"</think>\""));
}

struct FreeText {
  CallFormat format;
  CallGrammarOptions options;
  std::vector<std::string> rules;
};

TEST(CallGrammarRules, FreeTextIsAnyTextThatBeginsNoCall) {
  const auto tokens = [](std::string_view text) -> std::optional<TokenId> {
    for (const auto& [mark, id] :
         {std::pair("<|tool_calls_section_begin|>", 6), {"<|tool_call_begin|>", 7}, {"<think>", 1}, {"</think>", 2}})
      if (text == mark) return id;
    return std::nullopt;
  };
  const CallFormat kimi = format_of(CallStyle::kimi, std::string(section_delimiters(CallStyle::kimi).begin));
  const CallFormat mistral = format_of(CallStyle::mistral, "[TOOL_CALLS]");
  const std::vector<std::string> same{"free: TEXT | opened after", "after: begun free | OTHER | other_opened after", "start: free",
                                      "other_opened[lazy]: OTHER_OPENED"};
  const FreeText all[] = {
      {hermes(),
       {},
       {R"(begun_0: "f\"" named_0)", R"(begun_1: "g\"" named_1)",
        R"(begun: /[ \n]{0,4}\{[ \n]{0,4}"name" ?: ?"/ (begun_0 | begun_1) /[ \n]{0,4}/ "</tool_call>")",
        R"(OTHER: /(.|\n)*/ & ~/([ \n]{0,4}\{[ \n]{0,4}"name" ?: ?"[A-Za-z0-9_])(.|\n)*/)", R"(opened[lazy]: TEXT "<tool_call>")",
        R"(OTHER_OPENED: /(.|\n)*<tool_call>/ & ~/([ \n]{0,4}\{[ \n]{0,4}"name" ?: ?"[A-Za-z0-9_])(.|\n)*/)"}},
      {hermes(),
       {.is_canonical = true},
       {R"(begun: /\n\{"name": "/ (begun_0 | begun_1) "\n" "</tool_call>")", R"(OTHER: /(.|\n)*/ & ~/([ \n]*[\[{])(.|\n)*/)"}},
      {listed("<TOOLCALL>", "</TOOLCALL>"),
       {},
       {R"(begun: /[ \n]{0,4}\[[ \n]{0,4}\{[ \n]{0,4}"name" ?: ?"/ (begun_0 | begun_1) (", " call)* "]" "</TOOLCALL>")"}},
      {listed("<TOOLCALL>", "</TOOLCALL>"),
       {.parallel = false},
       {R"(begun: /[ \n]{0,4}\[[ \n]{0,4}\{[ \n]{0,4}"name" ?: ?"/ (begun_0 | begun_1) "]" "</TOOLCALL>")"}},
      {mistral,
       {.is_canonical = true},
       {R"(begun: / ?\[\{"name": "/ (begun_0 | begun_1) (", " call)* "]")", R"(opened[lazy]: TEXT "[TOOL_CALLS]")",
        R"(OTHER_OPENED: /(.|\n)*\[TOOL_CALLS\]/ & ~/([ \n]*[\[{])(.|\n)*/)"}},
      {format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"),
       {},
       {"begun_0: call_0", "begun: (begun_0 | begun_1)", R"(OTHER: /(.|\n)*/ & ~/([A-Za-z0-9_])(.|\n)*/)"}},
      {format_of(CallStyle::xml, "<tool_call>", "</tool_call>"),
       {},
       {"begun_0: named_0", R"(begun: /[ \n]{0,4}<function=/ (begun_0 | begun_1) /[ \n]{0,4}/ "</tool_call>")",
        R"(OTHER: /(.|\n)*/ & ~/([ \n]{0,4}<function=[A-Za-z0-9_])(.|\n)*/)"}},
      {format_of(CallStyle::xml, "<tool_call>", "</tool_call>"),
       {.is_canonical = true},
       {R"(begun: /\n<function=/ (begun_0 | begun_1) "\n" "</tool_call>")"}},
      {glm_with_feeds(),
       {},
       {R"(begun_0: /[ \n]{0,4}f/ named_0)", R"(begun: (begun_0 | begun_1) "</tool_call>")",
        R"(OTHER: /(.|\n)*/ & ~/([ \n]{0,4}(f|g)[\n<])(.|\n)*/)"}},
      {format_of(CallStyle::pythonic, "<|tool_call_start|>", "<|tool_call_end|>"),
       {},
       {R"_(begun_0: /[ \n]{0,4}\[f\(/ args_0 ")")_", R"(begun: (begun_0 | begun_1) (", " call)* "]" "<|tool_call_end|>")",
        R"(OTHER: /(.|\n)*/ & ~/([ \n]{0,4}\[(f|g)\()(.|\n)*/)"}},
      {kimi,
       {},
       {"begun_0: named_0", R"(begun: /[ \n]{0,4}<\|tool_call_begin\|>/ (begun_0 | begun_1) ( call)* "<|tool_calls_section_end|>")",
        R"(OTHER: /(.|\n)*/ & ~/([ \n]{0,4}<\|tool_call_begin\|>)(.|\n)*/)"}},
      {format_of(CallStyle::deepseek, std::string(section_delimiters(CallStyle::deepseek).begin)),
       {.parallel = false},
       {R"(begun: /[ \n]{0,4}<｜tool▁call▁begin｜>/ (begun_0 | begun_1) "<｜tool▁calls▁end｜>")"}}};
  for (const FreeText& one : all) {
    const std::string text = call_grammar(one.format, rule_tools(), one.options);
    for (const std::vector<std::string>* rules : {&one.rules, &same})
      for (const std::string& rule : *rules) EXPECT_TRUE(has_rule(text, rule)) << rule << "\nis not in\n" << all_rules(text);
  }
  const std::string marked = call_grammar(thinking(kimi), rule_tools(), {.token = tokens});
  for (const char* rule : {R"(begun: /[ \n]{0,4}/ <[7]> (begun_0 | begun_1) ( call)* "<|tool_calls_section_end|>")", R"(OTHER: /(.|\n)*/)",
                           "free: TEXT | TEXT <[6]> after | TEXT <[1]> free | TEXT <[2]> free",
                           "after: begun free | OTHER | OTHER <[6]> after | OTHER <[1]> free | OTHER <[2]> free", "start: free"})
    EXPECT_TRUE(has_rule(marked, rule)) << rule << "\nis not in\n" << all_rules(marked);
  EXPECT_TRUE(has_rule(call_grammar(kimi, rule_tools(), {.is_after_delimiter = true, .token = tokens}), "start: after"));
}

TEST(CallGrammarRules, AnswersWithoutDelimitersBeginWithACall) {
  const auto token = [](std::string_view text) { return text == "<|python_tag|>" ? std::optional<TokenId>(5) : std::nullopt; };
  const CallFormat llama = format_of(CallStyle::llama, "<|python_tag|>");
  const std::string more = R"((/[;,]/ /[ \n]{0,2}/ call)*)";
  const FreeText all[] = {
      {format_of(CallStyle::plain),
       {},
       {R"(opened_0[lazy]: "{\"name\": \"f\"")", "first_0: opened_0 named_0", R"(opened_1[lazy]: "{\"name\": \"g\"")",
        "first_1: opened_1 named_1", "start: TEXT | (first_0 | first_1)"}},
      {llama, {}, {"start: TEXT | (first_0 | first_1) " + more}},
      {llama, {.parallel = false}, {"start: TEXT | (first_0 | first_1)"}},
      {llama, {.token = token}, {"start: TEXT | (first_0 | first_1) " + more + " | <[5]> call " + more}},
      {format_of(CallStyle::pythonic),
       {},
       {R"(opened_0[lazy]: "[f(")", R"_(first_0: opened_0 args_0 ")" (", " call)* "]")_", "start: TEXT | (first_0 | first_1)"}},
      {format_of(CallStyle::pythonic), {.parallel = false}, {R"_(first_0: opened_0 args_0 ")" "]")_"}}};
  for (const FreeText& one : all) {
    const std::string text = call_grammar(one.format, rule_tools(), one.options);
    for (const std::string& rule : one.rules) EXPECT_TRUE(has_rule(text, rule)) << rule << "\nis not in\n" << all_rules(text);
  }
}

TEST(CallGrammarRules, NamesOfToolsAreQuotedInExpressions) {
  const std::vector<Tool> tools{{.name = "-a.b"}, {.name = ":c"}, {.name = "d/e"}};
  EXPECT_TRUE(has_rule(call_grammar(format_of(CallStyle::mistral_v11, "[TOOL_CALLS]"), tools, {}),
                       R"(OTHER: /(.|\n)*/ & ~/([A-Za-z0-9_\-\:])(.|\n)*/)"));
  const std::string glm = call_grammar(glm_with_feeds(), tools, {});
  EXPECT_TRUE(has_rule(glm, R"(OTHER: /(.|\n)*/ & ~/([ \n]{0,4}(-a\.b|:c|d\/e)[\n<])(.|\n)*/)")) << all_rules(glm);
  EXPECT_TRUE(has_rule(glm, R"(begun_0: /[ \n]{0,4}-a\.b/ named_0)")) << all_rules(glm);
  EXPECT_TRUE(has_rule(glm, "call: call_0 | call_1 | call_2"));
}

// Returns the names that a rule's body uses: words outside of texts, expressions and tokens.
std::vector<std::string> names_in(std::string_view body) {
  std::vector<std::string> names;
  std::string word;
  char quote = 0;
  for (std::size_t i = 0; i <= body.size(); ++i) {
    const char byte = i < body.size() ? body[i] : ' ';
    if (quote != 0) {
      if (byte == '\\')
        ++i;
      else if (byte == quote)
        quote = 0;
      continue;
    }
    const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9') || byte == '_';
    if (is_letter) {
      word += byte;
      continue;
    }
    if (!word.empty() && (word.front() < '0' || word.front() > '9')) names.push_back(word);
    word.clear();
    if (byte == '"' || byte == '/') quote = byte;
  }
  return names;
}

void expect_complete_rules(const std::string& grammar) {
  std::map<std::string, std::vector<std::string>> uses;
  for (const std::string& line : rule_lines(grammar)) {
    const std::size_t colon = line.find(": ");
    ASSERT_NE(colon, std::string::npos) << line;
    std::string name = line.substr(0, colon);
    if (name.ends_with("[lazy]")) name.resize(name.size() - 6);
    const std::string body = line.substr(colon + 2);
    ASSERT_TRUE(uses.emplace(name, body == "%json" ? std::vector<std::string>{} : names_in(body)).second) << name << " is defined twice";
  }
  ASSERT_TRUE(uses.contains("start")) << grammar;
  for (const auto& [name, used] : uses)
    for (const std::string& one : used) ASSERT_TRUE(one == "TEXT" || uses.contains(one)) << name << " uses " << one << " in\n" << grammar;
}

TEST(CallGrammarRules, EachRuleIsDefinedOnceInEveryFormat) {
  const auto token = [](std::string_view text) { return std::optional<TokenId>(static_cast<TokenId>(text.size())); };
  std::vector<Tool> tools = rule_tools();
  tools.push_back({.name = "any", .parameters = any_arguments()});
  tools.push_back(
      {.name = "optional", .parameters = boost::json::parse(R"({"properties": {"a": {"type": "boolean"}, "b": {"enum": ["x"]}}})")});
  for (const CallFormat& bare : all_formats())
    for (const CallFormat& format : {bare, thinking(bare)})
      for (unsigned bits = 0; bits < 256; ++bits) {
        CallGrammarOptions options{.is_required = (bits & 1) != 0,
                                   .parallel = (bits & 2) != 0,
                                   .in_reasoning = (bits & 4) != 0,
                                   .is_after_reasoning = (bits & 8) != 0,
                                   .otherwise = (bits & 16) != 0 ? "/x/" : "",
                                   .is_canonical = (bits & 32) != 0,
                                   .is_after_delimiter = (bits & 64) != 0};
        if ((bits & 128) != 0) options.token = token;
        ASSERT_NO_FATAL_FAILURE(expect_complete_rules(call_grammar(format, tools, options)));
        ASSERT_NO_FATAL_FAILURE(expect_complete_rules(form_grammar(format, "/x/", options)));
      }
}

}  // namespace
}  // namespace quire
