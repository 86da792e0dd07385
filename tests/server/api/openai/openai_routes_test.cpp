// Tests the list of models, and the errors for an engine that fails.
#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "server/running_server.h"

namespace quire {
namespace {

namespace json = boost::json;

using OpenAiRoutes = RunningServer;

TEST_F(OpenAiRoutes, ModelsHaveTheirAliasesAndAdapters) {
  engine.add_adapter({.name = "tuned", .path = "/tuned", .digest = ""});
  start({.served_model_aliases = {"alias"}});
  const json::value list = HttpClient(port).get("/v1/models").json();
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("has_more"), false);
  EXPECT_EQ(list.at("first_id"), "bytes");
  EXPECT_EQ(list.at("last_id"), "tuned");
  const auto card = [&](std::size_t i) { return list.at("data").as_array().at(i); };
  ASSERT_EQ(list.at("data").as_array().size(), 3U);
  EXPECT_EQ(card(0).at("id"), "bytes");
  EXPECT_EQ(card(0).at("object"), "model");
  EXPECT_EQ(card(0).at("owned_by"), "quire");
  EXPECT_EQ(card(0).at("root"), "bytes");
  EXPECT_TRUE(card(0).at("parent").is_null());
  EXPECT_EQ(card(0).at("max_model_len"), 512);
  EXPECT_EQ(card(0).at("input_modalities"), json::array{"text"});
  EXPECT_EQ(card(0).at("type"), "model");
  EXPECT_EQ(card(0).at("created_at").as_string().size(), std::string_view("2026-01-01T00:00:00Z").size());
  EXPECT_EQ(card(1).at("id"), "alias");
  EXPECT_EQ(card(1).at("display_name"), "alias");
  EXPECT_EQ(card(1).at("root"), "bytes");
  EXPECT_EQ(card(2).at("root"), "/tuned");
  EXPECT_EQ(card(2).at("parent"), "bytes");
  EXPECT_EQ(HttpClient(port).get("/v1/models/alias").json(), card(1));
  EXPECT_EQ(HttpClient(port).get("/v1/models/x").error_message(), "model: 'x' is not served by this server; see /v1/models");
  EXPECT_EQ(HttpClient(port).get("/v1/models/%zz").error_message(), "model: is not correctly percent-encoded; percent-encode it");
}

TEST_F(OpenAiRoutes, FailuresOfTheEngineAreReported) {
  start();
  const auto failed = [&](FinishReason reason, const std::string& error) {
    const std::size_t count = engine.num_submitted();
    HttpClient client(port);
    client.send_post("/v1/completions", R"({"prompt":"one"})");
    EXPECT_TRUE(engine.wait_submitted(count + 1));
    engine.end(RequestId{count}, reason, error);
    const ClientResponse response = client.receive();
    return std::to_string(response.status) + " " + (response.status == 200 ? "" : response.error_message());
  };
  EXPECT_EQ(failed(FinishReason::error, "it broke"), "500 it broke; try again");
  EXPECT_EQ(failed(FinishReason::error, ""), "500 the engine failed; try again");
  EXPECT_EQ(failed(FinishReason::abort, ""), "200 ");
  const auto pooled = [&](FinishReason reason, const std::string& error) {
    const std::size_t count = engine.num_submitted();
    HttpClient client(port);
    client.send_post("/v1/embeddings", R"({"input":"one"})");
    EXPECT_TRUE(engine.wait_submitted(count + 1));
    engine.end(RequestId{count}, reason, error);
    const ClientResponse response = client.receive();
    return std::to_string(response.status) + " " + response.error_message();
  };
  EXPECT_EQ(pooled(FinishReason::error, "it broke"), "500 it broke; try again");
  EXPECT_EQ(pooled(FinishReason::error, ""), "500 the engine failed; try again");
  EXPECT_EQ(pooled(FinishReason::abort, ""), "503 the engine aborted the request; send the request again");
}

}  // namespace
}  // namespace quire
