// Tests /v1/responses over real sockets, with an engine that answers immediately.
#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

constexpr const char* kTurnsTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}{% if tools %}{{ tools | length }}<tool_call>\n"
    "{\"name\": <name>, \"arguments\": <object>}\n</tool_call>{% endif %}<assistant>";

class ResponsesHttp : public RunningServer {
 protected:
  void begin(const std::string& answer, ServerOptions options = {}) {
    engine.set_chat_template(kTurnsTemplate);
    engine.answer_with(answer);
    engine.set_max_model_len(4096);
    start(std::move(options));
  }
  ClientResponse respond(const std::string& fields, const std::string& headers = {}) {
    return post("/v1/responses", "{" + fields + "}", headers);
  }
  ClientResponse ask(const std::string& method, const std::string& path, const std::string& headers = {}) {
    HttpClient client(port);
    client.send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
    return client.receive();
  }
  static std::string text_of(const boost::json::value& response) {
    return std::string(response.at("output").as_array().back().at("content").as_array().front().at("text").as_string());
  }
  static std::string id_of(const boost::json::value& response) { return std::string(response.at("id").as_string()); }
};

TEST_F(ResponsesHttp, ReturnsAResponse) {
  begin("hello");
  const auto answer = respond(R"("input": "hi", "instructions": "be brief", "metadata": {"k": "v"})").json();
  EXPECT_TRUE(id_of(answer).starts_with("resp_"));
  EXPECT_EQ(answer.at("object"), "response");
  EXPECT_EQ(answer.at("status"), "completed");
  EXPECT_EQ(text_of(answer), "hello");
  EXPECT_EQ(answer.at("usage").at("output_tokens"), 6);
  EXPECT_EQ(answer.at("metadata").at("k"), "v");
  EXPECT_EQ(post("/v1/responses/input_tokens", R"({"input": "hi", "instructions": "be brief"})").json().at("input_tokens"),
            answer.at("usage").at("input_tokens"));
}

constexpr const char* kClockTool =
    R"("input": "hi", "tools": [{"type": "function", "name": "clock", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}])";
constexpr const char* kCallOfZone = "<tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>";

TEST_F(ResponsesHttp, KeepsACallThatMaxTokensTruncates) {
  begin(kCallOfZone);
  const auto cut = respond(std::string(kClockTool) + R"(, "max_output_tokens": 55)").json();
  EXPECT_EQ(cut.at("status"), "incomplete");
  ASSERT_EQ(cut.at("output").as_array().size(), 1U);
  const auto& item = cut.at("output").as_array()[0];
  EXPECT_EQ(item.at("type"), "function_call");
  EXPECT_EQ(item.at("status"), "incomplete");
  EXPECT_EQ(item.at("arguments"), R"({"zone": "UT)");
  const std::string stream = respond(std::string(kClockTool) + R"(, "max_output_tokens": 55, "stream": true)").body;
  EXPECT_NE(stream.find("function_call_arguments.delta"), std::string::npos);
  EXPECT_EQ(stream.find("<tool_call>"), std::string::npos) << stream;
  EXPECT_EQ(stream.find("output_text"), std::string::npos) << stream;
  const std::string result =
      R"({"type": "function_call_output", "call_id": )" + boost::json::serialize(item.at("call_id")) + R"(, "output": "was cut off"})";
  EXPECT_EQ(respond(R"("input": [)" + result + R"(], "previous_response_id": ")" + id_of(cut) + "\"").status, 200U)
      << "the stored call is accepted";
  const std::string turns = R"("input": [{"role": "user", "content": "hi"}, )" + boost::json::serialize(item) + ", " + result + "]";
  EXPECT_EQ(respond(turns).status, 200U) << "the returned call is accepted";
}

TEST_F(ResponsesHttp, DropsFurtherCallsWhenParallelCallsAreOff) {
  begin(std::string(kCallOfZone) + "\n" + kCallOfZone);
  const std::string one = std::string(kClockTool) + R"(, "parallel_tool_calls": false)";
  EXPECT_EQ(respond(one).json().at("output").as_array().size(), 1U);
  EXPECT_EQ(respond(one + R"(, "stream": true)").body.find("<tool_call>"), std::string::npos);
  EXPECT_EQ(respond(kClockTool).json().at("output").as_array().size(), 2U);
}

// The next turn begins with the tokens of the last turn and its answer, even if the tokenizer would split their text differently.
TEST_F(ResponsesHttp, TurnBeginsWithTheTokensOfThePreviousTurn) {
  begin("hello");
  const auto first = respond(R"("input": "hi")").json();
  const auto second = respond(R"("input": "more", "previous_response_id": ")" + id_of(first) + "\"").json();
  EXPECT_EQ(second.at("previous_response_id"), first.at("id"));
  auto expected = bytes_to_tokens("<user>hi");
  const auto add = [&](const std::string& text) {
    for (const TokenId token : bytes_to_tokens(text)) expected.push_back(token);
  };
  expected.push_back(kFakeEos);
  add("<assistant>");
  EXPECT_EQ(engine.at(0).request.prompt, expected);
  add("hello");
  expected.push_back(kFakeEos);
  add("<user>more");
  expected.push_back(kFakeEos);
  add("<assistant>");
  EXPECT_EQ(engine.at(1).request.prompt, expected);
  const auto third = respond(R"("input": "yet more", "previous_response_id": ")" + id_of(second) + "\"");
  EXPECT_EQ(third.status, 200U);
  const auto prompt = engine.at(2).request.prompt;
  EXPECT_TRUE(std::ranges::equal(expected, std::span(prompt).first(std::min(prompt.size(), expected.size()))));
}

TEST_F(ResponsesHttp, StoredResponsesCanBeReadAndDeleted) {
  begin("hello");
  const auto answer = respond(R"("input": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])");
  const std::string path = "/v1/responses/" + id_of(answer.json());
  EXPECT_EQ(ask("GET", path).body, answer.body);
  EXPECT_EQ(ask("GET", path + "?stream=true").status, 400U);
  const auto items = ask("GET", path + "/input_items?order=asc&limit=1").json();
  EXPECT_EQ(items.at("data").as_array().size(), 1U);
  EXPECT_EQ(items.at("data").as_array().front().at("content"), "a");
  EXPECT_EQ(items.at("has_more"), true);
  const auto rest = ask("GET", path + "/input_items?order=asc&after=" + std::string(items.at("last_id").as_string())).json();
  EXPECT_EQ(rest.at("data").as_array().front().at("content"), "b");
  EXPECT_EQ(rest.at("has_more"), false);
  for (const char* query : {"?limit=0", "?limit=x", "?order=up", "?bogus=1"})
    EXPECT_EQ(ask("GET", path + "/input_items" + query).status, 400U) << query;
  EXPECT_EQ(ask("DELETE", path).json().at("deleted"), true);
  for (const auto& response : {ask("GET", path), ask("DELETE", path), ask("GET", path + "/input_items")}) EXPECT_EQ(response.status, 404U);
  EXPECT_EQ(respond(R"("input": "c", "previous_response_id": ")" + id_of(answer.json()) + "\"").status, 404U);
  const auto wrong = ask("PUT", path);
  EXPECT_EQ(wrong.status, 405U);
  EXPECT_EQ(wrong.header("Allow"), "GET, DELETE");
}

TEST_F(ResponsesHttp, StoresNothingWithoutABudget) {
  begin("hello", {.max_response_store_bytes = 0});
  const auto answer = respond(R"("input": "a")").json();
  EXPECT_EQ(answer.at("store"), false);
  EXPECT_EQ(ask("GET", "/v1/responses/" + id_of(answer)).status, 404U);
  const auto refused = respond(R"("input": "a", "previous_response_id": ")" + id_of(answer) + "\"");
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.error_param(), "previous_response_id");
}

TEST_F(ResponsesHttp, StoreFalseDoesNotStore) {
  begin("hello");
  const auto answer = respond(R"("input": "a", "store": false)").json();
  EXPECT_EQ(answer.at("store"), false);
  EXPECT_EQ(ask("GET", "/v1/responses/" + id_of(answer)).status, 404U);
}

TEST_F(ResponsesHttp, TenantsFindOnlyTheirResponses) {
  begin("hello", {.tenant_keys = {{"a", "key-a"}, {"b", "key-b"}}});
  const std::string of_a = "Authorization: Bearer key-a\r\n", of_b = "Authorization: Bearer key-b\r\n";
  const std::string path = "/v1/responses/" + id_of(respond(R"("input": "a")", of_a).json());
  EXPECT_EQ(ask("GET", path, of_a).status, 200U);
  EXPECT_EQ(ask("GET", path, of_b).status, 404U);
  EXPECT_EQ(ask("DELETE", path, of_b).status, 404U);
  EXPECT_EQ(ask("GET", path).status, 401U);
}

TEST_F(ResponsesHttp, StreamedResponsesAreStored) {
  begin("It is <tool_call>\n{\"name\": \"clock\", \"arguments\": {\"zone\": \"UTC\"}}\n</tool_call>");
  const auto stream = respond(R"("input": "a", "stream": true, "tools": [{"type": "function", "name": "clock"}])");
  ASSERT_EQ(stream.status, 200U);
  EXPECT_EQ(stream.body.find("[DONE]"), std::string::npos);
  const std::size_t at = stream.body.rfind("\ndata: ");
  const auto last = boost::json::parse(stream.body.substr(at + 7, stream.body.find('\n', at + 7) - at - 7));
  EXPECT_EQ(last.at("type"), "response.completed");
  const auto& output = last.at("response").at("output").as_array();
  ASSERT_EQ(output.size(), 2U);
  EXPECT_EQ(output[1].at("arguments"), R"({"zone": "UTC"})");
  const auto kept = ask("GET", "/v1/responses/" + id_of(last.at("response")));
  EXPECT_EQ(kept.json(), last.at("response"));
  const auto next =
      respond(R"("input": [{"type": "function_call_output", "call_id": ")" + std::string(output[1].at("call_id").as_string()) +
              R"(", "output": "12:00"}], "previous_response_id": ")" + id_of(last.at("response")) + "\"");
  EXPECT_EQ(next.status, 200U) << next.body;
  const auto unknown = respond(R"("input": [{"type": "function_call_output", "call_id": "other", "output": "12:00"}])");
  EXPECT_EQ(unknown.status, 400U);
  EXPECT_EQ(unknown.error_param(), "input");
}

std::string bytes_of(const boost::json::value& logprobs) {
  std::string bytes;
  for (const auto& token : logprobs.as_array()) {
    EXPECT_EQ(token.at("top_logprobs").as_array().size(), 2U);
    for (const auto& byte : token.at("bytes").as_array()) bytes += static_cast<char>(byte.as_int64());
  }
  return bytes;
}

constexpr const char* kThoughtTextCallText =
    "<think>\nhm\n</think>\n\nIt is \xC3\xA9 <tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call> ok <b";
constexpr const char* kWithLogprobs =
    R"("input": "a", "tools": [{"type": "function", "name": "clock"}], "include": ["message.output_text.logprobs"], "top_logprobs": 2)";

// Each text has the log probabilities of its tokens, independent of the other parts of the answer.
TEST_F(ResponsesHttp, EachTextHasTheLogprobsOfItsTokens) {
  engine.set_chat_template(std::string(kTurnsTemplate) + "{# <think></think> #}");
  engine.answer_with(kThoughtTextCallText);
  start();
  const auto answer = respond(kWithLogprobs).json();
  const auto& output = answer.at("output").as_array();
  ASSERT_EQ(output.size(), 4U) << boost::json::serialize(output);
  EXPECT_EQ(output[0].at("type"), "reasoning");
  EXPECT_EQ(output[2].at("type"), "function_call");
  for (const auto& [index, text] : {std::pair(1, "It is \xC3\xA9"), std::pair(3, " ok <b")}) {
    const auto& part = output.at(index).at("content").at(0);
    EXPECT_EQ(part.at("text"), text);
    EXPECT_EQ(bytes_of(part.at("logprobs")), text);
  }
}

TEST_F(ResponsesHttp, DeltasHaveTheLogprobsOfTheirTokens) {
  engine.set_chat_template(std::string(kTurnsTemplate) + "{# <think></think> #}");
  engine.answer_with(kThoughtTextCallText);
  start();
  const auto stream = respond(std::string(kWithLogprobs) + R"(, "stream": true)");
  std::map<std::int64_t, std::string> told;
  std::size_t num_done = 0;
  for (std::size_t at = stream.body.find("\ndata: "); at != std::string::npos; at = stream.body.find("\ndata: ", at + 1)) {
    const auto event = boost::json::parse(stream.body.substr(at + 7, stream.body.find('\n', at + 7) - at - 7));
    if (event.at("type") == "response.output_text.delta") {
      EXPECT_EQ(bytes_of(event.at("logprobs")), event.at("delta").as_string());
      told[event.at("output_index").as_int64()] += event.at("delta").as_string();
    } else if (event.at("type") == "response.output_text.done") {
      EXPECT_EQ(bytes_of(event.at("logprobs")), told[event.at("output_index").as_int64()]);
      ++num_done;
    }
  }
  EXPECT_EQ(told, (std::map<std::int64_t, std::string>{{1, "It is \xC3\xA9"}, {3, " ok <b"}}));
  EXPECT_EQ(num_done, 2U);
}

TEST_F(ResponsesHttp, CallsCanBeRequiredByNameOrFromAList) {
  begin("<tool_call>\n{\"name\": \"clock\", \"arguments\": {}}\n</tool_call>");
  for (const char* choice : {R"({"type": "function", "name": "clock"})", R"("required")",
                             R"({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "clock"}]})"}) {
    const auto answer = respond(R"("input": "a", "tools": [{"type": "function", "name": "clock"}, {"type": "function", "name": "cook"}],
      "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}, "tool_choice": )" +
                                std::string(choice));
    ASSERT_EQ(answer.status, 200U) << answer.body;
    EXPECT_EQ(answer.json().at("output").as_array().front().at("name"), "clock");
  }
}

TEST_F(ResponsesHttp, ErrorsNameTheFieldsOfTheClient) {
  begin("hello");
  const std::pair<const char*, const char*> cases[] = {
      {R"("input": "a", "max_output_tokens": 100000)", "max_output_tokens"},
      {R"("input": "a", "temperature": "hot")", "temperature"},
      {R"("input": "a", "tools": [{"type": "function", "name": "no good"}])", "tools[0].name"},
      {R"("input": "a", "tool_choice": {"type": "function", "name": "f"})", "tool_choice"},
      {R"("input": "a", "text": {"format": {"type": "xml"}})", "text.format.type"},
      {R"("input": "a", "reasoning": {"effort": "enormous"})", "reasoning.effort"},
  };
  for (const auto& [fields, field] : cases) {
    const auto refused = respond(fields);
    EXPECT_EQ(refused.status, 400U) << fields;
    EXPECT_EQ(refused.error_param(), field);
  }
  EXPECT_EQ(respond(R"("input": "a", "model": "other")").status, 404U);
}

// Tests OpenAI's prompt-cache diagnostics with the original field values.
TEST_F(ResponsesHttp, DiagnosticsReportWhatChangedSinceAnEarlierResponse) {
  begin("hello");
  const auto first = respond(R"("input": "hi there", "instructions": "be brief")").json();
  EXPECT_FALSE(first.as_object().contains("prompt_cache_diagnostics")) << "diagnostics were not requested";
  const auto compare = [&](const std::string& more) {
    const auto response = respond(more + R"(, "prompt_cache_options": {"comparison_response_id": ")" + id_of(first) + "\"}").json();
    return boost::json::serialize(response.at("prompt_cache_diagnostics"));
  };
  // The engine of this test finds 16 tokens of each prompt, and both prompts share a longer prefix.
  EXPECT_EQ(compare(R"("input": "hi there", "instructions": "be brief")"), R"({"type":"cache_hit"})");
  EXPECT_TRUE(
      compare(R"("input": "ho there", "instructions": "be brief")").starts_with(R"({"type":"cache_miss","reason":"input_changed")"));
  EXPECT_TRUE(compare(R"("input": "hi there", "instructions": "be long")").starts_with(R"({"type":"cache_miss","reason":"input_changed")"));
  EXPECT_TRUE(compare(R"("input": "hi there", "instructions": "be brief", "tools": [{"type": "function", "name": "f", "parameters": {}}])")
                  .starts_with(R"({"type":"cache_miss","reason":"tools_changed","cache_missed_tokens":)"));
  const auto gone = respond(R"("input": "hi", "prompt_cache_options": {"comparison_response_id": "resp_gone"})").json();
  EXPECT_EQ(gone.at("prompt_cache_diagnostics").at("type"), "comparison_response_not_found");
  const auto refused = respond(R"("input": "hi", "prompt_cache_options": 3)");
  EXPECT_EQ(refused.status, 400U);
  EXPECT_EQ(refused.error_param(), "prompt_cache_options");
}

}  // namespace
}  // namespace quire
