// Tests LoRA adapters as clients and operators use them, over real sockets. The fake engine has the adapters that a test adds.
#include "server/operate/adapters.h"

#include <boost/json/parse.hpp>
#include <string>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

constexpr const char* kLoad = "/v1/load_lora_adapter";
constexpr const char* kUnload = "/v1/unload_lora_adapter";

class AdaptersHttpTest : public RunningServer {
 protected:
  void add(std::string name, bool is_resident = true) {
    std::string path = "/adapters/" + name;
    engine.add_adapter({.name = std::move(name), .path = std::move(path), .digest = "00", .is_resident = is_resident});
  }
  static ServerOptions with_updates() {
    ServerOptions options;
    options.allow_runtime_lora_updating = true;
    return options;
  }
  static std::string message(const ClientResponse& response) { return std::string(response.json().at("error").at("message").as_string()); }
};

TEST_F(AdaptersHttpTest, LoadsAdapterForCompletionRequests) {
  add("sql");
  engine.answer_with("yes");
  start();
  const auto completion = post("/v1/completions", R"({"model":"sql","prompt":"a","max_tokens":9})");
  ASSERT_EQ(completion.status, 200U) << completion.body;
  EXPECT_EQ(completion.json().at("model"), "sql");
  const auto chat = post("/v1/chat/completions", R"({"model":"sql","messages":[{"role":"user","content":"a"}],"max_tokens":9})");
  EXPECT_EQ(chat.json().at("model"), "sql");
  EXPECT_EQ(post("/v1/responses", R"({"model":"sql","input":"a","max_output_tokens":20})").json().at("model"), "sql");
  const auto message = post("/v1/messages", R"({"model":"sql","max_tokens":9,"messages":[{"role":"user","content":"a"}]})");
  EXPECT_EQ(message.json().at("model"), "sql");
  ASSERT_EQ(engine.num_submitted(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(engine.at(i).request.adapter, "sql");
    EXPECT_NE(engine.at(i).request.adapter_lease, nullptr);
  }
  const auto plain = post("/v1/completions", R"({"model":"bytes","prompt":"a","max_tokens":9})");
  EXPECT_EQ(plain.json().at("model"), "bytes");
  EXPECT_EQ(engine.at(4).request.adapter, "");
  EXPECT_EQ(engine.at(4).request.adapter_lease, nullptr);
}

TEST_F(AdaptersHttpTest, LoadsAdapterForEmbeddingRequests) {
  add("sql");
  engine.pool_with([](const EngineRequest&) { return std::vector<float>{1.0F, 0.0F, 0.0F, 0.0F}; });
  start();
  const auto vectors = post("/v1/embeddings", R"({"model":"sql","input":["a","b"]})");
  ASSERT_EQ(vectors.status, 200U) << vectors.body;
  EXPECT_EQ(vectors.json().at("model"), "sql");
  EXPECT_EQ(post("/v1/score", R"({"model":"sql","text_1":"a","text_2":"b"})").status, 200U);
  EXPECT_EQ(post("/pooling", R"({"model":"sql","input":"a"})").status, 200U);
  for (std::size_t i = 0; i < engine.num_submitted(); ++i) {
    EXPECT_EQ(engine.at(i).request.adapter, "sql");
    EXPECT_NE(engine.at(i).request.adapter_lease, nullptr);
  }
  EXPECT_EQ(post("/tokenize", R"({"model":"sql","prompt":"a"})").status, 200U);
  EXPECT_EQ(post("/detokenize", R"({"model":"sql","tokens":[65]})").status, 200U);
}

TEST_F(AdaptersHttpTest, LoadsAdapterForCacheRequests) {
  add("sql");
  engine.pool_with([](const EngineRequest&) { return std::vector<float>{1.0F, 0.0F, 0.0F, 0.0F}; });
  start();
  EXPECT_EQ(post("/v1/cache/probe", R"({"model":"sql","prompt":"a"})").status, 200U);
  EXPECT_EQ(post("/v1/cache/warm", R"({"model":"sql","prompt":"a"})").status, 200U);
  for (const EngineRequest& probed : engine.probed()) EXPECT_EQ(probed.adapter, "sql");
  ASSERT_EQ(engine.num_submitted(), 1U);
  EXPECT_EQ(engine.at(0).request.adapter, "sql");
  EXPECT_NE(engine.at(0).request.adapter_lease, nullptr);
}

TEST_F(AdaptersHttpTest, NamesTheKnownModelsForAnUnknownModel) {
  add("sql");
  start();
  const auto refused = post("/v1/completions", R"({"model":"sq","prompt":"a"})");
  EXPECT_EQ(refused.status, 404U);
  EXPECT_EQ(refused.json().at("error").at("code"), "model_not_found");
  EXPECT_NE(message(refused).find("'bytes' or 'sql'"), std::string::npos) << message(refused);
}

TEST_F(AdaptersHttpTest, ReadsWeightsBeforeTheRequestStarts) {
  add("sql", false);
  engine.answer_with("yes");
  start();
  // A probe does not compute and does not read weights.
  EXPECT_EQ(post("/v1/cache/probe", R"({"model":"sql","prompt":"a"})").status, 200U);
  EXPECT_TRUE(engine.adapter_calls().empty());
  EXPECT_EQ(post("/v1/completions", R"({"model":"sql","prompt":"a","max_tokens":9})").status, 200U);
  EXPECT_EQ(engine.adapter_calls(), std::vector<std::string>{"read sql"});
  EXPECT_NE(engine.at(0).request.adapter_lease, nullptr);
  EXPECT_EQ(post("/v1/completions", R"({"model":"sql","prompt":"a","max_tokens":9})").status, 200U);
  EXPECT_EQ(engine.adapter_calls().size(), 1U);
}

TEST_F(AdaptersHttpTest, StreamBeginsAfterTheWeightsAreRead) {
  add("sql", false);
  engine.answer_with("yes");
  start();
  const auto streamed = post("/v1/completions", R"({"model":"sql","prompt":"a","max_tokens":9,"stream":true})");
  EXPECT_EQ(streamed.status, 200U);
  EXPECT_NE(streamed.body.find("[DONE]"), std::string::npos);
}

TEST_F(AdaptersHttpTest, ReturnsTheErrorWhenWeightsCannotBeRead) {
  add("sql", false);
  engine.pool_with([](const EngineRequest&) { return std::vector<float>{1.0F, 0.0F, 0.0F, 0.0F}; });
  engine.fail_to_read(Error{ErrorCode::overloaded, "max_cpu_loras", "all 2 are in use", "try again later"});
  start();
  EXPECT_EQ(post("/v1/completions", R"({"model":"sql","prompt":"a"})").status, 429U);
  EXPECT_EQ(post("/v1/embeddings", R"({"model":"sql","input":"a"})").status, 429U);
  engine.fail_to_read(Error{ErrorCode::not_found, "lora_path", "there is no such folder", "give one"});
  const auto gone = post("/v1/completions", R"({"model":"sql","prompt":"a"})");
  EXPECT_EQ(gone.status, 404U);
  EXPECT_EQ(gone.error_param(), "model") << "the client knows the model, not the folder";
  EXPECT_EQ(engine.num_submitted(), 0U);
}

TEST_F(AdaptersHttpTest, ListsAdaptersAfterTheirBaseModel) {
  add("sql");
  start();
  const auto listed = HttpClient(port).get("/v1/models").json();
  const auto& data = listed.at("data").as_array();
  ASSERT_EQ(data.size(), 2U);
  EXPECT_EQ(data[0].at("id"), "bytes");
  EXPECT_TRUE(data[0].at("parent").is_null());
  EXPECT_EQ(data[1].at("id"), "sql");
  EXPECT_EQ(data[1].at("root"), "/adapters/sql");
  EXPECT_EQ(data[1].at("parent"), "bytes");
}

TEST_F(AdaptersHttpTest, LoadsAndUnloadsWithVllmsMessages) {
  start(with_updates());
  const auto loaded = post(kLoad, R"({"lora_name":"sql","lora_path":"/adapters/sql"})");
  EXPECT_EQ(loaded.status, 200U);
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'sql' added successfully.");
  const auto again = post(kLoad, R"({"lora_name":"sql","lora_path":"/adapters/sql"})");
  EXPECT_EQ(again.status, 400U);
  EXPECT_EQ(again.json().at("error").at("param"), "lora_name");
  EXPECT_EQ(post(kLoad, R"({"lora_name":"sql","lora_path":"/other","load_inplace":true})").status, 200U);
  const auto unloaded = post(kUnload, R"({"lora_name":"sql"})");
  EXPECT_EQ(unloaded.status, 200U);
  EXPECT_EQ(unloaded.body, "Success: LoRA adapter 'sql' removed successfully.");
  const auto unknown = post(kUnload, R"({"lora_name":"sql"})");
  EXPECT_EQ(unknown.status, 404U);
  EXPECT_EQ(unknown.json().at("error").at("param"), "lora_name");
  EXPECT_EQ(engine.adapter_calls(), (std::vector<std::string>{"load sql /adapters/sql", "load sql /adapters/sql", "replace sql /other",
                                                              "unload sql", "unload sql"}));
}

TEST_F(AdaptersHttpTest, RefusesIncompleteCallsAndTheModelsName) {
  start(with_updates());
  for (const char* body : {R"({"lora_name":"sql"})", R"({"lora_path":"/a"})", "{}", R"({"lora_name":"","lora_path":"/a"})"}) {
    const auto refused = post(kLoad, body);
    EXPECT_EQ(refused.status, 400U) << body;
    EXPECT_NE(message(refused).find("Both 'lora_name' and 'lora_path' must be provided; send both"), std::string::npos) << message(refused);
  }
  EXPECT_EQ(post(kUnload, "{}").status, 400U);
  EXPECT_EQ(post(kLoad, "[]").status, 400U);
  EXPECT_EQ(post(kLoad, R"({"lora_name":"a","lora_path":"/a","load_in_place":true})").status, 400U)
      << "load_in_place requires a known adapter";
  EXPECT_EQ(post(kLoad, R"({"lora_name":"bytes","lora_path":"/a"})").status, 400U);
  EXPECT_EQ(post(kLoad, R"({"lora_name":")" + std::string(257, 'a') + R"(","lora_path":"/a"})").status, 400U);
  EXPECT_TRUE(engine.adapter_calls().empty());
  engine.fail_to_read(Error{ErrorCode::not_found, "lora_path", "there is no folder '/a'", "give one"});
  EXPECT_EQ(post(kLoad, R"({"lora_name":"a","lora_path":"/a"})").status, 404U);
  engine.fail_to_read(Error{ErrorCode::corrupt, "adapter_model.safetensors", "is cut short", ""});
  EXPECT_EQ(post(kLoad, R"({"lora_name":"a","lora_path":"/a"})").status, 400U);
}

TEST_F(AdaptersHttpTest, RuntimeUpdatesRequireAFlag) {
  start();
  for (const char* path : {kLoad, kUnload}) {
    const auto refused = post(path, R"({"lora_name":"a","lora_path":"/a"})");
    EXPECT_EQ(refused.status, 403U);
    EXPECT_NE(message(refused).find("--allow-runtime-lora-updating"), std::string::npos);
  }
  EXPECT_TRUE(engine.adapter_calls().empty());
}

TEST_F(AdaptersHttpTest, RuntimeUpdatesAreForTheOperatorOnly) {
  ServerOptions options = with_updates();
  options.api_key = "operator";
  options.tenant_keys = {{.tenant = "acme", .key = "tenant"}};
  start(options);
  const std::string body = R"({"lora_name":"a","lora_path":"/a"})";
  EXPECT_EQ(post(kLoad, body).status, 401U);
  EXPECT_EQ(post(kLoad, body, "Authorization: Bearer tenant\r\n").status, 403U);
  EXPECT_EQ(post(kLoad, body, "Authorization: Bearer operator\r\n").status, 200U);
}

TEST_F(AdaptersHttpTest, RefusesAnAdapterWithTheModelsName) {
  add("bytes");
  Logger logger({.level = LogLevel::off});
  const auto refused = Server::create(engine, {}, logger);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().field, "lora_modules");
}

TEST_F(AdaptersHttpTest, RefuseWrongAdapterCalls) {
  start({.served_model_aliases = {"alias"}, .allow_runtime_lora_updating = true});
  const auto load = [&](const std::string& body) { return post("/v1/load_lora_adapter", body).error_message(); };
  const auto unload = [&](const std::string& body) { return post("/v1/unload_lora_adapter", body).error_message(); };
  EXPECT_EQ(load(R"({"lora_path":"p"})"), "lora_name: Both 'lora_name' and 'lora_path' must be provided; send both");
  EXPECT_EQ(load(R"({"lora_name":"a"})"), "lora_path: Both 'lora_name' and 'lora_path' must be provided; send both");
  EXPECT_EQ(unload("{}"), "lora_name: is missing; send the name of the LoRA adapter to unload");
  EXPECT_EQ(unload(R"({"lora_name":")" + std::string(257, 'x') + "\"}"), "lora_name: has 257 bytes; use at most 256 bytes");
  EXPECT_EQ(post("/v1/unload_lora_adapter", R"({"lora_name":")" + std::string(256, 'x') + "\"}").status, 404U);
  EXPECT_EQ(load(R"({"lora_name":"alias","lora_path":"p"})"),
            "lora_name: 'alias' is the name of the model; choose another name for the adapter");
  EXPECT_EQ(load(R"({"lora_name":"a","lora_path":"p","load_inplace":3})"),
            "load_inplace: must be a boolean, not integer 3; send true or false");
  EXPECT_EQ(unload(R"({"lora_name":"a","lora_path":"p"})"), "lora_path: is not a field of this request; did you mean 'lora_name'?");
  const ClientResponse added = post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"p","lora_int_id":3})");
  EXPECT_EQ(added.body, "Success: LoRA adapter 'a' added successfully.");
  EXPECT_EQ(added.header("Content-Type"), "text/plain; charset=utf-8");
  EXPECT_EQ(load(R"({"lora_name":"a","lora_path":"p"})"), "lora_name: is already loaded");
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"q","load_inplace":true})").status, 200U);
  EXPECT_EQ(post("/v1/unload_lora_adapter", R"({"lora_name":"a","base_model_name":"b"})").body,
            "Success: LoRA adapter 'a' removed successfully.");
  const ClientResponse gone = post("/v1/unload_lora_adapter", R"({"lora_name":"a"})");
  EXPECT_EQ(gone.status, 404U);
  EXPECT_EQ(gone.error_param(), "lora_name");
  engine.fail_to_read(Error{ErrorCode::corrupt, "adapter_config.json", "is wrong", ""});
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"p"})").status, 400U) << "the client named the folder";
  engine.fail_to_read(Error{ErrorCode::io, "adapter_config.json", "is wrong", ""});
  EXPECT_EQ(post("/v1/load_lora_adapter", R"({"lora_name":"a","lora_path":"p"})").status, 500U);
  EXPECT_EQ(engine.adapter_calls().at(1), "load a p");
}

}  // namespace
}  // namespace quire
