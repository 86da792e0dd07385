// Tests the answers of /tokenize, /detokenize and /tokenizer_info.
#include <gtest/gtest.h>

#include <boost/json/value.hpp>

#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

using TokenizeRoutes = RunningServer;

TEST_F(TokenizeRoutes, TokenizersAnswerWithTheirFields) {
  engine.set_max_model_len(4);
  start();
  EXPECT_EQ(post("/tokenize", R"({"prompt":"ab","return_token_strs":true})").body,
            R"({"count":2,"max_model_len":4,"tokens":[97,98],"token_strs":["a","b"]})");
  EXPECT_EQ(post("/tokenize", R"({"prompt":"ab"})").body, R"({"count":2,"max_model_len":4,"tokens":[97,98],"token_strs":null})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97,98,256,99]})").body, R"({"prompt":"ab<|end|>c","content":"ab<|end|>c"})");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97,98,99,99,99]})").error_message(),
            "tokens: has 5 tokens, more than the maximum of 4; send them in parts");
  EXPECT_EQ(post("/detokenize", R"({"tokens":[97],"model":"x"})").error_param(), "model");
  EXPECT_EQ(post("/tokenize", R"({"prompt":"a","model":"x"})").error_param(), "model");
  const json::value info = HttpClient(port).get("/tokenizer_info").json();
  EXPECT_EQ(info.at("tokenizer_class"), "quire");
  EXPECT_EQ(info.at("vocab_size"), 257);
  EXPECT_EQ(info.at("model_max_length"), 4);
  EXPECT_TRUE(info.at("bos_token").is_null());
  EXPECT_EQ(info.at("eos_token"), "<|end|>");
  EXPECT_TRUE(info.at("chat_template").as_string().starts_with("{% for m in messages %}"));
}

TEST_F(TokenizeRoutes, AnswersLlamaCppsBodyInItsForm) {
  start();
  EXPECT_EQ(post("/tokenize", R"({"content":"a<|end|>"})").body, R"({"tokens":[97,256]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"<|","parse_special":false,"add_special":true})").body, R"({"tokens":[60,124]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"a\u00e1","with_pieces":true})").body,
            R"({"tokens":[{"id":97,"piece":"a"},{"id":195,"piece":[195]},{"id":161,"piece":[161]}]})");
  EXPECT_EQ(post("/tokenize", R"({"content":"a","return_token_strs":true})").error_param(), "return_token_strs");
}

}  // namespace
}  // namespace quire
