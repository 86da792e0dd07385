#include "text/tool_calls/call_format.h"

#include <gtest/gtest.h>

#include <string>

namespace quire {
namespace {

TEST(CallFormat, IsFoundInATemplatesText) {
  const CallFormat hermes =
      detect_call_format("{{ tools }}<tool_call>\n{\"name\": <function-name>, \"arguments\": {}}\n</tool_call> tool_calls");
  EXPECT_EQ(hermes.style, CallStyle::marked);
  EXPECT_EQ(hermes.open, "<tool_call>");
  EXPECT_TRUE(hermes.shows_tools && hermes.shows_calls && hermes.shows_results);
  EXPECT_EQ(detect_call_format("<tool_call>\n<function=f>\n<parameter=a>").style, CallStyle::xml);
  EXPECT_EQ(detect_call_format("<tool_call>{name}\n<arg_key>k</arg_key>").style, CallStyle::plain) << "GLM's is not read";
  EXPECT_EQ(detect_call_format("[TOOL_CALLS][").style, CallStyle::mistral);
  EXPECT_EQ(detect_call_format("[TOOL_CALLS]name[ARGS]").style, CallStyle::mistral_v11);
  EXPECT_TRUE(detect_call_format("{% if id|length != 9 %}").wants_short_ids);
}

TEST(CallFormat, ATemplateWithoutToolsIsPlain) {
  const CallFormat plain = detect_call_format("{% for m in messages %}{{ m.content }}{% endfor %}");
  EXPECT_EQ(plain.style, CallStyle::plain);
  EXPECT_FALSE(plain.shows_tools || plain.shows_calls || plain.shows_results || plain.reads_effort);
  EXPECT_TRUE(plain.marks().empty());
}

TEST(CallFormat, ThoughtsAreFoundByBothMarks) {
  EXPECT_EQ(detect_call_format("<think>{{ x }}</think>").think_close, "</think>");
  EXPECT_EQ(detect_call_format("[THINK]{{ x }}[/THINK]").think_open, "[THINK]");
  EXPECT_EQ(detect_call_format("<think>").think_open, "");
}

TEST(CallFormat, APromptMayEndInAThought) {
  const CallFormat format = detect_call_format("<think></think>");
  EXPECT_TRUE(ends_in_thought(format, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(ends_in_thought(format, "<think>\n\n</think>\n\n"));
  EXPECT_FALSE(ends_in_thought(format, ""));
  EXPECT_FALSE(ends_in_thought(CallFormat{}, "<think>"));
}

TEST(CallFormat, HarmonyIsFoundByItsHeads) {
  const CallFormat format = detect_call_format("<|start|>assistant<|channel|>final<|message|> tools tool_calls reasoning_effort");
  EXPECT_EQ(format.style, CallStyle::harmony);
  EXPECT_EQ(format.marks().size(), 7U);
  EXPECT_TRUE(format.reads_effort);
  EXPECT_TRUE(ends_in_thought(format, "<|start|>assistant<|channel|>analysis<|message|>"));
  EXPECT_FALSE(ends_in_thought(format, "<|start|>assistant"));
}

TEST(CallFormat, MarksAreAllThatMayBeControlTokens) {
  EXPECT_EQ(detect_call_format("[TOOL_CALLS] [ARGS]").marks(), (std::vector<std::string>{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"}));
  EXPECT_EQ(detect_call_format("<｜tool▁calls▁begin｜>").marks().size(), 6U);
}

}  // namespace
}  // namespace quire
