// Tests Anthropic's /v1/messages over real sockets, with an engine that answers immediately.
#include <boost/json/serialize.hpp>
#include <string>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

constexpr const char* kMessagesTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if tools %}{{ tools | length }}<tool_call>\n{\"name\": <name>, "
    "\"arguments\": <object>}\n</tool_call>{% endif %}<assistant>";
constexpr const char* kClock =
    R"("tools": [{"name": "clock", "input_schema": {"type": "object", "properties": {"zone": {"type": "string"}}}}])";
constexpr const char* kCallOfClock = "It is <tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>";

class MessagesHttp : public RunningServer {
 protected:
  void begin(const std::string& answer, ServerOptions options = {}) {
    engine.set_chat_template(kMessagesTemplate);
    engine.answer_with(answer);
    engine.set_max_model_len(4096);
    start(std::move(options));
  }
  std::size_t num_asked = 0;
  ClientResponse message(const std::string& more, const std::string& headers = {}) {
    return post("/v1/messages?beta=true",
                R"({"model": "bytes", "max_tokens": 200, "messages": [{"role": "user", "content": "hi"}])" +
                    (more.empty() ? "" : ", " + more) + "}",
                headers);
  }
};

TEST_F(MessagesHttp, ReturnsAMessage) {
  begin("hello");
  const auto answer = message(R"("system": "be brief", "stop_sequences": ["nothing"])").json();
  EXPECT_EQ(answer.at("type"), "message");
  EXPECT_TRUE(answer.at("id").as_string().starts_with("msg_"));
  EXPECT_EQ(boost::json::serialize(answer.at("content")), R"([{"type":"text","text":"hello","citations":null}])");
  EXPECT_EQ(answer.at("stop_reason"), "end_turn");
  EXPECT_EQ(answer.at("usage").at("output_tokens"), 6);
  const auto prompt = bytes_to_tokens("<system>be brief<user>hi<assistant>");
  const auto& usage = answer.at("usage");
  EXPECT_EQ(usage.at("input_tokens").to_number<std::size_t>() + usage.at("cache_read_input_tokens").to_number<std::size_t>(),
            prompt.size());
  EXPECT_EQ(engine.at(0).request.prompt, prompt);
  EXPECT_EQ(
      post("/v1/messages/count_tokens", R"({"model": "bytes", "system": "be brief", "messages": [{"role": "user", "content": "hi"}]})")
          .json()
          .at("input_tokens"),
      prompt.size());
}

TEST_F(MessagesHttp, NamesTheStopSequence) {
  begin("hello");
  const auto answer = message(R"("stop_sequences": ["ll"])").json();
  EXPECT_EQ(answer.at("stop_reason"), "stop_sequence");
  EXPECT_EQ(answer.at("stop_sequence"), "ll");
  EXPECT_EQ(answer.at("content").as_array()[0].at("text"), "he");
}

TEST_F(MessagesHttp, ReturnsCallsAsSeparateBlocks) {
  begin(kCallOfClock);
  const auto answer = message(kClock).json();
  EXPECT_EQ(answer.at("stop_reason"), "tool_use");
  const auto& content = answer.at("content").as_array();
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0].at("text"), "It is");
  EXPECT_EQ(content[1].at("type"), "tool_use");
  EXPECT_EQ(content[1].at("name"), "clock");
  EXPECT_EQ(boost::json::serialize(content[1].at("input")), R"({"zone":"UTC"})");
  EXPECT_NE(content[1].at("id"), message(kClock).json().at("content").as_array()[1].at("id")) << "the id of a call is unique";
}

// In a whole answer an input is an object with the complete parts. The text of a truncated call is never a block.
TEST_F(MessagesHttp, KeepsACallThatTheLengthCutsOff) {
  begin(kCallOfClock);
  for (std::size_t size = 8; size < std::string_view(kCallOfClock).size() - 13; ++size) {
    const std::string length = R"(, "max_tokens": )" + std::to_string(size);
    const auto body = [&](const char* more) {
      return post("/v1/messages",
                  R"({"model": "bytes", "messages": [{"role": "user", "content": "hi"}], )" + (kClock + length) + more + "}");
    };
    const auto answer = body("").json();
    EXPECT_EQ(answer.at("stop_reason"), "max_tokens");
    const auto& content = answer.at("content").as_array();
    EXPECT_EQ(std::string(content[0].at("text").as_string()).find("<t"), std::string::npos) << boost::json::serialize(answer);
    if (content.size() > 1) EXPECT_TRUE(content[1].at("type") == "tool_use" && content[1].at("input").is_object());
    EXPECT_LE(content.size(), 2U);
    const std::string stream = body(R"(, "stream": true)").body;
    EXPECT_EQ(stream.find("<tool"), std::string::npos) << stream;
    EXPECT_NE(stream.find(R"("stop_reason":"max_tokens")"), std::string::npos);
    EXPECT_EQ(stream.find(R"("type":"tool_use")") != std::string::npos, content.size() > 1);
  }
  const std::string half =
      R"("messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [{"type": "tool_use", "id": "a",
      "name": "clock", "input": "{\"zone\": \"UT"}]}, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "?"}]}])";
  EXPECT_EQ(post("/v1/messages", R"({"model": "bytes", "max_tokens": 9, )" + half + "}").status, 200U) << "as a stream reports it";
}

TEST_F(MessagesHttp, DropsFurtherCallsWhenParallelCallsAreOff) {
  begin(std::string(kCallOfClock) + "\n" + std::string(kCallOfClock).substr(6) + " Done.");
  const std::string one = std::string(kClock) + R"(, "tool_choice": {"type": "auto", "disable_parallel_tool_use": true})";
  const auto content = message(one).json().at("content").as_array();
  ASSERT_EQ(content.size(), 3U);
  EXPECT_EQ(content[1].at("type"), "tool_use");
  EXPECT_EQ(content[2].at("text"), " Done.");
  EXPECT_EQ(message(one + R"(, "stream": true)").body.find("tool_call"), std::string::npos);
}

// Returns the types of a stream's events in order, without repetitions.
std::vector<std::string> event_types(const std::string& body) {
  std::vector<std::string> types;
  for (std::size_t at = body.find("event: "); at != std::string::npos; at = body.find("event: ", at + 1)) {
    const std::string type = body.substr(at + 7, body.find('\n', at) - at - 7);
    if (types.empty() || types.back() != type) types.push_back(type);
  }
  return types;
}

TEST_F(MessagesHttp, StreamsAnthropicsEvents) {
  begin(kCallOfClock);
  const auto stream = message(std::string(kClock) + R"(, "stream": true)");
  EXPECT_EQ(stream.status, 200U);
  EXPECT_EQ(event_types(stream.body), (std::vector<std::string>{"message_start", "ping", "content_block_start", "content_block_delta",
                                                                "content_block_stop", "content_block_start", "content_block_delta",
                                                                "content_block_stop", "message_delta", "message_stop"}));
  EXPECT_NE(stream.body.find(R"("stop_reason":"tool_use")"), std::string::npos);
  EXPECT_NE(stream.body.find(R"("type":"input_json_delta")"), std::string::npos);
  EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
}

TEST_F(MessagesHttp, ReturnsAllErrorsInAnthropicsFormat) {
  begin("hello", {.api_key = "secret", .max_body_bytes = 100'000});
  const auto type_of = [](const ClientResponse& response) {
    const auto body = response.json();
    EXPECT_EQ(body.at("type"), "error");
    EXPECT_FALSE(body.at("error").at("message").as_string().empty());
    return std::string(body.at("error").at("type").as_string());
  };
  const std::string key = "X-Api-Key: secret\r\n";
  EXPECT_EQ(type_of(message("")), "authentication_error");
  EXPECT_EQ(type_of(message("", "X-Api-Key: wrong\r\n")), "authentication_error");
  EXPECT_EQ(message("", key).status, 200U);
  EXPECT_EQ(type_of(message(R"("temperature": "hot")", key)), "invalid_request_error");
  EXPECT_EQ(type_of(message(R"("n": 2)", key)), "invalid_request_error");
  EXPECT_EQ(type_of(post("/v1/messages", "{", key)), "invalid_request_error");
  EXPECT_EQ(type_of(post("/v1/messages", R"({"model": "other", "max_tokens": 1, "messages": [{"role": "user", "content": "a"}]})", key)),
            "not_found_error");
  EXPECT_EQ(type_of(message("\"system\": \"" + std::string(200'000, 'x') + "\"", key)), "request_too_large");
  EXPECT_EQ(type_of(post("/v1/messages/count_tokens", R"({"messages": 3})", key)), "invalid_request_error");
}

TEST_F(MessagesHttp, AppliesContextManagement) {
  begin("hello");
  const std::string body = R"({"model": "bytes", "max_tokens": 9, "messages": [{"role": "user", "content": "a"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "first"}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "t2", "name": "f", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": "second"}]}],
    "context_management": {"edits": [{"type": "clear_tool_uses_20250919", "keep": {"type": "tool_uses", "value": 1},
      "trigger": {"type": "input_tokens", "value": )";
  const auto prompt_of = [&](const char* trigger) {
    EXPECT_EQ(post("/v1/messages", body + trigger + "}}]}}").status, 200U);
    return tokens_to_bytes(engine.at(num_asked++).request.prompt);
  };
  EXPECT_NE(prompt_of("4000").find("<tool>first<assistant>"), std::string::npos);
  const std::string cleared = prompt_of("10");
  EXPECT_NE(cleared.find("<tool>[Old tool result content cleared]<assistant>"), std::string::npos);
  EXPECT_NE(cleared.find("<tool>second<assistant>"), std::string::npos);
}

TEST_F(MessagesHttp, UsesAgentSessionsAsJobIds) {
  begin("hello");
  const auto job_of = [&](const std::string& fields, const std::string& headers) {
    EXPECT_EQ(message(fields, headers).status, 200U);
    return engine.at(num_asked++).request.tags.job;
  };
  EXPECT_EQ(job_of("", ""), "");
  EXPECT_EQ(job_of(R"("metadata": {"user_id": "u"})", ""), "u");
  EXPECT_EQ(job_of("", "X-Claude-Code-Session-Id: s-1\r\n"), "s-1");
  EXPECT_EQ(job_of(R"("metadata": {"user_id": "u"})", "X-Claude-Code-Session-Id: s-1\r\n"), "s-1") << "a user has several sessions";
  EXPECT_EQ(job_of(R"("metadata": {"user_id": "u"}, "job_id": "j")", "session_id: s-1\r\n"), "j") << "an explicit job_id has priority";
  const std::string hash = job_of(R"("metadata": {"user_id": ")" + std::string(300, 'u') + "\"}", "");
  EXPECT_EQ(hash.size(), 64U) << "long ids are hashed";
  EXPECT_EQ(job_of("", "session_id: a b\r\n"), "") << "an invalid session id is ignored";
}

TEST_F(MessagesHttp, ReportsAnIgnoredFieldOfATool) {
  begin("hello");
  const auto answer = message(R"("tools": [{"name": "f", "input_schema": {}, "defer_loading": true}])");
  EXPECT_EQ(answer.status, 200U);
  EXPECT_EQ(answer.header("X-Quire-Ignored-Fields"), "tools[0].defer_loading");
}

TEST_F(MessagesHttp, StrictFieldsRefuseIgnoredFields) {
  begin("hello", {.strict_fields = true});
  EXPECT_EQ(message(R"("metadata": {"user_id": "u"})").status, 200U) << "user_id names a session";
  EXPECT_EQ(message(R"("service_tier": "auto")").status, 400U);
  EXPECT_EQ(message(R"("tools": [{"type": "web_search_20250305", "name": "web_search"}])").status, 400U);
  EXPECT_EQ(message(R"("tools": [{"name": "f", "input_schema": {}, "defer_loading": true}])").status, 400U);
  const auto block = post("/v1/messages", R"({"model": "bytes", "max_tokens": 9, "messages": [{"role": "user", "content": [
    {"type": "text", "text": "hi", "citations": []}]}]})");
  EXPECT_EQ(block.status, 400U);
  EXPECT_NE(block.body.find("messages[0].content[0].citations"), std::string::npos) << block.body;
  const auto refused = post("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "a"}], "xyzzy": 1})");
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.json().at("error").at("param"), "xyzzy");
}

// Tests Anthropic's cache diagnostics with the original field values.
TEST_F(MessagesHttp, DiagnosticsReportWhatChangedSinceAnEarlierAnswer) {
  begin("hello");
  const auto id_of = [](const ClientResponse& response) { return std::string(response.json().at("id").as_string()); };
  const auto diagnostics_of = [](const ClientResponse& response) { return boost::json::serialize(response.json().at("diagnostics")); };
  const ClientResponse first = message(R"("system": "be brief", "diagnostics": {"previous_message_id": null})");
  EXPECT_EQ(diagnostics_of(first), "null") << "there is no earlier message";
  const auto compare = [&](const std::string& more) {
    return diagnostics_of(message(more + R"("diagnostics": {"previous_message_id": ")" + id_of(first) + "\"}"));
  };
  EXPECT_EQ(compare(R"("system": "be brief", )"), "null") << "nothing has changed";
  // Both prompts begin with "<system>be ", less than one block of tokens, so all tokens count as missed.
  EXPECT_EQ(compare(R"("system": "be lengthy", )"), R"({"cache_miss_reason":{"type":"system_changed","cache_missed_input_tokens":35}})");
  EXPECT_TRUE(compare(std::string(kClock) + R"(, "system": "be brief", )").contains(R"("type":"tools_changed")"));
  EXPECT_EQ(compare(R"("system": "be brief", "thinking": {"type": "disabled"}, )"), R"({"cache_miss_reason":{"type":"unavailable"}})");
  EXPECT_EQ(diagnostics_of(message(R"("diagnostics": {"previous_message_id": "msg_gone"})")),
            R"({"cache_miss_reason":{"type":"previous_message_not_found"}})");
  EXPECT_FALSE(message("").json().as_object().contains("diagnostics")) << "diagnostics were not requested";
  EXPECT_EQ(message(R"("diagnostics": "all")").status, 400U);
  const auto other = post("/v1/messages", R"({"model": "bytes", "max_tokens": 9, "system": "be brief", "stream": true, "messages": [
    {"role": "user", "content": "hello"}], "diagnostics": {"previous_message_id": ")" +
                                              id_of(first) + "\"}}");
  EXPECT_TRUE(other.body.contains(R"("diagnostics":{"cache_miss_reason":{"type":"messages_changed")")) << other.body;
}

TEST_F(MessagesHttp, DiagnosticsDoNotFindAnotherTenantsAnswer) {
  begin("hello", {.tenant_keys = {{"us", "our-key"}, {"them", "their-key"}}});
  const auto as = [](const std::string& key) { return "x-api-key: " + key + "\r\n"; };
  const auto first = message(R"("diagnostics": {"previous_message_id": null})", as("our-key"));
  const std::string again = R"("diagnostics": {"previous_message_id": ")" + std::string(first.json().at("id").as_string()) + "\"}";
  EXPECT_TRUE(message(again, as("our-key")).json().at("diagnostics").is_null());
  EXPECT_TRUE(message(again, as("their-key")).body.contains("previous_message_not_found"));
}

}  // namespace
}  // namespace quire
