// Tests vectors of all tokens of a text or a conversation, over real sockets and without a server.
#include "server/api/pooling/token_vectors.h"

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "server/api/pooling/pooling_bodies.h"
#include "server/api/pooling/vector_form.h"
#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

using PoolingHttp = RunningServer;

constexpr std::uint32_t kWidth = 4;

// Each token's row has its byte, its position and two more numbers.
std::vector<float> rows_of(const EngineRequest& request) {
  const auto row = [&](std::size_t i) {
    return std::vector<float>{static_cast<float>(request.prompt[i]), static_cast<float>(i), 0.5F, -1.0F};
  };
  if (request.sampling.pooling.kind != PoolingKind::all) return row(request.prompt.size() - 1);
  std::vector<float> rows;
  for (std::size_t i = 0; i < request.prompt.size(); ++i) std::ranges::copy(row(i), std::back_inserter(rows));
  return rows;
}

std::vector<float> rows_of(std::string_view text) {
  EngineRequest request;
  request.prompt = bytes_to_tokens(text);
  request.sampling.pooling.kind = PoolingKind::all;
  return rows_of(request);
}

// Concatenates the rows; each row has the model's width.
std::vector<float> rows_in(const boost::json::value& item) {
  std::vector<float> values;
  for (const auto& row : item.at("data").as_array()) {
    EXPECT_EQ(row.as_array().size(), kWidth);
    for (const auto& value : row.as_array()) values.push_back(value.to_number<float>());
  }
  return values;
}

std::vector<float> normalized(std::vector<float> rows) {
  for (std::size_t begin = 0; begin < rows.size(); begin += kWidth)
    std::ranges::copy(finished_vector(std::span(rows).subspan(begin, kWidth), 0, true), rows.begin() + static_cast<std::ptrdiff_t>(begin));
  return rows;
}

TEST_F(PoolingHttp, GivesTheRowOfEachToken) {
  engine.pool_with([](const EngineRequest& request) { return rows_of(request); });
  start();
  const auto response = post("/pooling", R"({"model": "bytes", "input": ["abc", [120]], "task": "token_embed", "use_activation": false})");
  ASSERT_EQ(response.status, 200U) << response.body;
  const auto answer = response.json();
  EXPECT_TRUE(answer.at("id").as_string().starts_with("pool-"));
  EXPECT_EQ(answer.at("object"), "list");
  EXPECT_EQ(answer.at("model"), "bytes");
  EXPECT_EQ(answer.at("usage").at("prompt_tokens"), 4);
  const auto& data = answer.at("data").as_array();
  ASSERT_EQ(data.size(), 2U);
  EXPECT_EQ(data[0].at("object"), "pooling");
  EXPECT_EQ(data[1].at("index"), 1);
  EXPECT_EQ(rows_in(data[0]), rows_of("abc"));
  EXPECT_EQ(rows_in(data[1]), rows_of("x"));
  EXPECT_TRUE(engine.at(0).request.pooling);
  EXPECT_EQ(engine.at(0).request.sampling.pooling.kind, PoolingKind::all);
}

// vLLM has the same default.
TEST_F(PoolingHttp, NormalizesRowsUnlessDisabled) {
  engine.pool_with([](const EngineRequest& request) { return rows_of(request); });
  PoolingInfo info;
  info.normalize = false;
  engine.set_pooling(info);
  start();
  const auto answer = post("/pooling", R"({"input": "abc", "task": "token_embed"})").json();
  EXPECT_EQ(rows_in(answer.at("data").as_array()[0]), normalized(rows_of("abc")));
}

TEST_F(PoolingHttp, Base64HasTheBytesOfAllRows) {
  engine.pool_with([](const EngineRequest&) { return std::vector<float>{3.0F, 0.0F, 0.0F, 4.0F, 0.0F, 0.0F, 1.0F, 0.0F}; });
  start();
  const auto answer = post("/pooling", R"({"input": "ab", "task": "token_embed", "encoding_format": "base64"})").json();
  // The bytes are 0.6, 0, 0, 0.8, 0, 0, 1 and 0 as little-endian floats.
  EXPECT_EQ(answer.at("data").as_array()[0].at("data"), "mpkZPwAAAAAAAAAAzcxMPwAAAAAAAAAAAACAPwAAAAA=");
}

TEST_F(PoolingHttp, EmbedTaskGivesTheVectorOfEmbeddings) {
  engine.pool_with([](const EngineRequest& request) { return rows_of(request); });
  start();
  const auto vector = post("/v1/embeddings", R"({"input": "abc"})").json().at("data").as_array()[0].at("embedding");
  for (const char* task : {R"("embed")", "null"}) {
    const auto answer = post("/pooling", std::string(R"({"input": "abc", "task": )") + task + "}").json();
    EXPECT_EQ(answer.at("data").as_array()[0].at("data"), vector) << task;
  }
}

// The conversation is only pooled, not answered.
TEST_F(PoolingHttp, AcceptsAConversation) {
  engine.pool_with([](const EngineRequest& request) { return rows_of(request); });
  start();
  const std::string messages = R"("messages": [{"role": "user", "content": "hi"}], "use_activation": false, "task": "token_embed")";
  const auto prompt = [&](const std::string& more) {
    const auto response = post("/pooling", "{" + messages + more + "}");
    EXPECT_EQ(response.status, 200U) << response.body;
    const std::string text = tokens_to_bytes(engine.at(engine.num_submitted() - 1).request.prompt);
    EXPECT_EQ(rows_in(response.json().at("data").as_array()[0]), rows_of(text));
    return text;
  };
  const auto rendered = [&](const char* more) {
    const auto answer = post("/tokenize", R"({"messages": [{"role": "user", "content": "hi"}])" + std::string(more) + "}").json();
    std::vector<TokenId> tokens;
    for (const auto& token : answer.at("tokens").as_array()) tokens.push_back(token.to_number<TokenId>());
    return tokens_to_bytes(tokens);
  };
  EXPECT_EQ(prompt(""), rendered(R"(, "add_generation_prompt": false)"));
  EXPECT_EQ(prompt(R"(, "add_generation_prompt": true)"), rendered(""));
  EXPECT_EQ(prompt(R"(, "continue_final_message": true)"), rendered(R"(, "add_generation_prompt": false, "continue_final_message": true)"));
}

TEST_F(PoolingHttp, RefusesMoreTokensThanFitInMemory) {
  engine.pool_with([](const EngineRequest& request) { return rows_of(request); });
  start({.max_hidden_numbers = 20});
  EXPECT_EQ(post("/pooling", R"({"input": ["abc", "de"], "task": "token_embed"})").status, 200U);
  const auto refused = post("/pooling", R"({"input": ["abc", "de", "f"], "task": "token_embed"})");
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.error_param(), "input");
  EXPECT_NE(refused.error_message().find("send at most 5 tokens"), std::string::npos) << refused.body;
  EXPECT_EQ(post("/pooling", R"({"input": ["abc", "de", "f"]})").status, 200U) << "one vector per text fits";
}

TEST_F(PoolingHttp, GivesRowsOfAnyDecoder) {
  engine.pool_with([](const EngineRequest& request) { return rows_of(request); });
  PoolingInfo info;
  info.unsupported = "it pools by magic";
  engine.set_pooling(info);
  start();
  EXPECT_EQ(post("/pooling", R"({"input": "a", "task": "token_embed"})").status, 200U);
  EXPECT_NE(post("/pooling", R"({"input": "a"})").error_message().find("magic"), std::string::npos);
  stop_and_flush();
  info.unsupported.clear();
  info.pair_template = "{query} {document}";
  engine.set_pooling(info);
  start();
  EXPECT_EQ(post("/pooling", R"({"input": "a", "task": "token_embed"})").status, 200U);
  EXPECT_EQ(post("/pooling", R"({"input": "a"})").error_param(), "task");
}

TEST_F(PoolingHttp, NamesTheInvalidField) {
  engine.pool_with([](const EngineRequest& request) { return rows_of(request); });
  start();
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "input"},
      {R"({"input": ""})", "input"},
      {R"({"input": ["a", 3]})", "input"},
      {R"({"input": "a", "task": "token_classify"})", "task"},
      {R"({"input": "a", "task": 3})", "task"},
      {R"({"input": "a", "dimensions": 2})", "dimensions"},
      {R"({"input": "a", "encoding_format": "bytes"})", "encoding_format"},
      {R"({"input": "a", "use_activation": "yes"})", "use_activation"},
      {R"({"input": "a", "messages": [{"role": "user", "content": "a"}]})", "input"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": [{"role": "user", "content": "a"}], "chat_template": "x"})", "chat_template"},
      {R"({"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": true, "continue_final_message": true})",
       "continue_final_message"},
      {R"({"data": {}})", "input"},
      {R"({"input": "a", "model": "other"})", "model"}};
  for (const auto& [body, field] : cases) {
    const auto refused = post("/pooling", body);
    EXPECT_TRUE(refused.status == 400U || refused.status == 404U) << body << refused.body;
    EXPECT_EQ(refused.error_param(), field) << body << refused.body;
  }
  EXPECT_EQ(engine.num_submitted(), 0U);
}

TEST_F(PoolingHttp, AnswersOrRefusesCorruptedBodies) {
  engine.pool_with([](const EngineRequest& request) { return rows_of(request); });
  start();
  const std::string whole[] = {
      R"({"input": ["abc", [97, 98]], "task": "token_embed", "encoding_format": "base64", "truncate_prompt_tokens": 3})",
      R"({"messages": [{"role": "user", "content": "hi"}], "task": "token_embed", "add_generation_prompt": true})"};
  Random random(6);
  HttpClient client(port);
  for (int round = 0; round < 400; ++round) {
    std::string body = whole[round % 2];
    for (std::uint64_t i = random.below(3); i > 0; --i) body[random.below(body.size())] = "{}[],:\"0-9e.x\\ \xff"[random.below(16)];
    if (random.chance(0.2)) body.erase(random.below(body.size()), random.below(8));
    const auto response = client.post("/pooling", body);
    ASSERT_TRUE(response.status == 200U || response.status == 400U || response.status == 404U) << body << response.body;
    ASSERT_NO_THROW(static_cast<void>(response.json())) << response.body;
  }
}

TEST_F(PoolingBodies, PoolingErrorsNameTheProblemAndTheFix) {
  const std::string hi = R"("messages": [{"role": "user", "content": "hi"}])";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"input": "a", "task": "classify"})", "task: is 'classify'; use embed or token_embed"},
      {"{" + hi + R"(, "input": "a"})", "input: is not supported by this server, except as null; send either input or messages"},
      {R"({"input": "a", "dimensions": 3})", "dimensions: is not supported by this server, except as null; use /v1/embeddings"},
      {R"({"input": "a", "kv_transfer_params": {"hidden_states": true}})",
       "task: is embed, but kv_transfer_params requests hidden states; use token_embed"},
      {R"({"input": "a", "kv_transfer_params": 3})",
       R"(kv_transfer_params: must be an object, not integer 3; send {"hidden_states": true}, or remove it)"},
      {R"({"input": "a", "task": "token_embed", "kv_transfer_params": {"hidden_states": true}})",
       "kv_transfer_params: requests hidden states, which this server does not write; start the server with --hidden-states DIR"},
  };
  for (const auto& [body, wanted] : cases) EXPECT_EQ(error(prepare_pooling, body), wanted) << body;
  EXPECT_EQ(prompts(prepare_pooling, "{" + hi + "}").at(0), "<user>hi") << "it is encoded, not answered";
  EXPECT_EQ(prompts(prepare_pooling, "{" + hi + R"(, "add_generation_prompt": true})").at(0), "<user>hi<assistant>");
  EXPECT_EQ(prepared(prepare_pooling, R"({"input": "a", "task": "token_embed"})")->requests[0].sampling.pooling.kind, PoolingKind::all);
  options_.max_hidden_numbers = 12;
  EXPECT_EQ(error(prepare_pooling, R"({"input": "abc", "task": "token_embed"})"), "accepted");
  EXPECT_EQ(error(prepare_pooling, R"({"input": "abcd", "task": "token_embed"})"),
            "input: has at least 4 tokens, whose vectors of 4 numbers each exceed 12 numbers in total; send at most 3 tokens in a request");
  EXPECT_EQ(error(prepare_pooling, R"({"input": "abcd"})"), "accepted") << "one vector for the whole text";
}

TEST_F(PoolingBodies, RowsOfTokensAreScaledOneByOne) {
  const std::vector<PooledVector> rows = {{3.0F, 4.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 2.0F}};
  const auto data = [&](const std::string& fields) {
    return json::serialize(json::parse(answer(prepare_pooling, R"({"input": "ab", "task": "token_embed")" + fields + "}", rows))
                               .at("data")
                               .as_array()
                               .at(0)
                               .at("data"));
  };
  EXPECT_EQ(json::parse(data("")), json::parse("[[0.6,0.8,0,0],[0,0,0,1]]"));
  EXPECT_EQ(json::parse(data(R"(, "normalize": false)")), json::parse("[[3,4,0,0],[0,0,0,2]]"));
  EXPECT_EQ(data(R"(, "normalize": false, "encoding_format": "base64")"), R"("AABAQAAAgEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAEA=")");
  const json::value whole = json::parse(answer(prepare_pooling, R"({"input": "a"})", {{0.0F, 2.0F}}));
  EXPECT_EQ(whole.at("data").as_array().at(0).at("data"), json::parse("[0,1]"));
  EXPECT_EQ(whole.at("data").as_array().at(0).at("object"), "pooling");
}

}  // namespace
}  // namespace quire
