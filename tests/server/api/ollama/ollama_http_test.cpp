// Tests Ollama's API over real sockets, with an engine that answers immediately.
#include <boost/json/serialize.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "server/running_server.h"

namespace quire::ollama_http_test {
namespace {

namespace json = boost::json;

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}{{ tools | length }}<tool_call>\n{\"name\": <name>, "
    "\"arguments\": <object>}\n</tool_call>{% endif %}{% if add_generation_prompt %}<assistant>{% endif %}";
constexpr const char* kHello = R"("messages": [{"role": "user", "content": "hi"}])";
constexpr const char* kCallOfClock = "It is <tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>";
constexpr const char* kClock =
    R"("tools": [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}}])";

class OllamaHttp : public RunningServer {
 protected:
  void begin(const std::string& answer, ServerOptions options = {}) {
    engine.set_chat_template(kTemplate);
    engine.answer_with(answer);
    engine.set_max_model_len(4096);
    start(std::move(options));
  }
  ClientResponse ask(const std::string& path, const std::string& fields, const std::string& model = "bytes") {
    return post(path, R"({"model": ")" + model + R"(", )" + fields + "}");
  }
  std::string last_prompt() { return tokens_to_bytes(engine.at(num_asked++).request.prompt); }
  std::string error_of(const ClientResponse& response) { return std::string(response.json().at("error").as_string()); }

  std::size_t num_asked = 0;
};

std::vector<json::object> lines_of(const std::string& stream) {
  std::vector<json::object> lines;
  std::istringstream in(stream);
  for (std::string line; std::getline(in, line);) lines.push_back(json::parse(line).as_object());
  return lines;
}

TEST_F(OllamaHttp, AnswersAChat) {
  begin("hello");
  const ClientResponse response =
      ask("/api/chat", std::string(kHello) + R"(, "stream": false, "options": {"num_predict": 100, "seed": 3})", "bytes:latest");
  ASSERT_EQ(response.status, 200U) << response.body;
  const json::value answer = response.json();
  EXPECT_EQ(answer.at("model"), "bytes:latest");
  EXPECT_EQ(answer.at("message"), json::parse(R"({"role": "assistant", "content": "hello"})"));
  EXPECT_EQ(answer.at("done"), true);
  EXPECT_EQ(answer.at("done_reason"), "stop");
  EXPECT_EQ(answer.at("eval_count"), 6);
  EXPECT_EQ(answer.at("prompt_eval_count"), std::string_view("<user>hi<assistant>").size());
  EXPECT_EQ(answer.at("total_duration").as_int64() >= answer.at("load_duration").as_int64() + answer.at("eval_duration").as_int64(), true);
  EXPECT_EQ(engine.at(0).request.sampling.max_tokens, 100U);
  EXPECT_EQ(engine.at(0).request.sampling.seed, 3U);
  EXPECT_EQ(last_prompt(), "<user>hi<assistant>");
}

TEST_F(OllamaHttp, StreamsLinesByDefault) {
  begin("hello");
  const ClientResponse response = ask("/api/chat", kHello);
  EXPECT_EQ(response.header("Content-Type"), "application/x-ndjson");
  const auto lines = lines_of(response.body);
  std::string text;
  for (const json::object& line : lines) text += line.at("message").at("content").as_string();
  EXPECT_EQ(text, "hello");
  for (std::size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_EQ(lines[i].at("done"), false);
  EXPECT_EQ(lines.back().at("done_reason"), "stop");
  EXPECT_EQ(engine.at(0).request.sampling.max_tokens, 4096U - std::string_view("<user>hi<assistant>").size()) << "as many as fit";
}

TEST_F(OllamaHttp, SendsToolCallsWithObjects) {
  begin(kCallOfClock);
  const std::string fields = std::string(kHello) + ", " + kClock;
  const json::value message = ask("/api/chat", fields + R"(, "stream": false)").json().at("message");
  ASSERT_EQ(message.at("tool_calls").as_array().size(), 1U);
  EXPECT_EQ(message.at("content"), "It is");
  EXPECT_EQ(message.at("tool_calls").at(0).at("function"), json::parse(R"({"index": 0, "name": "clock", "arguments": {"zone": "UTC"}})"));
  std::size_t num_calls = 0;
  for (const json::object& line : lines_of(ask("/api/chat", fields).body))
    if (line.at("message").as_object().contains("tool_calls")) num_calls += line.at("message").at("tool_calls").as_array().size();
  EXPECT_EQ(num_calls, 1U);
  const ClientResponse next = ask("/api/chat", R"("messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "",
      "tool_calls": [{"function": {"name": "clock", "arguments": {"zone": "UTC"}}}]}, {"role": "tool", "tool_name": "clock", "content": "12:00"}],
      "stream": false)");
  EXPECT_EQ(next.status, 200U) << next.body;
}

TEST_F(OllamaHttp, ContinuesThePromptOfGenerate) {
  begin("hello");
  EXPECT_EQ(ask("/api/generate", R"("prompt": "hi", "system": "s", "stream": false)").json().at("response"), "hello");
  EXPECT_EQ(last_prompt(), "<system>s<user>hi<assistant>");
  EXPECT_EQ(ask("/api/generate", R"("prompt": "hi", "raw": true, "stream": false)").json().at("response"), "hello");
  EXPECT_EQ(engine.at(1).request.sampling.max_tokens, 4096U - 2U) << "as many as fit";
  EXPECT_EQ(last_prompt(), "hi");
  std::string text;
  for (const json::object& line : lines_of(ask("/api/generate", R"("prompt": "hi", "raw": true, "options": {"num_predict": 3})").body)) {
    text += line.at("response").as_string();
    if (line.at("done").as_bool()) EXPECT_EQ(line.at("done_reason"), "length");
  }
  EXPECT_EQ(text, "hel");
  EXPECT_TRUE(error_of(ask("/api/generate", R"("prompt": "a", "suffix": "b")")).starts_with("suffix: is not supported"));
}

TEST_F(OllamaHttp, ContinuesAnAssistantMessage) {
  begin(" there");
  EXPECT_EQ(
      ask("/api/chat", R"("messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello"}], "stream": false)")
          .json()
          .at("message")
          .at("content"),
      " there");
  EXPECT_EQ(last_prompt(), "<user>hi<assistant>Hello");
}

TEST_F(OllamaHttp, ReportsThatTheModelIsLoaded) {
  begin("hello");
  const ClientResponse loaded = ask("/api/generate", R"("keep_alive": "5m")");
  EXPECT_EQ(loaded.json().at("done_reason"), "load");
  EXPECT_EQ(loaded.header("Content-Type"), "application/json");
  EXPECT_EQ(loaded.header("X-Quire-Ignored-Fields"), "keep_alive");
  EXPECT_EQ(ask("/api/chat", R"("messages": [], "keep_alive": 0)").json().at("done_reason"), "unload");
  EXPECT_EQ(engine.num_submitted(), 0U);
}

TEST_F(OllamaHttp, RefusesWithOllamasErrors) {
  begin("hello", {.strict_fields = true});
  const ClientResponse missing = ask("/api/chat", kHello, "llama3.2");
  EXPECT_EQ(missing.status, 404U);
  EXPECT_TRUE(error_of(missing).starts_with("model 'llama3.2' not found; use 'bytes'")) << missing.body;
  EXPECT_EQ(ask("/api/show", R"("verbose": true)", "llama3.2").status, 404U);
  EXPECT_EQ(ask("/api/embed", R"("input": "a")", "llama3.2").status, 404U);
  EXPECT_EQ(post("/api/chat", "{}").status, 400U);
  EXPECT_TRUE(error_of(post("/api/generate", "no JSON")).starts_with("the body is not JSON"));
  EXPECT_TRUE(error_of(ask("/api/generate", R"("prompt": "a", "options": {"temperature": -1})")).starts_with("options.temperature: "));
  EXPECT_TRUE(error_of(ask("/api/chat", R"("messages": [], "keep_alive": 0)")).starts_with("keep_alive: would be ignored"));
  EXPECT_TRUE(error_of(ask("/api/chat", std::string(kHello) + R"(, "options": {"num_ctx": 9})")).starts_with("options.num_ctx: would be"));
  const ClientResponse pull = ask("/api/pull", R"("stream": false)");
  EXPECT_EQ(pull.status, 404U);
  EXPECT_TRUE(error_of(pull).find("use one of /api/chat, /api/generate") != std::string::npos) << pull.body;
  EXPECT_EQ(HttpClient(port).get("/api/chat").status, 405U);
}

TEST_F(OllamaHttp, RefusesAStreamBeforeItsFirstLine) {
  engine.set_chat_template(kTemplate);
  start();
  HttpClient client(port);
  client.send_post("/api/chat", std::string(R"({"model": "bytes", "format": {"type": "object"}, )") + kHello + "}");
  ASSERT_TRUE(engine.wait_submitted(1));
  engine.refuse(RequestId{0}, Error{ErrorCode::invalid_argument, "structured_output", "is wrong", "mend it"});
  const ClientResponse refused = client.receive();
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.body, R"({"error":"format: is wrong; mend it"})");
}

TEST_F(OllamaHttp, ListsEachName) {
  begin("hello", {.served_model_aliases = {"org/best:v1"}});
  for (const char* path : {"/api/tags", "/api/ps"}) {
    const json::value list = HttpClient(port).get(path).json();
    const json::array& models = list.at("models").as_array();
    ASSERT_EQ(models.size(), 2U) << path;
    EXPECT_EQ(models[0].at("name"), "bytes:latest");
    EXPECT_EQ(models[0].at("model"), "bytes:latest");
    EXPECT_EQ(models[1].at("name"), "org/best:v1");
    EXPECT_EQ(models[0].at("digest").as_string().size(), 64U);
    EXPECT_EQ(models[0].at("digest"), models[1].at("digest")) << "one model has both names";
    EXPECT_TRUE(models[0].at("details").as_object().contains("quantization_level"));
  }
  EXPECT_EQ(HttpClient(port).get("/api/ps").json().at("models").at(0).at("context_length"), 4096);
  EXPECT_EQ(ask("/api/chat", std::string(kHello) + R"(, "stream": false)", "org/best:v1").status, 200U);
  EXPECT_EQ(ask("/api/chat", std::string(kHello) + R"(, "stream": false)", "org/best:v1:latest").status, 200U);
}

TEST_F(OllamaHttp, ServesAdaptersByTheirNames) {
  engine.add_adapter({.name = "sea", .path = "/a/sea", .digest = std::string(64, 'd'), .is_resident = true});
  begin("hello");
  EXPECT_EQ(ask("/api/chat", std::string(kHello) + R"(, "stream": false)", "sea:latest").json().at("model"), "sea:latest");
  EXPECT_EQ(engine.at(0).request.adapter, "sea");
  const json::value list = HttpClient(port).get("/api/tags").json();
  const json::value& adapter = list.at("models").at(1);
  EXPECT_EQ(adapter.at("name"), "sea:latest");
  EXPECT_EQ(std::string(adapter.at("digest").as_string()), std::string(64, 'd'));
  EXPECT_EQ(adapter.at("details").at("parent_model"), "bytes:latest");
}

TEST_F(OllamaHttp, KeepsRequestsOfTenantsApart) {
  begin("hello", {.tenant_keys = {{"a", "key-a"}, {"b", "key-b"}}, .tenant_secret = "s"});
  const std::string body = std::string(R"({"model": "bytes", "stream": false, )") + kHello + "}";
  for (const char* key : {"key-a", "key-b"})
    EXPECT_EQ(post("/api/chat", body, std::string("Authorization: Bearer ") + key + "\r\n").status, 200U);
  EXPECT_EQ(engine.at(0).request.tags.tenant, "a");
  EXPECT_NE(engine.at(0).request.cache_salt, engine.at(1).request.cache_salt);
  EXPECT_EQ(post("/api/chat", body).status, 401U);
}

TEST_F(OllamaHttp, ShowsTheModel) {
  ModelInfo info = byte_model();
  info.architecture = "llama";
  info.num_parameters = 134'515'008;
  info.weight_types = "F32 61, Q4_1 210";
  engine.set_model(std::move(info));
  begin("hello", {.generation_defaults = {.temperature = 0.5}});
  const json::value shown = post("/api/show", R"({"name": "bytes:latest", "system": "", "template": "", "options": null})").json();
  EXPECT_EQ(shown.at("template"), kTemplate);
  EXPECT_EQ(shown.at("details").at("parameter_size"), "134.52M");
  EXPECT_EQ(shown.at("details").at("quantization_level"), "Q4_1");
  EXPECT_EQ(shown.at("model_info").at("general.architecture"), "llama");
  EXPECT_EQ(shown.at("model_info").at("llama.context_length"), 4096);
  EXPECT_EQ(shown.at("capabilities"), json::parse(R"(["completion", "tools"])"));
  EXPECT_TRUE(error_of(ask("/api/show", R"("system": "be brief")")).starts_with("system: is not supported"));
  EXPECT_TRUE(shown.at("parameters").as_string().starts_with("temperature")) << shown.at("parameters");
}

TEST_F(OllamaHttp, ReturnsVectors) {
  engine.pool_with([](const EngineRequest& request) { return std::vector<float>{static_cast<float>(request.prompt.size()), 0.0F}; });
  engine.set_max_model_len(5);
  start();
  const json::value two = ask("/api/embed", R"("input": ["ab", "abcdefgh"])").json();
  EXPECT_EQ(two.at("embeddings"), json::parse("[[1, 0], [1, 0]]"));
  EXPECT_EQ(two.at("prompt_eval_count"), 2 + 4) << "the second text is shortened to what fits";
  EXPECT_EQ(ask("/api/embed", R"("input": "abcdefgh", "truncate": false)").status, 400U);
  EXPECT_EQ(ask("/api/embed", R"("input": [])").json().at("embeddings").as_array().size(), 0U);
  EXPECT_EQ(ask("/api/embeddings", R"("prompt": "abc")").body, R"({"embedding":[3,0]})") << "this route does not scale the vector";
  EXPECT_EQ(ask("/api/embeddings", R"("keep_alive": 0)").body, R"({"embedding":[]})");
  EXPECT_EQ(ask("/api/embed", R"("input": "a", "options": {"num_ctx": 6})").status, 400U);
}

TEST_F(OllamaHttp, ChecksKeysAsOtherRoutesDo) {
  begin("hello", {.api_key = "secret"});
  const ClientResponse refused = HttpClient(port).get("/api/tags");
  EXPECT_EQ(refused.status, 401U);
  EXPECT_FALSE(error_of(refused).empty());
  EXPECT_EQ(HttpClient(port).get("/api/version", "Authorization: Bearer secret\r\n").json().as_object().contains("version"), true);
  HttpClient client(port);
  EXPECT_EQ(client.ask("HEAD / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n").status, 200U) << "clients probe this path";
}

}  // namespace
}  // namespace quire::ollama_http_test
