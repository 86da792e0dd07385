// Tests the comparison of two prompts by their fingerprints, and that the fingerprint cache is bounded and separates tenants.
#include "server/request/prompt_fingerprint.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace quire {
namespace {

namespace json = boost::json;

ChatPrompt chat_of(std::string_view messages, std::string_view tools = "null", bool thinks = false) {
  ChatPrompt chat;
  chat.messages = boost::json::parse(messages).as_array();
  chat.tools = boost::json::parse(tools);
  if (thinks) chat.template_kwargs["enable_thinking"] = true;
  return chat;
}

PromptFingerprint print_with(const ChatPrompt& chat, std::size_t num_alike, std::size_t num_tokens) {
  PromptFingerprint print = fingerprint_of(chat);
  std::vector<TokenId> tokens(num_tokens);
  std::iota(tokens.begin(), tokens.end(), 7);
  for (std::size_t i = num_alike; i < num_tokens; ++i) tokens[i] += 100'000;
  add_tokens(print, tokens);
  return print;
}

constexpr const char* kTurn = R"([{"role":"system","content":"be brief"},{"role":"user","content":"a"}])";
constexpr const char* kNextTurn =
    R"([{"role":"system","content":"be brief"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"user","content":"c"}])";

TEST(PromptFingerprint, ContinuedConversationIsUnchanged) {
  const PromptFingerprint first = print_with(chat_of(kTurn), 100, 100), next = print_with(chat_of(kNextTurn), 100, 150);
  const PromptComparison compared = compare(first, next);
  EXPECT_EQ(compared.change, PromptChange::none);
  EXPECT_EQ(compared.num_reusable_tokens, 96U) << "only whole blocks are reusable";
  EXPECT_EQ(compared.num_missed_tokens, 4U);
  EXPECT_EQ(compare(next, first).change, PromptChange::none) << "an earlier turn of the conversation also matches";
}

TEST(PromptFingerprint, NamesTheFirstPartThatDiffers) {
  const PromptFingerprint base = print_with(chat_of(kNextTurn), 200, 200);
  const char* other_system = R"([{"role":"system","content":"be long"},{"role":"user","content":"a"}])";
  const char* other_turn = R"([{"role":"system","content":"be brief"},{"role":"user","content":"A"}])";
  const char* tools = R"([{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(compare(base, print_with(chat_of(other_system), 0, 200)).change, PromptChange::system);
  EXPECT_EQ(compare(base, print_with(chat_of(other_turn), 40, 200)).change, PromptChange::turns);
  EXPECT_EQ(compare(base, print_with(chat_of(other_turn), 40, 200)).num_missed_tokens, 168U);
  EXPECT_EQ(compare(base, print_with(chat_of(other_system, tools), 0, 200)).change, PromptChange::tools);
  EXPECT_EQ(compare(base, print_with(chat_of(kNextTurn, "null", true), 0, 200)).change, PromptChange::settings);
}

TEST(PromptFingerprint, BlockHashCoversAllTokensBeforeIt) {
  PromptFingerprint one, other;
  std::vector<TokenId> tokens(64, 5);
  add_tokens(one, tokens);
  tokens[3] = 6;
  add_tokens(other, tokens);
  EXPECT_EQ(compare(one, other).num_reusable_tokens, 0U);
}

TEST(PromptFingerprintCache, StaysWithinItsBytesAndEvictsTheLeastRecentlyUsed) {
  PromptFingerprintCache prints(20'000);
  for (int i = 0; i < 100; ++i) {
    prints.keep("us", "msg_" + std::to_string(i), print_with(chat_of(kTurn), 1000, 1000));
    EXPECT_LE(prints.num_bytes(), 20'000U);
    if (i > 2) EXPECT_NE(prints.find("us", "msg_0"), nullptr) << "it is looked up in every round";
  }
  EXPECT_NE(prints.find("us", "msg_99"), nullptr);
  EXPECT_EQ(prints.find("us", "msg_50"), nullptr);
  EXPECT_EQ(prints.find("them", "msg_99"), nullptr) << "another tenant's fingerprint is not found";
}

TEST(PromptFingerprintCache, DoesNotStoreAFingerprintOverTheBudget) {
  PromptFingerprintCache prints(1000);
  prints.keep("us", "msg_1", print_with(chat_of(kTurn), 100'000, 100'000));
  EXPECT_EQ(prints.find("us", "msg_1"), nullptr);
  EXPECT_EQ(prints.num_bytes(), 0U);
}

TEST(FingerprintHashes, CoverAllMessagesAndTokensBefore) {
  PromptFingerprint one, other;
  std::vector<TokenId> tokens(std::size_t{100} * PromptFingerprint::kBlock + 3, 5);
  add_tokens(one, tokens);
  tokens[0] = 6;
  add_tokens(other, tokens);
  ASSERT_EQ(one.blocks.size(), 100U) << "the last three tokens fill no block";
  EXPECT_EQ(one.num_tokens, tokens.size());
  for (std::size_t i = 0; i < one.blocks.size(); ++i) EXPECT_NE(one.blocks[i], other.blocks[i]) << i;
  const auto chat_of_systems = [](const std::string& first) {
    ChatPrompt chat;
    chat.messages.push_back(json::object{{"role", "system"}, {"content", first}});
    for (int i = 0; i < 99; ++i) chat.messages.push_back(json::object{{"role", "developer"}, {"content", "b"}});
    chat.messages.push_back(json::object{{"role", "user"}, {"content", "c"}});
    return fingerprint_of(chat);
  };
  EXPECT_EQ(chat_of_systems("a").system, chat_of_systems("a").system);
  EXPECT_NE(chat_of_systems("a").system, chat_of_systems("b").system);
  EXPECT_EQ(chat_of_systems("a").turns.size(), 1U);
  ChatPrompt without_roles;
  without_roles.messages = {json::object{{"content", "a"}}, json::object{{"role", 3}}, 3};
  EXPECT_EQ(fingerprint_of(without_roles).turns.size(), 3U);
}

TEST(FingerprintHashes, CountWhatIsReusableAndMissed) {
  const auto print_of = [](std::size_t num_tokens, std::size_t first_other) {
    PromptFingerprint print;
    std::vector<TokenId> tokens(num_tokens);
    std::iota(tokens.begin(), tokens.end(), 0);
    for (std::size_t i = first_other; i < num_tokens; ++i) tokens[i] += 1000;
    add_tokens(print, tokens);
    return print;
  };
  constexpr std::size_t kBlock = PromptFingerprint::kBlock;
  const PromptFingerprint base = print_of(4 * kBlock, 4 * kBlock);
  const auto compared = [&](std::size_t num_tokens, std::size_t first_other) {
    const PromptComparison result = compare(base, print_of(num_tokens, first_other));
    return std::pair(result.num_reusable_tokens, result.num_missed_tokens);
  };
  EXPECT_EQ(print_of(4 * kBlock - 1, 4 * kBlock).blocks.size(), 3U) << "the last block is not full";
  EXPECT_EQ(compared(4 * kBlock - 1, 4 * kBlock), std::pair(std::uint64_t{3 * kBlock}, std::uint64_t{kBlock - 1}));
  EXPECT_EQ(compared(4 * kBlock, 4 * kBlock), std::pair(std::uint64_t{4 * kBlock}, std::uint64_t{0}));
  EXPECT_EQ(compared(4 * kBlock, 2 * kBlock), std::pair(std::uint64_t{2 * kBlock}, std::uint64_t{2 * kBlock}));
  EXPECT_EQ(compared(4 * kBlock, 2 * kBlock - 1), std::pair(std::uint64_t{kBlock}, std::uint64_t{3 * kBlock}));
  EXPECT_EQ(compared(3 * kBlock + 1, 4 * kBlock), std::pair(std::uint64_t{3 * kBlock}, std::uint64_t{1}));
  EXPECT_EQ(compared(9 * kBlock, 4 * kBlock), std::pair(std::uint64_t{4 * kBlock}, std::uint64_t{0}));
}

}  // namespace
}  // namespace quire
