#include "text/tool_calls/call_format.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(CallFormat, IsDetectedFromTheTemplate) {
  const CallFormat hermes =
      detect_call_format("{{ tools }}<tool_call>\n{\"name\": <function-name>, \"arguments\": {}}\n</tool_call> tool_calls");
  EXPECT_EQ(hermes.style, CallStyle::marked);
  EXPECT_EQ(hermes.open, "<tool_call>");
  EXPECT_TRUE(hermes.shows_tools && hermes.shows_calls && hermes.shows_results);
  EXPECT_EQ(detect_call_format("<tool_call>\n<function=f>\n<parameter=a>").style, CallStyle::xml);
  EXPECT_EQ(detect_call_format("<tool_call>{name}\n<arg_key>k</arg_key>").style, CallStyle::glm);
  EXPECT_TRUE(detect_call_format("<tool_call>{name}<arg_key>k</arg_key><arg_value>").is_tight);
  for (const char* feed : {"</arg_key>\n<arg_value>", R"('</arg_key>\n')", R"('\n<arg_value>')"})
    EXPECT_FALSE(detect_call_format(std::string("<tool_call><arg_key>") + feed).is_tight) << feed;
  const CallFormat seed = detect_call_format("<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>");
  EXPECT_EQ(seed.style, CallStyle::xml);
  EXPECT_EQ(seed.open, "<seed:tool_call>");
  EXPECT_TRUE(seed.is_tight);
  EXPECT_EQ(detect_call_format("[TOOL_CALLS][").style, CallStyle::mistral);
  EXPECT_EQ(detect_call_format("[TOOL_CALLS]name[ARGS]").style, CallStyle::mistral_v11);
  EXPECT_TRUE(detect_call_format("{% if id|length != 9 %}").wants_short_ids);
}

TEST(CallFormat, TemplateWithoutToolsIsPlain) {
  const CallFormat plain = detect_call_format("{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(plain.style, CallStyle::plain);
  EXPECT_FALSE(plain.shows_tools || plain.shows_calls || plain.shows_results || plain.reads_effort);
  EXPECT_TRUE(plain.delimiters().empty());
}

TEST(CallFormat, ReasoningIsDetectedByBothDelimiters) {
  EXPECT_EQ(detect_call_format("<think>{{ x }}</think>").think_close, "</think>");
  EXPECT_EQ(detect_call_format("[THINK]{{ x }}[/THINK]").think_open, "[THINK]");
  EXPECT_EQ(detect_call_format("<think>").think_open, "");
}

TEST(CallFormat, PromptMayEndInReasoning) {
  const CallFormat format = detect_call_format("<think></think>");
  EXPECT_TRUE(ends_in_reasoning(format, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_reasoning(format, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_reasoning(format, ""));
  EXPECT_FALSE(ends_in_reasoning(CallFormat{}, "<think>"));
}

TEST(CallFormat, HarmonyIsDetectedByItsHeaders) {
  const CallFormat format = detect_call_format("<|start|>assistant<|channel|>final<|message|> tools tool_calls reasoning_effort");
  EXPECT_EQ(format.style, CallStyle::harmony);
  EXPECT_EQ(format.delimiters().size(), 7U);
  EXPECT_TRUE(format.reads_effort);
  EXPECT_TRUE(ends_in_reasoning(format, "<|start|>assistant<|channel|>analysis<|message|>"));
  EXPECT_FALSE(ends_in_reasoning(format, "<|start|>assistant"));
}

TEST(CallFormat, MarksListAllPossibleControlTokens) {
  EXPECT_EQ(detect_call_format("[TOOL_CALLS] [ARGS]").delimiters(), (std::vector<std::string>{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}));
  EXPECT_EQ(detect_call_format("<｜tool▁calls▁begin｜>").delimiters().size(), 6U);
}

}  // namespace
}  // namespace quire
