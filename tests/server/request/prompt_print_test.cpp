// Two prompts compared by what is kept of them, and that what is kept stays within its bounds and is each tenant's own.
#include "server/request/prompt_print.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <numeric>
#include <string>

namespace quire {
namespace {

ChatPrompt chat_of(std::string_view messages, std::string_view tools = "null", bool thinks = false) {
  ChatPrompt chat;
  chat.messages = boost::json::parse(messages).as_array();
  chat.tools = boost::json::parse(tools);
  if (thinks) chat.template_kwargs["enable_thinking"] = true;
  return chat;
}

PromptPrint print_with(const ChatPrompt& chat, std::size_t num_alike, std::size_t num_tokens) {
  PromptPrint print = print_of(chat);
  std::vector<TokenId> tokens(num_tokens);
  std::iota(tokens.begin(), tokens.end(), 7);
  for (std::size_t i = num_alike; i < num_tokens; ++i) tokens[i] += 100'000;
  add_tokens(print, tokens);
  return print;
}

constexpr const char* kTurn = R"([{"role":"system","content":"be brief"},{"role":"user","content":"a"}])";
constexpr const char* kNextTurn =
    R"([{"role":"system","content":"be brief"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}])";

TEST(PromptPrint, AConversationThatGoesOnIsTheSame) {
  const PromptPrint first = print_with(chat_of(kTurn), 100, 100), next = print_with(chat_of(kNextTurn), 100, 150);
  const PromptComparison compared = compare(first, next);
  EXPECT_EQ(compared.change, PromptChange::none);
  EXPECT_EQ(compared.num_reusable_tokens, 96U) << "whole blocks";
  EXPECT_EQ(compared.num_missed_tokens, 4U);
  EXPECT_EQ(compare(next, first).change, PromptChange::none) << "taken up further ahead";
}

TEST(PromptPrint, TheFirstPartThatDiffersIsNamed) {
  const PromptPrint base = print_with(chat_of(kNextTurn), 200, 200);
  const char* other_system = R"([{"role":"system","content":"be long"},{"role":"user","content":"a"}])";
  const char* other_turn = R"([{"role":"system","content":"be brief"},{"role":"user","content":"A"}])";
  const char* tools = R"([{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(compare(base, print_with(chat_of(other_system), 0, 200)).change, PromptChange::system);
  EXPECT_EQ(compare(base, print_with(chat_of(other_turn), 40, 200)).change, PromptChange::turns);
  EXPECT_EQ(compare(base, print_with(chat_of(other_turn), 40, 200)).num_missed_tokens, 168U);
  EXPECT_EQ(compare(base, print_with(chat_of(other_system, tools), 0, 200)).change, PromptChange::tools);
  EXPECT_EQ(compare(base, print_with(chat_of(kNextTurn, "null", true), 0, 200)).change, PromptChange::settings);
}

TEST(PromptPrint, ABlockStandsForAllBeforeIt) {
  PromptPrint one, other;
  std::vector<TokenId> tokens(64, 5);
  add_tokens(one, tokens);
  tokens[3] = 6;
  add_tokens(other, tokens);
  EXPECT_EQ(compare(one, other).num_reusable_tokens, 0U);
}

TEST(PromptPrints, StayWithinTheirBytesAndForgetTheOldest) {
  PromptPrints prints(20'000);
  for (int i = 0; i < 100; ++i) {
    prints.keep("us", "msg_" + std::to_string(i), print_with(chat_of(kTurn), 1000, 1000));
    EXPECT_LE(prints.num_bytes(), 20'000U);
    if (i > 2) EXPECT_NE(prints.find("us", "msg_0"), nullptr) << "it is asked for again and again";
  }
  EXPECT_NE(prints.find("us", "msg_99"), nullptr);
  EXPECT_EQ(prints.find("us", "msg_50"), nullptr);
  EXPECT_EQ(prints.find("them", "msg_99"), nullptr) << "another tenant's is not there";
}

TEST(PromptPrints, OneThatIsLargerThanAllIsNotKept) {
  PromptPrints prints(1000);
  prints.keep("us", "msg_1", print_with(chat_of(kTurn), 100'000, 100'000));
  EXPECT_EQ(prints.find("us", "msg_1"), nullptr);
  EXPECT_EQ(prints.num_bytes(), 0U);
}

}  // namespace
}  // namespace quire
