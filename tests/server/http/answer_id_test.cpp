// Tests the ids of answers to requests that share an X-Request-Id, as proxies and tracers send it, over real sockets.
#include "server/http/answer_id.h"

#include <fmt/format.h>

#include <set>
#include <string>
#include <vector>

#include "server/running_server.h"

namespace quire {
namespace {

constexpr const char* kSharedRequestId = "X-Request-Id: span-41_b.7\r\n";
constexpr const char* kTemplateOfIds =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ m.tool_calls }}{% endfor %}{{ tools }}tool_calls tool <tool_call>\n{\"name\": "
    "n, "
    "\"arguments\": a}\n</tool_call>";
constexpr const char* kCallOfIds = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
constexpr const char* kAskForCall =
    R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}}]})";

class AnswerIds : public RunningServer {
 protected:
  std::string id_of(const std::string& path, const std::string& body) {
    const ClientResponse answer = post(path, body, kSharedRequestId);
    EXPECT_EQ(answer.status, 200U) << answer.body;
    EXPECT_EQ(answer.header("X-Request-Id"), "span-41_b.7");
    return std::string(answer.json().at("id").as_string());
  }
};

TEST(AnswerId, EndsWithAUniquePart) {
  EXPECT_EQ(unique_part("chatcmpl-00ff"), "00ff");
  EXPECT_EQ(unique_part("msg_a-b_c-00ff"), "00ff");
  EXPECT_EQ(client_part("chatcmpl-00ff"), "");
  EXPECT_EQ(client_part("resp_a-b_c-00ff"), "resp_a-b_c");
}

TEST_F(AnswerIds, AreUniqueWhateverTheClientSends) {
  engine.answer_with("x");
  start();
  std::set<std::string> ids;
  for (int i = 0; i < 3; ++i) {
    ids.insert(id_of("/v1/completions", R"({"prompt": "p"})"));
    ids.insert(id_of("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}]})"));
    ids.insert(id_of("/v1/messages", R"({"model": "bytes", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]})"));
    ids.insert(id_of("/v1/responses", R"({"input": "x"})"));
  }
  EXPECT_EQ(ids.size(), 12U);
  for (const std::string& id : ids) EXPECT_NE(id.find("span-41_b.7"), std::string::npos) << "the id must contain the client's part: " << id;
}

TEST_F(AnswerIds, DoNotOverwriteStoredResponses) {
  engine.answer_with("x");
  start();
  const std::string first = id_of("/v1/responses", R"({"input": "one"})"), second = id_of("/v1/responses", R"({"input": "two"})");
  HttpClient client(port);
  EXPECT_EQ(client.get("/v1/responses/" + first).json().at("id").as_string(), first);
  EXPECT_EQ(client.get("/v1/responses/" + second).json().at("id").as_string(), second);
  const std::string items = client.get("/v1/responses/" + first + "/input_items").body;
  EXPECT_NE(items.find("one"), std::string::npos) << items;
  const ClientResponse branch = post("/v1/responses", R"({"input": "three", "previous_response_id": ")" + first + "\"}", kSharedRequestId);
  EXPECT_EQ(branch.json().at("previous_response_id").as_string(), first);
  EXPECT_NE(branch.json().at("id").as_string(), first);
}

TEST_F(AnswerIds, CallIdsAreUniqueAndValidForOtherVendors) {
  engine.set_chat_template(kTemplateOfIds);
  engine.answer_with(kCallOfIds);
  start();
  std::set<std::string> ids;
  for (int i = 0; i < 2; ++i) {
    const auto chat = post("/v1/chat/completions", kAskForCall, kSharedRequestId).json();
    ids.emplace(chat.at("choices").as_array()[0].at("message").at("tool_calls").as_array()[0].at("id").as_string());
    const auto message = post("/v1/messages",
                              R"({"model": "bytes", "max_tokens": 90, "messages": [{"role": "user", "content": "x"}],
                                  "tools": [{"name": "f", "input_schema": {"type": "object"}}]})",
                              kSharedRequestId)
                             .json();
    ids.emplace(message.at("content").as_array()[0].at("id").as_string());
    const auto response =
        post("/v1/responses", R"({"input": "x", "tools": [{"type": "function", "name": "f", "parameters": {}}]})", kSharedRequestId).json();
    ids.emplace(response.at("output").as_array()[0].at("call_id").as_string());
  }
  EXPECT_EQ(ids.size(), 6U);
  for (const std::string& id : ids) EXPECT_LE(id.size(), 40U) << id;
}

TEST_F(AnswerIds, FindTheNewestAnswerByRequestIdAndEachByItsFullId) {
  start();
  HttpClient one(port), two(port), child(port);
  one.send(HttpClient::post_text("/v1/completions", R"({"prompt": "of one", "stream": true})", kSharedRequestId));
  ASSERT_TRUE(engine.wait_submitted(1));
  two.send(HttpClient::post_text("/v1/completions", R"({"prompt": "of two", "stream": true})", kSharedRequestId));
  ASSERT_TRUE(engine.wait_submitted(2));
  child.send(HttpClient::post_text("/v1/requests/cmpl-span-41_b.7/fork", "{}"));
  ASSERT_TRUE(engine.wait_submitted(3));
  EXPECT_EQ(tokens_to_bytes(engine.at(2).request.prompt), "of two");
  for (std::uint64_t i = 0; i < 3; ++i) engine.end(RequestId{i}, FinishReason::stop);
  EXPECT_NE(stream_events(one.receive().body).front().at("id"), stream_events(two.receive().body).front().at("id"));
}

}  // namespace
}  // namespace quire
