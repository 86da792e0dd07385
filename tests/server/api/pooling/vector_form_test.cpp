// Tests how vectors are scaled, cut and written.
#include "server/api/pooling/vector_form.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <vector>

#include "server/api/pooling/embeddings.h"
#include "server/api/pooling/pooling_bodies.h"

namespace quire {
namespace {

namespace json = boost::json;

TEST_F(PoolingBodies, EmbeddingsAreScaledAndCut) {
  const std::vector<PooledVector> vectors = {{3.0F, 4.0F, 0.0F, 0.0F}, {0.0F, 0.0F, 0.0F, 0.0F}};
  const auto data = [&](const std::string& fields) {
    const json::value all = json::parse(answer(prepare_embeddings, R"({"input": ["a", "b"])" + fields + "}", vectors));
    EXPECT_EQ(all.at("id"), "id");
    EXPECT_EQ(all.at("object"), "list");
    EXPECT_EQ(all.at("model"), "m");
    EXPECT_EQ(all.at("created"), 5);
    EXPECT_EQ(all.at("usage"), json::parse(R"({"prompt_tokens":2,"total_tokens":2,"completion_tokens":0})"));
    EXPECT_EQ(all.at("data").as_array().at(1).at("index"), 1);
    EXPECT_EQ(all.at("data").as_array().at(0).at("object"), "embedding");
    return json::serialize(all.at("data").as_array().at(0).at("embedding"));
  };
  EXPECT_EQ(json::parse(data("")), json::parse("[0.6,0.8,0,0]"));
  EXPECT_EQ(json::parse(data(R"(, "normalize": false)")), json::parse("[3,4,0,0]"));
  EXPECT_EQ(json::parse(data(R"(, "normalize": true, "use_activation": false)")), json::parse("[3,4,0,0]"));
  EXPECT_EQ(data(R"(, "normalize": false, "encoding_format": "base64")"), R"("AABAQAAAgEAAAAAAAAAAAA==")");
  EXPECT_EQ(finished_vector(vectors[1], 0, true), vectors[1]) << "a vector of zeros stays";
  EXPECT_EQ(finished_vector(vectors[0], 2, false), (PooledVector{3.0F, 4.0F}));
  EXPECT_EQ(finished_vector(vectors[0], 4, false), vectors[0]);
  EXPECT_EQ(finished_vector(vectors[0], 5, false), vectors[0]);
  EXPECT_EQ(finished_vector(vectors[0], 1, true), PooledVector{1.0F}) << "it is cut before it is scaled";
}

}  // namespace
}  // namespace quire
