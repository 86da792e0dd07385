// Tests the errors of bodies of /v1/embeddings, and the requests that they become.
#include "server/api/pooling/pooling_request.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "server/api/pooling/embeddings.h"
#include "server/api/pooling/pooling_bodies.h"

namespace quire {
namespace {

PoolingInfo shortened_vectors() {
  PoolingInfo info;
  info.is_matryoshka = true;
  info.sizes = {2, 4};
  return info;
}

PoolingInfo no_vectors(const std::string& why) {
  PoolingInfo info;
  info.unsupported = why;
  return info;
}

TEST_F(PoolingBodies, EmbeddingErrorsNameTheProblemAndTheFix) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "input: is missing; send a text or a list of texts"},
      {R"({"input": 3})", "input: contains integer 3; send texts, or token ids from 0 to 256"},
      {R"({"input": ["a", 3]})", "input: contains integer 3; send texts, or token ids from 0 to 256"},
      {R"({"input": [1, 257]})", "input: contains array; send texts, or token ids from 0 to 256"},
      {R"({"input": [1, -1]})", "input: contains array; send texts, or token ids from 0 to 256"},
      {R"({"input": [0, 256]})", "accepted"},
      {R"({"input": [[1], "a"]})", "accepted"},
      {R"({"input": )" + many_texts(2048) + "}", "accepted"},
      {R"({"input": )" + many_texts(2049) + "}", "input: contains 2049 texts; send at most 2048"},
      {R"({"input": ""})", "input: has no tokens; send some text"},
      {R"({"input": "a", "truncate_prompt_tokens": 0})", "truncate_prompt_tokens: is 0; use -1, or the number of tokens to keep"},
      {R"({"input": "a", "truncate_prompt_tokens": -2})", "truncate_prompt_tokens: is -2; use -1 to 2147483647"},
      {R"({"input": "a", "truncation_side": "top"})", "truncation_side: is 'top'; use left or right"},
      {R"({"input": "a", "priority": 2147483648})", "priority: is 2147483648; use -2147483647 to 2147483647"},
      {R"({"input": "a", "input_type": "q"})",
       "input_type: is not supported by this server, except as null; put the instruction into the text"},
      {R"({"input": "a", "late_chunking": true})",
       "late_chunking: is not supported by this server, except as false; send each chunk as a separate text"},
      {R"({"input": "a", "chat_template": "x"})",
       "chat_template: is not supported by this server, except as null; start the server with --chat-template"},
      {R"({"input": "a", "encoding_format": "xml"})", "encoding_format: is 'xml'; use float or base64"},
      {R"({"input": "a", "embed_dtype": "int8"})", R"(embed_dtype: is not supported by this server, except as "float32"; leave it out)"},
      {R"({"input": "a", "endianness": "big"})", "endianness: is 'big'; use little"},
      {R"({"input": "a", "endianness": "little"})", "accepted"},
      {R"({"input": "a", "dimensions": 5})", "dimensions: is 5; use 1 to 4"},
      {R"({"input": "a", "dimensions": 4})", "accepted"},
      {R"({"input": "a", "dimensions": 3})",
       "dimensions: is 3, but the model is not known to support vectors shorter than 4; leave it out, or start the server with "
       "--matryoshka if the model is trained for shorter vectors"},
  };
  for (const auto& [body, wanted] : cases) EXPECT_EQ(error(prepare_embeddings, body), wanted) << body.substr(0, 100);
  engine_.set_pooling(shortened_vectors());
  load();
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a", "dimensions": 2})"), "accepted");
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a", "dimensions": 3})"), "dimensions: is 3; use one of 2, 4");
  engine_.set_pooling(no_vectors("it is too small"));
  load();
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a"})"),
            "model: does not produce vectors: it is too small; start the server with --pooling");
  options_.pooling = PoolingKind::mean;
  EXPECT_EQ(prepared(prepare_embeddings, R"({"input": "a"})")->requests[0].sampling.pooling.kind, PoolingKind::mean);
  engine_.set_pooling(cross_encoder("y", "{query}"));
  load();
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a"})"),
            "model: is a cross-encoder, which does not produce embeddings; use /v1/rerank or /v1/score");
  options_.strict_fields = true;
  EXPECT_EQ(error(prepare_embeddings, R"({"input": "a", "user": "u"})"),
            "user: would be ignored, which --strict-fields forbids; leave it out");
}

TEST_F(PoolingBodies, RequestsHaveTheFieldsOfTheBody) {
  const auto ready = prepared(prepare_embeddings, R"({"input": ["ab", [7]], "cache_salt": "s", "priority": -3, "user": "u"})");
  ASSERT_TRUE(ready) << ready.error().to_string();
  ASSERT_EQ(ready->requests.size(), 2U);
  EXPECT_EQ(ready->num_prompt_tokens, 3U);
  EXPECT_EQ(ready->ignored, std::vector<std::string>{"user"});
  EXPECT_STREQ(ready->kind, "embd");
  EXPECT_FALSE(ready->writes_files);
  const EngineRequest& request = ready->requests[0];
  EXPECT_TRUE(request.pooling);
  EXPECT_EQ(request.sampling.max_tokens, 1U);
  EXPECT_EQ(request.sampling.pooling.kind, PoolingKind::last);
  EXPECT_EQ(request.cache_salt, "s");
  EXPECT_EQ(request.priority, -3);
  EXPECT_EQ(request.tags.tenant, "t");
  EXPECT_EQ(ready->requests[1].prompt, std::vector<TokenId>{7});
}

TEST_F(PoolingBodies, TextsAreCutToTheContext) {
  engine_.set_max_model_len(5);
  load();
  const auto cut = [&](const std::string& fields) { return prompts(prepare_embeddings, R"({"input": "abcdef")" + fields + "}").at(0); };
  EXPECT_TRUE(cut("").starts_with("input: This model's maximum context length is 5 tokens.")) << cut("");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": -1)"), "abcd");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": 9)"), "abcd");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": 4)"), "abcd");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": 2)"), "ab");
  EXPECT_EQ(cut(R"(, "truncate_prompt_tokens": 2, "truncation_side": "left")"), "ef");
  EXPECT_EQ(prompts(prepare_embeddings, R"({"input": "abcd"})").at(0), "abcd");
  EXPECT_TRUE(prompts(prepare_embeddings, R"({"input": "abcde"})").at(0).starts_with("input: This model's maximum"));
  EXPECT_TRUE(prompts(prepare_embeddings, R"({"input": [1,2,3,4,5]})").at(0).starts_with("input: This model's maximum"));
}

}  // namespace
}  // namespace quire
