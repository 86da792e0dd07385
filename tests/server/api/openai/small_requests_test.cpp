// Tests the request bodies of routes other than completions.
#include "server/api/openai/small_requests.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
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

TEST(SmallBodies, NameTheInvalidFieldAndTheFix) {
  const auto fork = [](std::string_view body) {
    const auto call = parse_fork_call(body, 4);
    return call ? "accepted" : call.error().to_string();
  };
  EXPECT_EQ(fork(""), "accepted") << "an empty body has the defaults";
  EXPECT_EQ(fork(R"({"choice": -1})"), "choice: is -1; use 0 to 2147483647");
  EXPECT_EQ(fork(R"({"n": 0})"), "n: is 0; use 1 to 4");
  EXPECT_EQ(fork(R"({"n": 4})"), "accepted");
  EXPECT_EQ(fork(R"({"n": 5})"), "n: is 5; use 1 to 4");
  EXPECT_EQ(fork(R"({"max_tokens": 0})"), "max_tokens: is 0; use 1 to 2147483647");
  EXPECT_EQ(fork(R"({"sead": 1})"), "sead: is not a field of this request; did you mean 'seed'?");
  const auto call = parse_fork_call(R"({"choice": 1, "n": 2, "seed": -1, "max_tokens": 7, "stream": true})", 4);
  ASSERT_TRUE(call);
  EXPECT_EQ(call->choice, 1U);
  EXPECT_EQ(call->fork.n, 2U);
  EXPECT_EQ(call->fork.seed, ~std::uint64_t{0});
  EXPECT_EQ(call->fork.max_tokens, 7U);
  EXPECT_TRUE(call->stream);
  const auto plain = parse_fork_call("{}", 4);
  EXPECT_EQ(plain->choice, 0U);
  EXPECT_EQ(plain->fork.n, 1U);
  EXPECT_FALSE(plain->fork.seed);
  EXPECT_FALSE(plain->fork.max_tokens);
  EXPECT_FALSE(plain->stream);
  const auto input = [](std::string_view body) {
    const auto parsed = parse_input_call(body, 10);
    return parsed ? "accepted" : parsed.error().to_string();
  };
  EXPECT_EQ(input(""), R"(prompt: is missing; send text or token ids, or "end": true)");
  EXPECT_EQ(input(R"({"end": true})"), "accepted");
  EXPECT_EQ(input(R"({"end": false})"), R"(prompt: is missing; send text or token ids, or "end": true)");
  EXPECT_EQ(input(R"({"prompt": 3})"), "prompt: must be an array of token ids, not integer 3");
  EXPECT_EQ(input(R"({"prompt": [10]})"), "prompt: contains integer 10; use integers from 0 to 9");
  const auto given = parse_input_call(R"({"prompt": [9], "add_special_tokens": true, "end": true})", 10);
  EXPECT_EQ(std::get<std::vector<TokenId>>(*given->prompt), std::vector<TokenId>{9});
  EXPECT_TRUE(given->add_special_tokens);
  EXPECT_TRUE(given->is_last);
  EXPECT_FALSE(parse_input_call(R"({"prompt": "a"})", 10)->add_special_tokens);
  EXPECT_FALSE(parse_input_call(R"({"prompt": "a"})", 10)->is_last);
  EXPECT_EQ(parse_tokenize_request("{}").error().to_string(), "prompt: is missing; send a string, or messages");
  EXPECT_EQ(parse_tokenize_request(R"({"messages": [{"role": "user", "content": "a"}], "chat_template": "x"})").error().to_string(),
            "chat_template: is not supported by this server, except as null; start the server with --chat-template");
  EXPECT_EQ(parse_detokenize_request("{}", 10).error().to_string(), "tokens: is missing; send an array of token ids");
  EXPECT_TRUE(parse_tokenize_request(R"({"prompt": "a", "return_token_strs": true})")->return_token_strs);
  EXPECT_FALSE(parse_tokenize_request(R"({"prompt": "a"})")->return_token_strs);
  EXPECT_FALSE(parse_tokenize_request(R"({"prompt": "a", "add_special_tokens": false})")->add_special_tokens);
  EXPECT_TRUE(
      parse_tokenize_request(R"({"messages": [{"role": "user", "content": "a"}], "add_special_tokens": true})")->add_special_tokens);
  EXPECT_EQ(parse_tokenize_request(R"({"prompt": "a", "model": "m"})")->model, "m");
}

}  // namespace
}  // namespace quire
