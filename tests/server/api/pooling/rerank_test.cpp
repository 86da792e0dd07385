// Tests errors, order and scores of /v1/rerank and /v1/score.
#include "server/api/pooling/rerank.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/api/pooling/pooling_bodies.h"
#include "server/api/pooling/token_vectors.h"

namespace quire {
namespace {

namespace json = boost::json;

TEST_F(PoolingBodies, RerankErrorsNameTheProblemAndTheFix) {
  const std::pair<std::string, std::string> cases[] = {
      {"{}", "query: is missing; send a text or a list of texts"},
      {R"({"query": "q"})", "documents: is missing; send a text or a list of texts"},
      {R"({"query": "q", "documents": []})", "documents: is empty; send a text"},
      {R"({"query": "q", "documents": [3]})", "documents: contains integer 3; send texts"},
      {R"({"query": {"txt": "q"}, "documents": "d"})", "query: contains object; send texts"},
      {R"({"query": ["a", "b"], "documents": ["c", "d"]})", "query: is a list; send one text"},
      {R"({"query": "q", "documents": )" + many_texts(2048) + "}", "accepted"},
      {R"({"query": "q", "documents": )" + many_texts(2049) + "}", "documents: contains 2049 texts; send at most 2048"},
      {R"({"query": "q", "documents": "d", "top_n": -1})", "top_n: is -1; use 0 to 1073741824"},
      {R"({"query": "q", "documents": "d", "max_tokens_per_doc": 5})",
       "max_tokens_per_doc: is not supported by this server, except as 0; send truncate_prompt_tokens"},
      {R"({"query": "", "documents": "d"})", "query: has no tokens; send some text"},
      {R"({"query": "q", "documents": ["d", ""]})", "documents: has no tokens; send some text"},
  };
  for (const auto& [body, wanted] : cases) EXPECT_EQ(error(prepare_rerank, body), wanted) << body.substr(0, 100);
  EXPECT_EQ(error(prepare_score, R"({"text_1": ["a", "b"], "text_2": ["c", "d", "e"]})"),
            "text_1: contains 2 texts for 3 documents; send one text, or one for each document");
  EXPECT_EQ(error(prepare_score, R"({"queries": "a"})"), "text_1: is missing; send a text or a list of texts");
  for (const auto& [one, two] : {std::pair("text_1", "text_2"), {"queries", "documents"}, {"queries", "items"}, {"data_1", "data_2"}}) {
    const std::string body = std::string(R"({")") + one + R"(": {"text": "a"}, ")" + two + R"(": ["b", {"text": "c"}]})";
    EXPECT_EQ(prompts(prepare_score, body), (std::vector<std::string>{"a", "b", "c"})) << body;
  }
}

TEST_F(PoolingBodies, RerankOrdersByScore) {
  const std::vector<PooledVector> vectors = {{1.0F, 0.0F}, {0.0F, 1.0F}, {1.0F, 1.0F}, {2.0F, 0.0F}, {0.0F, 3.0F}};
  const auto results = [&](const std::string& fields) {
    const json::value all =
        json::parse(answer(prepare_rerank, R"({"query": "q", "documents": ["a", "b", "c", "d"])" + fields + "}", vectors));
    EXPECT_EQ(all.at("id"), "id");
    EXPECT_EQ(all.at("model"), "m");
    EXPECT_EQ(all.at("usage").at("total_tokens"), 5);
    std::string shown;
    for (const json::value& one : all.at("results").as_array()) {
      shown += json::serialize(one.at("index"));
      if (one.as_object().contains("document")) shown += one.at("document").at("text").as_string();
      shown += " ";
    }
    return shown;
  };
  EXPECT_EQ(results(""), "2c 1b 0a 3d ") << "equal scores keep their order";
  EXPECT_EQ(results(R"(, "top_n": 1)"), "2c ");
  EXPECT_EQ(results(R"(, "top_n": 4)"), "2c 1b 0a 3d ");
  EXPECT_EQ(results(R"(, "top_n": 9)"), "2c 1b 0a 3d ");
  EXPECT_EQ(results(R"(, "top_n": 2, "return_documents": false)"), "2 1 ");
  const json::value scores = json::parse(
      answer(prepare_score, R"({"text_1": ["q", "r"], "text_2": ["a", "b"]})", {{1.0F, 0.0F}, {0.0F, 2.0F}, {3.0F, 4.0F}, {0.0F, 5.0F}}));
  EXPECT_NEAR(scores.at("data").as_array().at(0).at("score").to_number<double>(), 0.6, 1e-6);
  EXPECT_NEAR(scores.at("data").as_array().at(1).at("score").to_number<double>(), 1.0, 1e-6);
  EXPECT_EQ(scores.at("data").as_array().at(1).at("object"), "score");
}

TEST_F(PoolingBodies, CrossEncoderAsksForYesOrNo) {
  engine_.set_pooling(cross_encoder("y", "{a}{query}|{document}{{query}"));
  load();
  EXPECT_EQ(prompts(prepare_score, R"({"text_1": "{document}", "text_2": ["d", "e"]})"),
            (std::vector<std::string>{"{a}{document}|d{{document}", "{a}{document}|e{{document}"}))
      << "a text is not read as a template";
  const auto ready = prepared(prepare_score, R"({"text_1": "q", "text_2": "d"})");
  EXPECT_EQ(ready->requests.at(0).sampling.pooling.logits_of, (std::vector<TokenId>{'n', 'y'}));
  const json::value scores = json::parse(answer(prepare_score, R"({"text_1": "q", "text_2": ["d", "e"]})", {{0.0F, 0.0F}, {1.0F, 3.0F}}));
  EXPECT_NEAR(scores.at("data").as_array().at(0).at("score").to_number<double>(), 0.5, 1e-9);
  EXPECT_NEAR(scores.at("data").as_array().at(1).at("score").to_number<double>(), 0.880797, 1e-6);
  EXPECT_EQ(error(prepare_pooling, R"({"input": "a"})"),
            "task: is embed, but the model is a cross-encoder; use token_embed, /v1/rerank or /v1/score");
  engine_.set_pooling(cross_encoder("yes", "{query}"));
  load();
  EXPECT_EQ(error(prepare_score, R"({"text_1": "q", "text_2": "d"})"),
            "model: scores pairs with 'yes', which is not a token of its vocabulary; use another reranking model");
}

}  // namespace
}  // namespace quire
