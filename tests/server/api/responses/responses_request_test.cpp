// Tests the conversion of /v1/responses bodies to chats.
#include "server/api/responses/responses_request.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <memory>
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

struct ResponsesCase {
  std::string fields, error;
};

class ResponsesErrors : public ::testing::Test {
 protected:
  Result<ChatOfResponse> read(const std::string& fields) {
    ignored.clear();
    return chat_of_response(json::parse("{" + fields + "}").as_object(), {store, "t"}, ignored);
  }
  std::string error(const std::string& fields) {
    const auto chat = read(fields);
    return chat ? "accepted" : chat.error().to_string();
  }
  ResponseStore store{1 << 20};
  std::vector<std::string> ignored;
};

TEST_F(ResponsesErrors, NameTheFieldTheProblemAndTheFix) {
  const std::string in = R"("input":"a",)";
  const auto item = [](const std::string& text) { return R"("input":[)" + text + "]"; };
  const ResponsesCase cases[] = {
      {"", R"(input: is missing; send "input": "...")"},
      {R"("input":3)", R"(input: must be a string or an array of items, not integer 3; send "input": "...")"},
      {R"("input":[])", R"(input: is empty; send "input": "...")"},
      {item("3"), "input[0]: must be an object, not integer 3"},
      {item("{}"), R"(input[0].type: is missing; send {"role": "user", "content": "..."})"},
      {item(R"({"type":"web_search_call"})"),
       R"(input[0].type: is string "web_search_call"; send messages, function calls, function call outputs or reasoning)"},
      {item(R"({"role":"tool","content":"a"})"), "input[0].role: must be user, assistant, system or developer"},
      {item(R"({"role":"user"})"), "input[0].content: is missing; send a string"},
      {item(R"({"role":"user","content":3})"), "input[0].content: must be a string or an array of parts, not integer 3"},
      {item(R"({"role":"user","content":[3]})"),
       R"(input[0].content[0]: must be an object with a type; send {"type": "input_text", "text": "..."})"},
      {item(R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"input_file"}]})"),
       R"(input[0].content[1].type: is string "input_file"; send text: this model supports text only)"},
      {item(R"({"role":"user","content":[{"type":"input_text"}]})"), "input[0].content[0].text: must be a string"},
      {item(R"({"role":"assistant","content":[{"type":"refusal","text":"a"}]})"), "input[0].content[0].refusal: must be a string"},
      {item(R"({"type":"function_call","name":"f"})"), "input[0].call_id: must be a string"},
      {item(R"({"type":"function_call","call_id":"c"})"), "input[0].name: must be a string"},
      {item(R"({"type":"function_call_output","output":"a"})"), "input[0].call_id: must be the id of a function call"},
      {item(R"({"type":"function_call_output","call_id":"c"})"), "input[0].output: is missing; send a string"},
      {item(R"({"type":"item_reference","id":"x_1_0"})"),
       "input[0].id: 'x_1_0' is not an item stored on this server; send the item itself"},
      {in + R"("previous_response_id":"resp_1")",
       "previous_response_id: 'resp_1' is unknown or no longer stored; send the whole conversation as input"},
      {in + R"("tools":3)", "tools: must be an array, not integer 3"},
      {in + R"("tools":[3])", "tools[0]: must be an object, not integer 3"},
      {in + R"("tools":[{}])", R"(tools[0].type: is missing; send {"type": "function", ...})"},
      {in + R"("tool_choice":{})", R"(tool_choice: has no type; use "auto", "none", "required", functions or allowed_tools)"},
      {in + R"("tool_choice":{"type":"mcp"})",
       R"(tool_choice: has type string "mcp"; use "auto", "none", "required", functions or allowed_tools)"},
      {in + R"("tool_choice":{"type":"allowed_tools"})", "accepted"},
      {in + R"("text":3)", R"(text: must be an object, not integer 3; send {"format": {...}})"},
      {in + R"("text":{"format":3})", R"(text.format: must be an object, not integer 3; send {"type": "json_schema", ...})"},
      {in + R"("reasoning":3)", "reasoning: must be an object, not integer 3"},
      {in + R"("include":3)", "include: must be an array of strings, not integer 3"},
      {in + R"("top_logprobs":21)", "top_logprobs: is 21; use 0 to 20"},
      {in + R"("top_logprobs":20)", "accepted"},
      {in + R"("max_output_tokens":0)", "max_output_tokens: is 0; use 1 to 2147483647"},
      {in + R"("max_output_tokens":2147483647)", "accepted"},
      {in + R"("prompt_cache_options":3)", "prompt_cache_options: must be an object, not integer 3"},
      {in + R"("metadata":3)", "metadata: must be an object, not integer 3"},
      {in + R"("truncation":"some")", R"(truncation: is string "some"; use "auto" or "disabled")"},
  };
  for (const ResponsesCase& one : cases) EXPECT_EQ(error(one.fields), one.error) << one.fields;
  ResponseStore off(0);
  std::vector<std::string> names;
  EXPECT_EQ(chat_of_response(json::parse(R"({"input":"a","previous_response_id":"r"})").as_object(), {off, "t"}, names).error().to_string(),
            "previous_response_id: is not supported: this server does not store responses; send the whole conversation as input, or start "
            "the server with --response-store 64MiB");
}

TEST_F(ResponsesErrors, RefusesAReferenceToAReference) {
  store.put("t",
            std::make_shared<const StoredResponse>(StoredResponse{
                "resp_1", R"({"output":[{"id":"x_1_0"},{"id":"x_1_1","type":"message","role":"user","content":"a"}]})", "[]", "[]", {}}));
  EXPECT_EQ(error(R"("input":[{"id":"x_1_0"}])"), "input[0].id: refers to another reference");
  EXPECT_EQ(error(R"("input":[{"id":"x_1_1"},{"id":"x_1_1"}])"), "accepted") << "each item may be a reference";
}

TEST_F(ResponsesErrors, SettingsOfAnAnswerHaveAllFields) {
  const auto settings = [&](const std::string& fields) {
    auto chat = read(fields);
    EXPECT_TRUE(chat) << chat.error().to_string();
    return "{" + chat->call.settings + "}";
  };
  EXPECT_EQ(json::parse(settings(R"("input":"a")")), json::parse(R"({"instructions":null,"max_output_tokens":null,"max_tool_calls":null,
      "previous_response_id":null,"prompt_cache_key":null,"prompt_cache_retention":null,"safety_identifier":null,"user":null,"metadata":{},"parallel_tool_calls":true,
      "reasoning":{"effort":null,"summary":null},"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],
      "top_logprobs":0,"top_p":1.0,"truncation":"disabled","presence_penalty":0.0,"frequency_penalty":0.0,"background":false,
      "service_tier":"default","store":true})"));
  const json::value given = json::parse(settings(R"("input":"a","reasoning":{"effort":"low"},"text":{"verbosity":"low"},"top_p":0.5,
      "tools":[{"type":"function","name":"f"},{"type":"mcp"}],"store":false,"truncation":"auto")"));
  EXPECT_EQ(given.at("reasoning"), json::parse(R"({"effort":"low","summary":null})"));
  EXPECT_EQ(given.at("text"), json::parse(R"({"verbosity":"low","format":{"type":"text"}})"));
  EXPECT_EQ(given.at("tools"), json::parse(R"([{"type":"function","name":"f","description":null,"parameters":null,"strict":null},
      {"type":"mcp"}])"));
  EXPECT_EQ(given.at("store"), false);
  EXPECT_EQ(given.at("top_p"), 0.5);
  EXPECT_EQ(given.at("truncation"), "auto");
  EXPECT_EQ(json::parse(settings(R"("input":"a","service_tier":"flex")")).at("service_tier"), "flex");
  EXPECT_EQ(json::parse(settings(R"("input":"a","service_tier":"auto")")).at("service_tier"), "default");
}

TEST_F(ResponsesErrors, StoredCallsKeepInputAndConversation) {
  const auto stored = read(R"("input":"a","prompt_cache_options":{"comparison_response_id":"resp_0","mode":"x","ttl":"1h"})");
  ASSERT_TRUE(stored) << stored.error().to_string();
  EXPECT_TRUE(stored->call.is_stored);
  EXPECT_EQ(stored->call.input, R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}])");
  EXPECT_EQ(stored->call.conversation, R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(stored->call.compare_with, "resp_0");
  EXPECT_EQ(ignored, (std::vector<std::string>{"prompt_cache_options.mode"}));
  EXPECT_EQ(stored->chat.at("prompt_cache_retention"), "1h");
  const auto other = read(R"("input":"a","store":false)");
  EXPECT_FALSE(other->call.is_stored);
  EXPECT_EQ(other->call.input, "");
  EXPECT_EQ(other->call.conversation, "");
  EXPECT_FALSE(other->call.compare_with);
  const auto counted = [&](const std::string& fields) {
    auto chat = read(R"("input":"a",)" + fields);
    const json::value* wanted = chat->chat.if_contains("logprobs");
    return wanted == nullptr ? std::string("none") : json::serialize(*wanted) + json::serialize(chat->chat.at("top_logprobs"));
  };
  EXPECT_EQ(counted(R"("include":["message.output_text.logprobs"])"), "true0");
  EXPECT_EQ(counted(R"("include":["other"])"), "none");
  EXPECT_EQ(counted(R"("top_logprobs":0)"), "none");
  EXPECT_EQ(counted(R"("top_logprobs":1)"), "true1");
}

TEST_F(ResponsesErrors, ItemsOfTheModelBecomeOneMessageEach) {
  const auto messages = [&](const std::string& items) {
    auto chat = read(R"("input":[)" + items + "]");
    EXPECT_TRUE(chat) << chat.error().to_string();
    return json::serialize(chat->chat.at("messages"));
  };
  const std::string call = R"({"type":"function_call","call_id":"c","name":"f","arguments":"{}"})";
  const std::string called = R"("tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}])";
  EXPECT_EQ(messages(R"({"role":"assistant","content":"a"},{"role":"assistant","content":"b"})"),
            R"([{"role":"assistant","content":"a"},{"role":"assistant","content":"b"}])");
  EXPECT_EQ(messages(R"({"role":"assistant","content":"a"},)" + call), R"([{"role":"assistant","content":"a",)" + called + "}]");
  EXPECT_EQ(messages(call + R"(,{"role":"assistant","content":"a"})"),
            R"([{"role":"assistant","content":"",)" + called + R"(},{"role":"assistant","content":"a"}])");
  EXPECT_EQ(
      messages(R"({"type":"reasoning","summary":[{"type":"summary_text","text":"s"}],"content":[]},{"role":"assistant","content":"a"})"),
      R"([{"role":"assistant","content":"a","reasoning_content":"s"}])");
  EXPECT_EQ(messages(R"({"type":"reasoning"},{"role":"user","content":"a"})"), R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(messages(R"({"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"u"}]})"),
            R"([{"role":"user","content":[{"type":"text","text":"a"},)"
            R"({"type":"image_url","image_url":{"url":"u"},"quire_part":"=input[0].content[1]"}]}])");
  EXPECT_EQ(messages(R"({"type":"function_call_output","call_id":"c","output":[{"type":"text","text":"a"},{"type":"text","text":"b"}]})"),
            R"([{"role":"tool","tool_call_id":"c","content":"a\nb"}])");
}

}  // namespace
}  // namespace quire
