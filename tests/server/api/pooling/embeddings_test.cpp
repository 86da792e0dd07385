// Tests embeddings, scores and reranking over real sockets.
#include "server/api/pooling/embeddings.h"

#include <cmath>
#include <cstring>
#include <string>

#include "base/random.h"
#include "server/api/pooling/vector_form.h"
#include "server/running_server.h"

namespace quire {
namespace {

using EmbeddingsHttp = RunningServer;
using RerankHttp = RunningServer;

// Returns three bytes of the prompt, and 1.
std::vector<float> byte_vector(const EngineRequest& request) {
  std::vector<float> vector;
  for (std::size_t i = 0; i < 3; ++i)
    vector.push_back(i < request.prompt.size() ? static_cast<float>(request.prompt[request.prompt.size() - 1 - i]) : 0.0F);
  vector.push_back(1.0F);
  return vector;
}

std::vector<float> floats_of(const boost::json::value& item) {
  std::vector<float> values;
  for (const auto& value : item.at("embedding").as_array()) values.push_back(value.to_number<float>());
  return values;
}

PooledVector expected_vector(std::string_view text, std::uint32_t size = 0, bool normalize = true) {
  EngineRequest request;
  request.prompt = bytes_to_tokens(text);
  return finished_vector(byte_vector(request), size, normalize);
}

TEST_F(EmbeddingsHttp, AreNormalizedAndInTheOrderOfTheirTexts) {
  engine.pool_with(byte_vector);
  start();
  const auto response = post("/v1/embeddings", R"({"model": "bytes", "input": ["abc", "x"], "user": "me"})");
  ASSERT_EQ(response.status, 200U) << response.body;
  const auto answer = response.json();
  EXPECT_EQ(answer.at("object"), "list");
  EXPECT_EQ(answer.at("model"), "bytes");
  EXPECT_TRUE(answer.at("id").as_string().starts_with("embd-"));
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 4);
  EXPECT_EQ(answer.at("usage").at("total_tokens"), 4);
  const auto& data = answer.at("data").as_array();
  ASSERT_EQ(data.size(), 2U);
  EXPECT_EQ(data[0].at("object"), "embedding");
  EXPECT_EQ(data[1].at("index"), 1);
  EXPECT_EQ(floats_of(data[0]), expected_vector("abc")) << "numbers must read back as the same floats";
  EXPECT_EQ(floats_of(data[1]), expected_vector("x"));
  double squares = 0.0;
  for (const float value : floats_of(data[0])) squares += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_NEAR(squares, 1.0, 1e-6);
}

TEST_F(EmbeddingsHttp, AcceptTextsAndTokensAloneAndInLists) {
  engine.pool_with(byte_vector);
  start();
  for (const char* input : {R"("ab")", "[97, 98]", R"(["ab"])", "[[97, 98]]", R"([[97, 98], "ab"])"}) {
    const auto response = post("/v1/embeddings", std::string(R"({"input": )") + input + "}");
    ASSERT_EQ(response.status, 200U) << response.body;
    EXPECT_EQ(floats_of(response.json().at("data").as_array()[0]), expected_vector("ab")) << input;
  }
}

TEST_F(EmbeddingsHttp, Base64HasTheSameNumbers) {
  engine.pool_with([](const EngineRequest&) { return std::vector<float>{3.0F, 0.0F, 0.0F, 4.0F}; });
  start();
  const auto answer = post("/v1/embeddings", R"({"input": "a", "encoding_format": "base64"})").json();
  // The bytes are 0.6, 0, 0 and 0.8 as little-endian floats.
  EXPECT_EQ(answer.at("data").as_array()[0].at("embedding"), "mpkZPwAAAAAAAAAAzcxMPw==");
}

TEST_F(EmbeddingsHttp, DimensionsRequireAMatryoshkaModel) {
  engine.pool_with(byte_vector);
  start();
  const std::string shorter = R"({"input": "abc", "dimensions": 2})";
  const auto refused = post("/v1/embeddings", shorter);
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.error_param(), "dimensions");
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "abc", "dimensions": 4})").status, 200U) << "4 is the full width";
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "abc", "dimensions": 5})").status, 400U);
  stop_and_flush();
  start({.is_matryoshka = true});
  const auto answer = post("/v1/embeddings", shorter).json();
  EXPECT_EQ(floats_of(answer.at("data").as_array()[0]), expected_vector("abc", 2)) << "the vector is cut, then normalized";
  stop_and_flush();
  PoolingInfo info;
  info.is_matryoshka = true;
  info.sizes = {1, 2};
  engine.set_pooling(info);
  start();
  EXPECT_EQ(post("/v1/embeddings", shorter).status, 200U);
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "abc", "dimensions": 3})").error_param(), "dimensions");
}

TEST_F(EmbeddingsHttp, UseThePoolingOfTheModelOrTheServer) {
  engine.pool_with(byte_vector);
  PoolingInfo info;
  info.kind = PoolingKind::mean;
  info.normalize = false;
  engine.set_pooling(info);
  start();
  const auto answer = post("/v1/embeddings", R"({"input": "abc"})").json();
  EXPECT_EQ(floats_of(answer.at("data").as_array()[0]), expected_vector("abc", 0, false)) << "the model does not normalize";
  EXPECT_EQ(floats_of(post("/v1/embeddings", R"({"input": "abc", "normalize": true})").json().at("data").as_array()[0]),
            expected_vector("abc"));
  EXPECT_TRUE(engine.at(0).request.pooling);
  EXPECT_EQ(engine.at(0).request.sampling.pooling.kind, PoolingKind::mean);
  stop_and_flush();
  info.unsupported = "it pools by magic";
  engine.set_pooling(info);
  start();
  EXPECT_NE(post("/v1/embeddings", R"({"input": "abc"})").error_message().find("magic"), std::string::npos);
  stop_and_flush();
  start({.pooling = PoolingKind::first});
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "abc"})").status, 200U);
  EXPECT_EQ(engine.at(engine.num_submitted() - 1).request.sampling.pooling.kind, PoolingKind::first);
}

TEST_F(EmbeddingsHttp, RefuseLongTextsUnlessTruncated) {
  engine.pool_with(byte_vector);
  start();
  const std::string text(600, 'a');
  const auto refused = post("/v1/embeddings", R"({"input": ")" + text + "\"}");
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.error_param(), "input");
  const auto length = [&](const std::string& fields) {
    const auto response = post("/v1/embeddings", R"({"input": "xyz)" + text + "\", " + fields + "}");
    EXPECT_EQ(response.status, 200U) << response.body;
    return engine.at(engine.num_submitted() - 1).request.prompt;
  };
  EXPECT_EQ(length(R"("truncate_prompt_tokens": -1)").size(), 511U);
  EXPECT_EQ(length(R"("truncate_prompt_tokens": 4)"), bytes_to_tokens("xyza"));
  EXPECT_EQ(length(R"("truncate_prompt_tokens": 4, "truncation_side": "left")"), bytes_to_tokens("aaaa"));
}

TEST_F(EmbeddingsHttp, NameTheInvalidField) {
  engine.pool_with(byte_vector);
  start();
  const std::pair<const char*, const char*> cases[] = {{R"({})", "input"},
                                                       {R"({"input": 3})", "input"},
                                                       {R"({"input": ""})", "input"},
                                                       {R"({"input": []})", "input"},
                                                       {R"({"input": [[]]})", "input"},
                                                       {R"({"input": ["a", 3]})", "input"},
                                                       {R"({"input": [1, 999]})", "input"},
                                                       {R"({"input": "a", "encoding_format": "xml"})", "encoding_format"},
                                                       {R"({"input": "a", "dimensions": 0})", "dimensions"},
                                                       {R"({"input": "a", "embed_dtype": "int8"})", "embed_dtype"},
                                                       {R"({"input": "a", "truncate_prompt_tokens": 0})", "truncate_prompt_tokens"},
                                                       {R"({"input": "a", "input_type": "query"})", "input_type"},
                                                       {R"({"input": "a", "dimensoins": 4})", "dimensoins"},
                                                       {R"({"input": "a", "model": "other"})", "model"}};
  for (const auto& [body, field] : cases) {
    const auto refused = post("/v1/embeddings", body);
    EXPECT_TRUE(refused.status == 400U || refused.status == 404U) << body << refused.body;
    EXPECT_EQ(refused.error_param(), field) << body;
  }
  std::string many = R"({"input": ["a")";
  for (std::size_t i = 0; i < kMaxPooledTexts; ++i) many += R"(,"a")";
  EXPECT_EQ(post("/v1/embeddings", many + "]}").error_param(), "input");
  EXPECT_EQ(engine.num_submitted(), 0U);
}

// A call with many texts does not fill the engine's queue. The job pool writes its answer.
TEST_F(EmbeddingsHttp, ComputeAFewTextsAtATime) {
  start();
  std::string body = R"({"input": [)";
  for (int i = 0; i < 1100; ++i) body += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\"";
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/embeddings", body + "]}"));
  std::size_t most = 0;
  for (std::size_t i = 0; i < 1100; ++i) {
    ASSERT_TRUE(engine.wait_submitted(i + 1));
    most = std::max(most, engine.num_submitted() - i);
    engine.end_pooled(RequestId{i}, byte_vector(engine.at(i).request));
  }
  EXPECT_LE(most, PoolingCall::kMaxAtOnce);
  const auto response = client.receive();
  ASSERT_EQ(response.status, 200U);
  const auto data = response.json().at("data").as_array();
  ASSERT_EQ(data.size(), 1100U);
  for (const std::size_t i : {std::size_t{0}, std::size_t{31}, std::size_t{32}, std::size_t{1099}})
    EXPECT_EQ(floats_of(data[i]), expected_vector(std::to_string(i)));
}

TEST_F(EmbeddingsHttp, RetryWhenTheEngineIsFullExceptForTheFirstText) {
  engine.refuse_with(Error{ErrorCode::overloaded, "", "full", ""}, 2);
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/embeddings", R"({"input": ["a", "b", "c"]})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "d"})").status, 429U);
  engine.refuse_with(std::nullopt);
  for (std::size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(engine.wait_submitted(i + 1));
    engine.end_pooled(RequestId{i}, byte_vector(engine.at(i).request));
  }
  EXPECT_EQ(client.receive().json().at("data").as_array().size(), 3U);
}

TEST_F(EmbeddingsHttp, AbortTheWholeCallWhenOneTextFails) {
  start();
  HttpClient client(port);
  client.send(HttpClient::post_text("/v1/embeddings", R"({"input": ["a", "b"]})"));
  ASSERT_TRUE(engine.wait_submitted(2));
  engine.end(RequestId{0}, FinishReason::error, "not finite");
  const auto response = client.receive();
  EXPECT_EQ(response.status, 500U);
  EXPECT_NE(response.error_message().find("not finite"), std::string::npos);
  EXPECT_TRUE(engine.wait_finished(1));
  EXPECT_EQ(post("/v1/models", "").status, 405U) << "the server still answers";
}

TEST_F(EmbeddingsHttp, AreAbortedWhenTheClientDisconnects) {
  start();
  {
    HttpClient client(port);
    client.send(HttpClient::post_text("/v1/embeddings", R"({"input": ["a", "b"]})"));
    ASSERT_TRUE(engine.wait_submitted(2));
  }
  EXPECT_TRUE(engine.wait_finished(0));
  EXPECT_TRUE(engine.wait_finished(1));
}

TEST_F(RerankHttp, OrdersDocumentsByTheCosineOfTheirVectors) {
  engine.pool_with([](const EngineRequest& request) {
    const std::string text = tokens_to_bytes(request.prompt);
    if (text == "q" || text == "same") return std::vector<float>{1.0F, 0.0F};
    if (text == "near") return std::vector<float>{3.0F, 4.0F};
    return std::vector<float>{0.0F, -2.0F};
  });
  start();
  for (const char* path : {"/rerank", "/v1/rerank", "/v2/rerank"}) {
    const auto response = post(path, R"({"model": "bytes", "query": "q", "documents": ["far", "near", {"text": "same"}], "top_n": 2})");
    ASSERT_EQ(response.status, 200U) << response.body;
    const auto answer = response.json();
    EXPECT_TRUE(answer.at("id").as_string().starts_with("rerank-"));
    EXPECT_EQ(answer.at("usage").at("total_tokens"), 12);
    const auto& results = answer.at("results").as_array();
    ASSERT_EQ(results.size(), 2U);
    EXPECT_EQ(results[0].at("index"), 2);
    EXPECT_EQ(results[0].at("document").at("text"), "same");
    EXPECT_DOUBLE_EQ(results[0].at("relevance_score").to_number<double>(), 1.0);
    EXPECT_EQ(results[1].at("index"), 1);
    EXPECT_NEAR(results[1].at("relevance_score").to_number<double>(), 0.6, 1e-12);
  }
  const auto bare = post("/rerank", R"({"query": "q", "documents": ["far", "near"], "return_documents": false})").json();
  EXPECT_EQ(bare.at("results").as_array().size(), 2U);
  EXPECT_FALSE(bare.at("results").as_array()[0].as_object().contains("document"));
}

TEST_F(RerankHttp, ScoresOneToManyOrPairwise) {
  engine.pool_with([](const EngineRequest& request) {
    const auto first = static_cast<float>(request.prompt[0]);
    return std::vector<float>{first, 1.0F};
  });
  start();
  const auto scores = [&](const std::string& body) {
    const auto response = post("/v1/score", body);
    EXPECT_EQ(response.status, 200U) << response.body;
    std::vector<double> values;
    for (const auto& item : response.json().at("data").as_array()) values.push_back(item.at("score").to_number<double>());
    return values;
  };
  const auto one = scores(R"({"text_1": "a", "text_2": ["a", "!"]})");
  ASSERT_EQ(one.size(), 2U);
  EXPECT_DOUBLE_EQ(one[0], 1.0);
  EXPECT_LT(one[1], 1.0);
  EXPECT_EQ(scores(R"({"queries": ["a", "!"], "documents": ["!", "a"]})"), (std::vector<double>{one[1], one[1]}));
  EXPECT_EQ(scores(R"({"queries": "a", "items": "!"})").size(), 1U);
  const std::pair<const char*, const char*> wrong[] = {{R"({"text_1": ["a", "b"], "text_2": ["a"]})", "text_1"},
                                                       {R"({"text_1": "a"})", "text_2"},
                                                       {R"({"text_1": "a", "text_2": []})", "text_2"},
                                                       {R"({"text_1": "a", "text_2": [{"image": 1}]})", "text_2"},
                                                       {R"({"queries": "a", "documents": ["", "b"]})", "documents"}};
  for (const auto& [body, field] : wrong) EXPECT_EQ(post("/score", body).error_param(), field) << body;
}

// Qwen3-Reranker works in this way: the score is the probability of its answer after its template.
TEST_F(RerankHttp, CrossEncoderScoresWithTheProbabilityOfYes) {
  PoolingInfo info;
  info.no_token = "n";
  info.yes_token = "y";
  info.pair_template = "{Q} {query} D {document}?";
  engine.set_pooling(info);
  engine.pool_with([](const EngineRequest& request) {
    const bool is_good = tokens_to_bytes(request.prompt).find("good") != std::string::npos;
    return is_good ? std::vector<float>{1.0F, 3.0F} : std::vector<float>{0.0F, 0.0F};
  });
  start();
  const auto response = post("/rerank", R"({"query": "{document}", "documents": ["bad", "good"]})");
  ASSERT_EQ(response.status, 200U) << response.body;
  const auto results = response.json().at("results").as_array();
  EXPECT_EQ(results[0].at("index"), 1);
  EXPECT_NEAR(results[0].at("relevance_score").to_number<double>(), 1.0 / (1.0 + std::exp(-2.0)), 1e-12);
  EXPECT_EQ(results[1].at("relevance_score"), 0.5);
  EXPECT_EQ(tokens_to_bytes(engine.at(0).request.prompt), "{Q} {document} D bad?") << "inserted text must not be expanded again";
  EXPECT_EQ(engine.at(0).request.sampling.pooling.logits_of, (std::vector<TokenId>{'n', 'y'}));
  EXPECT_EQ(post("/v1/embeddings", R"({"input": "a"})").error_param(), "model") << "a cross-encoder computes no embeddings";
}

TEST_F(RerankHttp, AnswersOrRefusesCorruptedBodies) {
  engine.pool_with(byte_vector);
  start();
  const std::pair<const char*, std::string> whole[] = {
      {"/v1/embeddings", R"({"input": ["abc", [97, 98]], "dimensions": 4, "encoding_format": "base64", "truncate_prompt_tokens": 3})"},
      {"/v1/score", R"({"text_1": "abc", "text_2": ["a", {"text": "b"}], "truncation_side": "left"})"},
      {"/rerank", R"({"query": "abc", "documents": ["a", {"text": "b"}], "top_n": 1, "return_documents": true})"}};
  Random random(5);
  HttpClient client(port);
  for (int round = 0; round < 600; ++round) {
    auto [path, body] = whole[round % 3];
    for (std::uint64_t i = random.below(3); i > 0; --i) body[random.below(body.size())] = "{}[],:\"0-9e.x\\ \xff"[random.below(16)];
    if (random.chance(0.2)) body.erase(random.below(body.size()), random.below(8));
    const auto response = client.post(path, body);
    ASSERT_TRUE(response.status == 200U || response.status == 400U || response.status == 404U) << body << response.body;
    ASSERT_NO_THROW(static_cast<void>(response.json())) << response.body;
  }
}

TEST_F(EmbeddingsHttp, AbortOnlyTheRequestsThatStillRun) {
  start();
  {
    HttpClient client(port);
    client.send_post("/v1/embeddings", R"({"input":["a","b"]})");
    ASSERT_TRUE(engine.wait_submitted(2));
    engine.end_pooled(RequestId{0}, {1.0F, 0.0F, 0.0F, 0.0F});
    EXPECT_EQ(HttpClient(port).get("/health").status, 200U) << "the server has taken the first vector";
  }
  EXPECT_TRUE(engine.wait_finished(1));
  EXPECT_EQ(engine.at(1).finished, FinishReason::abort);
  EXPECT_EQ(engine.at(0).finished, std::nullopt) << "it has ended by itself";
}

}  // namespace
}  // namespace quire
