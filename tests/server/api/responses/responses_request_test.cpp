// Tests the conversion of /v1/responses bodies to chats.
#include "server/api/responses/responses_request.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>
#include <vector>

namespace quire {
namespace {

namespace json = boost::json;

class ResponsesRequest : public ::testing::Test {
 protected:
  Result<ChatOfResponse> read(const std::string& body) {
    ignored.clear();
    return chat_of_response(json::parse(body).as_object(), {store, "t"}, ignored);
  }
  json::value chat_of(const std::string& body) {
    auto read_body = read(body);
    EXPECT_TRUE(read_body.has_value()) << read_body.error().to_string();
    return read_body ? json::value(std::move(read_body->chat)) : json::value();
  }
  std::string error_of(const std::string& body) {
    const auto read_body = read(body);
    EXPECT_FALSE(read_body.has_value()) << body;
    return read_body ? "" : read_body.error().field;
  }
  void keep(const std::string& id, const std::string& output, const std::string& conversation) {
    store.put("t", std::make_shared<const StoredResponse>(
                       StoredResponse{id, R"({"id":")" + id + R"(","output":)" + output + "}", "[]", conversation, {7, 8}}));
  }

  ResponseStore store{1 << 20};
  std::vector<std::string> ignored;
};

TEST_F(ResponsesRequest, TextBecomesAUserMessage) {
  EXPECT_EQ(chat_of(R"({"model": "m", "input": "hi", "instructions": "be brief", "max_output_tokens": 5, "temperature": 0.5})"),
            json::parse(R"({"model": "m", "max_completion_tokens": 5, "temperature": 0.5,
              "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]})"));
}

TEST_F(ResponsesRequest, ItemsBecomeMessages) {
  const json::value chat = chat_of(R"({"input": [
    {"role": "developer", "content": "d"},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
    {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "wait", "annotations": []}]},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call", "call_id": "2", "name": "g", "arguments": "{\"x\":1}"},
    {"type": "function_call_output", "call_id": "1", "output": "one"},
    {"type": "function_call_output", "call_id": "2", "output": [{"type": "input_text", "text": "two"}]},
    {"type": "message", "role": "assistant", "content": "done"},
    {"type": "message", "role": "assistant", "content": "really"}]})");
  EXPECT_EQ(chat.at("messages"), json::parse(R"([{"role": "system", "content": "d"}, {"role": "user", "content": "a\nb"},
    {"role": "assistant", "content": "wait", "reasoning_content": "hm", "tool_calls": [
      {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
      {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{\"x\":1}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "one"}, {"role": "tool", "tool_call_id": "2", "content": "two"},
    {"role": "assistant", "content": "done"}, {"role": "assistant", "content": "really"}])"));
}

TEST_F(ResponsesRequest, ConvertsFieldsToChatFields) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("tools": [{"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}])",
       R"("tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"type": "object"}, "strict": true}}])"},
      {R"("tool_choice": "required", "parallel_tool_calls": false)", R"("tool_choice": "required", "parallel_tool_calls": false)"},
      {R"("tool_choice": {"type": "function", "name": "f"})", R"("tool_choice": {"type": "function", "name": "f"})"},
      {R"("text": {"format": {"type": "json_object"}})", R"("response_format": {"type": "json_object"})"},
      {R"("text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": true}, "verbosity": "medium"})",
       R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": true}})"},
      {R"("reasoning": {"effort": "low", "summary": "auto"})", R"("reasoning_effort": "low")"},
      {R"("include": ["message.output_text.logprobs"], "top_logprobs": 2)", R"("logprobs": true, "top_logprobs": 2)"},
      {R"("truncation": "auto", "background": false, "conversation": null)", R"("truncate_prompt_tokens": -1)"},
      {R"("tools": [{"type": "namespace", "name": "n", "tools": []}, {"type": "function", "name": "f"}])",
       R"("tools": [{"type": "namespace"}, {"type": "function", "function": {"name": "f"}}])"},
      {R"("prompt_cache_key": "k", "context_management": [{"type": "compaction"}])", R"("prompt_cache_key": "k")"},
      {R"("stream": true, "top_p": 0.5, "job_id": "j", "cache_salt": "s")",
       R"("stream": true, "top_p": 0.5, "job_id": "j", "cache_salt": "s")"},
  };
  for (const auto& [field, expected] : cases) {
    EXPECT_EQ(chat_of(R"({"input": "a", )" + std::string(field) + "}"),
              json::parse("{" + std::string(expected) + R"(, "messages": [{"role": "user", "content": "a"}]})"))
        << field;
  }
}

TEST_F(ResponsesRequest, AnswerRepeatsTheSettings) {
  const auto read_body =
      read(R"({"input": "a", "instructions": "i", "metadata": {"k": "v"}, "tools": [{"type": "function", "name": "f"}], "user": "u"})");
  ASSERT_TRUE(read_body.has_value());
  const json::value settings = json::parse("{" + read_body->call.settings + "}");
  EXPECT_EQ(settings.at("instructions"), "i");
  EXPECT_EQ(settings.at("metadata").at("k"), "v");
  EXPECT_EQ(settings.at("tools").as_array().front().at("name"), "f");
  EXPECT_EQ(settings.at("tool_choice"), "auto");
  EXPECT_EQ(settings.at("store"), true);
  EXPECT_EQ(settings.at("top_p"), 1.0);
  EXPECT_EQ(ignored, (std::vector<std::string>{"user"}));
  EXPECT_EQ(json::parse(read_body->call.conversation), json::parse(R"([{"role": "user", "content": "a"}])"))
      << "instructions apply to one turn only";
}

TEST_F(ResponsesRequest, ContinuesAConversation) {
  keep("resp_1", "[]", R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  const auto read_body = read(R"({"input": "c", "instructions": "new", "previous_response_id": "resp_1"})");
  ASSERT_TRUE(read_body.has_value());
  EXPECT_EQ(read_body->chat.at("messages"), json::parse(R"([{"role":"system","content":"new"},{"role":"user","content":"a"},
    {"role":"assistant","content":"b"},{"role":"user","content":"c"}])"));
  ASSERT_NE(read_body->previous, nullptr);
  EXPECT_EQ(read_body->previous->tokens, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(error_of(R"({"input": "c", "previous_response_id": "resp_2"})"), "previous_response_id");
}

TEST_F(ResponsesRequest, AcceptsReferencesToStoredItems) {
  keep("resp_1", R"([{"id":"rs_1_0","type":"reasoning","content":[{"type":"reasoning_text","text":"hm"}]},
    {"id":"msg_1_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]}])",
       "[]");
  EXPECT_EQ(chat_of(R"({"input": [{"role": "user", "content": "a"}, {"type": "item_reference", "id": "rs_1_0"}, {"id": "msg_1_1"}]})")
                .at("messages"),
            json::parse(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":"hm"}])"));
  for (const char* gone : {"msg_1_0", "msg_1_2", "msg_2_0", "msg_1_", "msg", "", "_", "__", "msg_1_99999999999999999999"})
    EXPECT_EQ(error_of(R"({"input": [{"type": "item_reference", "id": ")" + std::string(gone) + "\"}]}"), "input[0].id") << gone;
}

TEST_F(ResponsesRequest, RefusesReferencesWhenTheStoreIsOff) {
  std::vector<std::string> names;
  ResponseStore none(0);
  const auto body = [](const char* text) { return json::parse(text).as_object(); };
  const auto refused = chat_of_response(body(R"({"input": "a", "previous_response_id": "resp_1"})"), {none, ""}, names);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  const auto taken = chat_of_response(body(R"({"input": "a", "store": true})"), {none, ""}, names);
  ASSERT_TRUE(taken.has_value());
  EXPECT_FALSE(taken->call.is_stored);
  EXPECT_NE(taken->call.settings.find(R"("store":false)"), std::string::npos);
}

TEST_F(ResponsesRequest, NamesTheInvalidField) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", "input"},
      {R"({"input": 3})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": [3]})", "input[0]"},
      {R"({"input": [{}]})", "input[0].type"},
      {R"({"input": [{"type": "web_search_call"}]})", "input[0].type"},
      {R"({"input": [{"role": "tool", "content": "a"}]})", "input[0].role"},
      {R"({"input": [{"role": "user"}]})", "input[0].content"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_file"}]}]})", "input[0].content[0].type"},
      {R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": 1}]}]})", "input[0].content[0].text"},
      {R"({"input": [{"type": "function_call", "name": "f"}]})", "input[0].call_id"},
      {R"({"input": [{"type": "function_call_output", "call_id": "1"}]})", "input[0].output"},
      {R"({"input": "a", "tools": [{}]})", "tools[0].type"},
      {R"({"input": "a", "tool_choice": {"type": "web_search"}})", "tool_choice"},
      {R"({"input": "a", "text": {"format": 3}})", "text.format"},
      {R"({"input": "a", "text": {"formt": {}}})", "text.formt"},
      {R"({"input": "a", "background": true})", "background"},
      {R"({"input": "a", "conversation": "c"})", "conversation"},
      {R"({"input": "a", "max_tokens": 5})", "max_tokens"},
      {R"({"input": "a", "max_output_tokens": 0})", "max_output_tokens"},
      {R"({"input": "a", "truncation": "some"})", "truncation"},
      {R"({"input": "a", "include": "x"})", "include"},
      {R"({"messages": [{"role": "user", "content": "a"}], "input": "a"})", "messages"},
  };
  for (const auto& [body, field] : cases) EXPECT_EQ(error_of(body), field) << body;
}

TEST_F(ResponsesRequest, ErrorsNameTheFieldsOfTheClient) {
  const auto renamed = [](const char* field) {
    return with_responses_field_names(Error{ErrorCode::invalid_argument, field, "is wrong", ""}).field;
  };
  EXPECT_EQ(renamed("messages[2].tool_call_id"), "input");
  EXPECT_EQ(renamed("max_tokens"), "max_output_tokens");
  EXPECT_EQ(renamed("response_format.json_schema.schema"), "text.format.schema");
  EXPECT_EQ(renamed("tools[1].function.name"), "tools[1].name");
  EXPECT_EQ(renamed("temperature"), "temperature");
}

}  // namespace
}  // namespace quire
