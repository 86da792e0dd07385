// Tests the request bodies of routes other than completions.
#include "server/api/openai/small_requests.h"

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

namespace quire {
namespace {

TEST(SmallRequests, TokenizeAcceptsAPromptOrMessages) {
  EXPECT_EQ(std::get<std::string>(parse_tokenize_request(R"({"prompt": "a"})")->input), "a");
  EXPECT_TRUE(parse_tokenize_request(R"({"prompt": "a"})")->add_special_tokens);
  const auto messages = parse_tokenize_request(R"({"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": false})");
  ASSERT_TRUE(messages.has_value()) << messages.error().to_string();
  EXPECT_FALSE(std::get<ChatPrompt>(messages->input).add_generation_prompt);
  EXPECT_FALSE(parse_tokenize_request("{}").has_value());
  EXPECT_EQ(parse_detokenize_request(R"({"tokens": [1, 2]})", 10)->tokens, (std::vector<TokenId>{1, 2}));
  EXPECT_FALSE(parse_detokenize_request(R"({"tokens": [10]})", 10).has_value());
  EXPECT_FALSE(parse_detokenize_request("{}", 10).has_value());
}

}  // namespace
}  // namespace quire
