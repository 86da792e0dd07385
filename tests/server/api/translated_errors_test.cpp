// Tests the text of each error of /v1/messages and /v1/responses, and what their bodies become.
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/api/anthropic/messages_answer.h"
#include "server/api/anthropic/messages_request.h"
#include "server/api/responses/responses_answer.h"
#include "server/api/responses/responses_request.h"
#include "server/api/responses/stored_pages.h"
#include "server/request/field_names.h"
#include "server/request/object_reader.h"
#include "server/request/prompt_fingerprint.h"

namespace quire::translated_errors_test {
namespace {

namespace json = boost::json;

struct TranslatedCase {
  std::string fields, error;
};

std::string messages_error(const std::string& fields) {
  std::vector<std::string> ignored;
  const auto chat = chat_of_messages(parse_object("{" + fields + "}").value(), {}, ignored);
  return chat ? "accepted" : chat.error().to_string();
}

const std::string kLimits = R"("model":"m","max_tokens":5,)";
const std::string kTurn = R"("messages":[{"role":"user","content":"hi"}])";

std::string user_with(const std::string& blocks) {
  return kLimits + R"("messages":[{"role":"user","content":[)" + blocks + "]}]";
}

TEST(MessagesErrors, NameTheFieldTheProblemAndTheFix) {
  const std::string turn = kLimits + kTurn + ",";
  const std::string which = "; use the type auto, any, none, or tool with a name";
  const std::string schema = R"(must be a JSON schema; send {"type": "json_schema", "schema": {...}})";
  std::string edits = R"({"type":"clear_thinking_20251015"})";
  for (int i = 1; i < 17; ++i) edits += R"(,{"type":"clear_thinking_20251015"})";
  const auto edit = [&](const std::string& more) {
    return turn + R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919",)" + more + "}]}";
  };
  const TranslatedCase cases[] = {
      {R"("max_tokens":5,)" + kTurn, "model: is missing; use a model from /v1/models"},
      {R"("model":"m",)" + kTurn, "max_tokens: is missing; send the maximum number of answer tokens"},
      {R"("model":"m","max_tokens":0,)" + kTurn, "max_tokens: is 0; use 1 to 2147483647"},
      {R"("model":"m","max_tokens":2147483647,)" + kTurn, "accepted"},
      {kLimits + R"("messages":[])", R"(messages: must be an array with at least one message; send [{"role": "user", "content": "..."}])"},
      {kLimits + R"("messages":"a")", R"(messages: must be an array with at least one message; send [{"role": "user", "content": "..."}])"},
      {kLimits + R"("messages":[1])", "messages[0]: must be an object, not integer 1"},
      {kLimits + R"("messages":[{"role":"system","content":"a"}])",
       "messages[0].role: must be user or assistant; send the system prompt as system"},
      {kLimits + R"("messages":[{"role":"user","content":"a"},{"role":"tool","content":"a"}])",
       "messages[1].role: must be user or assistant; send the system prompt as system"},
      {kLimits + R"("messages":[{"role":"user","content":3}])", "messages[0].content: must be a string or an array of blocks"},
      {user_with("1"), R"(messages[0].content[0]: must be an object with a type; send {"type": "text", "text": "..."})"},
      {user_with(R"({"type":"text","text":"a"},{"type":"audio"})"),
       "messages[0].content[1].type: is 'audio'; send text blocks: this model supports text only"},
      {user_with(R"({"type":"text","text":3})"), "messages[0].content[0].text: must be a string"},
      {user_with(R"({"type":"tool_result"})"), "messages[0].content[0].tool_use_id: must be the id of a tool_use block"},
      {user_with(R"({"type":"tool_result","tool_use_id":"t","content":3})"),
       "messages[0].content[0].content: must be a string or an array of blocks, not integer 3"},
      {user_with(R"({"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]})"),
       "messages[0].content[0].content[0].type: is 'image'; send text blocks: this model supports text only"},
      {kLimits + R"("messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}])",
       "messages[0].content[0]: must have an id and a name"},
      {kLimits + R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","input":{}}]}])",
       "messages[0].content[0]: must have an id and a name"},
      {kLimits + R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]}])",
       "messages[0].content[0].input: must be an object"},
      {kLimits + R"("messages":[{"role":"assistant","content":"a"}])",
       "messages: end with an assistant message, which this server does not continue; end with a user message"},
      {turn + R"("system":3)", "system: must be a string or an array of blocks, not integer 3"},
      {turn + R"("tools":3)", "tools: must be an array, not integer 3"},
      {turn + R"("tools":[3])", "tools[0]: must be an object, not integer 3"},
      {turn + R"("tools":[{"type":"custmo","name":"f","input_schema":{}}])",
       R"(tools[0].type: is string "custmo"; did you mean "custom"?)"},
      {turn + R"("tools":[{"type":"functoin","name":"f","input_schema":{}}])",
       R"(tools[0].type: is string "functoin"; did you mean "custom"?)"},
      {turn + R"("tools":[{"name":"f","input_schema":3}])", "tools[0].input_schema: must be a JSON schema"},
      {turn + R"("tool_choice":"auto")", R"(tool_choice: must be an object, not string "auto"; send {"type": "auto"})"},
      {turn + R"("tool_choice":{"type":"tool"})", "tool_choice: does not name a tool" + which},
      {turn + R"("tool_choice":{})", "tool_choice: has a missing or unknown type" + which},
      {turn + R"("thinking":3)", R"(thinking: has a missing or unknown type; send {"type": "enabled"} or {"type": "disabled"})"},
      {turn + R"("thinking":{"type":"adaptive"})", "accepted"},
      {turn + R"("output_config":3)", "output_config: must be an object, not integer 3"},
      {turn + R"("output_config":{"format":{"type":"json_schema"}})", "output_config.format: " + schema},
      {turn + R"("output_config":{"format":{"type":"text","schema":{}}})", "output_config.format: " + schema},
      {turn + R"("output_format":{"type":"json"})", "output_format: " + schema},
      {turn + R"("output_format":{"type":"json_schema","schema":{}},"output_config":{"format":{"type":"json_schema","schema":{}}})",
       "output_format: cannot be combined with output_config.format, which means the same; send only one of them"},
      {turn + R"("stop_sequences":"a")", R"(stop_sequences: must be an array of strings, not string "a")"},
      {turn + R"("diagnostics":3)", R"(diagnostics: must be an object, not integer 3; send {"previous_message_id": "msg_..."})"},
      {turn + R"("context_management":3)", R"(context_management: must be an object with edits, not integer 3; send {"edits": [...]})"},
      {turn + R"("context_management":{"edits":[)" + edits + "]}",
       R"(context_management.edits: must be an object with edits, not array; send {"edits": [...]})"},
      {turn + R"("context_management":{"edits":[3]})",
       R"(context_management.edits[0]: must be an object with edits, not integer 3; send {"edits": [...]})"},
      {edit(R"("trigger":3)"), R"(context_management.edits[0].trigger: must be an object with a supported type and a value; )"
                               R"(send {"type": "input_tokens", "value": 5})"},
      {edit(R"("trigger":{"type":"turns","value":1})"),
       R"(context_management.edits[0].trigger: must be an object with a supported type and a value; )"
       R"(send {"type": "input_tokens", "value": 5})"},
      {edit(R"("keep":{"type":"input_tokens","value":1})"),
       R"(context_management.edits[0].keep: must be an object with a supported type and a value; send {"type": "tool_uses", "value": 5})"},
      {edit(R"("clear_at_least":{"type":"tool_uses","value":1})"),
       R"(context_management.edits[0].clear_at_least: must be an object with a supported type and a value; )"
       R"(send {"type": "input_tokens", "value": 5})"},
      {edit(R"("trigger":{"type":"tool_uses","value":-1})"), "context_management.edits[0].trigger.value: is -1; use 0 to 2147483648"},
      {edit(R"("trigger":{"type":"tool_uses","value":2147483648})"), "accepted"},
      {edit(R"("trigger":{"type":"tool_uses","value":1,"xyz":1})"),
       "context_management.edits[0].trigger.xyz: is not a field of this request; remove it"},
      {edit(R"("exclude_tools":3)"), "context_management.edits[0].exclude_tools: must be an array of tool names, not integer 3"},
      {edit(R"("clear_tool_inputs":3)"), "context_management.edits[0].clear_tool_inputs: must be an array of tool names, not integer 3"},
  };
  for (const TranslatedCase& one : cases) EXPECT_EQ(messages_error(one.fields), one.error) << one.fields;
  EXPECT_EQ(messages_error(turn + R"("context_management":{"edits":[)" + edits.substr(0, edits.rfind(",{")) + "]}"), "accepted");
}

TEST(MessagesEdits, HaveTheValuesOfTheBody) {
  const auto edits_of = [](const std::string& edit) {
    std::vector<std::string> ignored;
    auto chat = chat_of_messages(
        parse_object("{" + kLimits + kTurn + R"(,"context_management":{"edits":[{"type":)" + edit + "}]}}").value(), {}, ignored);
    EXPECT_TRUE(chat) << edit << chat.error().to_string();
    return chat->edits.at(0);
  };
  EXPECT_EQ(std::get<ClearThinking>(edits_of(R"("clear_thinking_20251015")")).keep, 1U);
  EXPECT_EQ(std::get<ClearThinking>(edits_of(R"("clear_thinking_20251015","keep":{"type":"thinking_turns","value":4})")).keep, 4U);
  EXPECT_FALSE(std::get<ClearThinking>(edits_of(R"("clear_thinking_20251015","keep":"all")")).keep);
  const auto plain = std::get<ClearToolUses>(edits_of(R"("clear_tool_uses_20250919")"));
  EXPECT_EQ(plain.trigger, 100'000U);
  EXPECT_FALSE(plain.counts_tools);
  EXPECT_EQ(plain.keep, 3U);
  EXPECT_EQ(plain.clear_at_least, 0U);
  EXPECT_FALSE(plain.clears_inputs);
  const auto full = std::get<ClearToolUses>(
      edits_of(R"("clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":7},"keep":{"type":"tool_uses","value":2},
                  "clear_at_least":{"type":"input_tokens","value":9},"exclude_tools":["a",3,"b"],"clear_tool_inputs":["c"])"));
  EXPECT_EQ(full.trigger, 7U);
  EXPECT_TRUE(full.counts_tools);
  EXPECT_EQ(full.keep, 2U);
  EXPECT_EQ(full.clear_at_least, 9U);
  EXPECT_EQ(full.excluded, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(full.clears_inputs);
  EXPECT_EQ(full.inputs_of, std::vector<std::string>{"c"});
  const auto all = std::get<ClearToolUses>(
      edits_of(R"("clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":1},"clear_tool_inputs":true)"));
  EXPECT_FALSE(all.counts_tools);
  EXPECT_TRUE(all.clears_inputs);
  EXPECT_TRUE(all.inputs_of.empty());
  EXPECT_FALSE(std::get<ClearToolUses>(edits_of(R"("clear_tool_uses_20250919","clear_tool_inputs":false)")).clears_inputs);
}

// A conversation with three calls: f(1) -> one, g(2) -> two, f(3) -> three.
json::object conversation_of_calls() {
  const auto call = [](const std::string& name, const std::string& id) {
    return R"({"role":"assistant","reasoning_content":"r)" + id + R"(","content":"","tool_calls":[{"id":")" + id +
           R"(","type":"function","function":{"name":")" + name + R"(","arguments":{"x":)" + id + R"(}}}]},)" +
           R"({"role":"tool","tool_call_id":")" + id + R"(","content":"result )" + id + R"("},)";
  };
  return json::parse(R"({"messages":[{"role":"user","content":"a"},)" + call("f", "1") + call("g", "2") +
                     R"({"role":"user","content":"with results"},{"role":"user","content":"b"},)" + call("f", "3") +
                     R"({"role":"user","content":"c"}]})")
      .as_object();
}

// Returns the results that are left, and after "/" the arguments that are left.
std::string left_of(const json::object& chat) {
  std::string results, arguments;
  for (const json::value& message : chat.at("messages").as_array()) {
    if (message.at("role") == "tool") results += message.at("content").as_string().starts_with("result") ? "r" : "-";
    if (message.as_object().contains("tool_calls"))
      arguments += message.at("tool_calls").as_array()[0].at("function").at("arguments").as_object().empty() ? "-" : "a";
  }
  return results + "/" + arguments;
}

TEST(ContextEdits, ClearOnlyTheCallsThatTheirRuleNames) {
  const auto edit = [](std::uint64_t trigger, bool counts_tools, std::uint64_t keep, std::uint64_t clear_at_least = 0) {
    ClearToolUses made;
    made.trigger = trigger;
    made.counts_tools = counts_tools;
    made.keep = keep;
    made.clear_at_least = clear_at_least;
    return made;
  };
  const auto excluding = [&](std::uint64_t keep, const std::string& name) {
    ClearToolUses made = edit(2, true, keep);
    made.excluded = {name};
    return made;
  };
  const auto clearing_inputs = [&](const std::vector<std::string>& names) {
    ClearToolUses made = edit(2, true, 1);
    made.clears_inputs = true;
    made.inputs_of = names;
    return made;
  };
  const std::pair<ClearToolUses, std::string> cases[] = {
      {edit(3, true, 0), "rrr/aaa"},
      {edit(2, true, 0), "---/aaa"},
      {edit(2, true, 1), "--r/aaa"},
      {edit(2, true, 3), "rrr/aaa"},
      {edit(2, true, 4), "rrr/aaa"},
      {excluding(0, "f"), "r-r/aaa"},
      {excluding(1, "g"), "-rr/aaa"},
      {clearing_inputs({}), "--r/--a"},
      {clearing_inputs({"g"}), "--r/a-a"},
      // The test's count is 100 for each result that is left.
      {edit(299, false, 0), "---/aaa"},
      {edit(300, false, 0), "rrr/aaa"},
      {edit(299, false, 1, 200), "--r/aaa"},
      {edit(299, false, 1, 201), "rrr/aaa"},
      {edit(2, true, 1, 200), "--r/aaa"},
      {edit(2, true, 1, 201), "rrr/aaa"},
  };
  const auto count = [](const json::object& chat) -> Result<std::size_t> {
    const std::string left = left_of(chat).substr(0, 3);
    return 100 * static_cast<std::size_t>(std::ranges::count(left, 'r'));
  };
  for (std::size_t i = 0; i < std::size(cases); ++i) {
    json::object chat = conversation_of_calls();
    ASSERT_TRUE(apply_context_edits({cases[i].first}, chat, count));
    EXPECT_EQ(left_of(chat), cases[i].second) << i;
  }
  json::object chat = conversation_of_calls();
  ASSERT_TRUE(apply_context_edits({edit(2, true, 0)}, chat, count));
  EXPECT_EQ(chat.at("messages").as_array()[2].at("content"), "[Old tool result content cleared]");
  const auto failing = [](const json::object&) -> Result<std::size_t> { return fail(ErrorCode::invalid_argument, "a", "b"); };
  EXPECT_FALSE(apply_context_edits({edit(5, false, 0)}, chat, failing)) << "an edit without its count fails";
  EXPECT_TRUE(apply_context_edits({edit(100'000, false, 0)}, chat, failing)) << "a short chat is not counted";
  EXPECT_TRUE(apply_context_edits({edit(2, true, 0)}, chat, failing));
}

TEST(ContextEdits, KeepTheReasoningOfTheLastTurns) {
  const auto kept = [](std::optional<std::uint64_t> keep) {
    json::object chat = conversation_of_calls();
    const auto none = [](const json::object&) -> Result<std::size_t> { return 0; };
    EXPECT_TRUE(apply_context_edits({ClearThinking{.keep = keep}}, chat, none));
    std::string left;
    for (const json::value& message : chat.at("messages").as_array())
      if (message.at("role") == "assistant") left += message.as_object().contains("reasoning_content") ? "r" : "-";
    return left;
  };
  EXPECT_EQ(kept(std::nullopt), "rrr");
  EXPECT_EQ(kept(0), "---");
  EXPECT_EQ(kept(1), "--r");
  EXPECT_EQ(kept(2), "rrr") << "calls 1 and 2 are in one turn";
}

TEST(MessagesChat, HasTheContentOfTheBody) {
  const auto chat_from = [](const std::string& fields) {
    std::vector<std::string> ignored;
    auto chat = chat_of_messages(parse_object("{" + kLimits + fields + "}").value(), {}, ignored);
    EXPECT_TRUE(chat) << fields << chat.error().to_string();
    return json::serialize(chat->chat.at("messages"));
  };
  EXPECT_EQ(chat_from(R"("system":"","messages":[{"role":"user","content":[]}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(chat_from(R"("system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"s"}],)" + kTurn),
            R"([{"role":"system","content":"s"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(chat_from(R"("system":[{"type":"text","text":"s"},{"type":"text","text":"x-anthropic-billing-header: a"}],)" + kTurn),
            R"([{"role":"system","content":"s\nx-anthropic-billing-header: a"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(chat_from(R"("messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","source":
      {"type":"base64","media_type":"image/png","data":"AA"}},{"type":"image","source":{"type":"url","url":"http://x"}},
      {"type":"image"},{"type":"text","text":"b"}]},{"role":"system","content":"c"}])"),
            R"([{"role":"user","content":[{"type":"text","text":"a"},)"
            R"({"type":"image_url","image_url":{"url":"data:image/png;base64,AA"},"quire_part":"=messages[0].content[1]"},)"
            R"({"type":"image_url","image_url":{"url":"http://x"},"quire_part":"=messages[0].content[2]"},)"
            R"({"type":"image_url","image_url":{"url":""},"quire_part":"=messages[0].content[3]"},{"type":"text","text":"b"},)"
            R"({"type":"text","text":"<system-reminder>\nc\n</system-reminder>"}]}])");
  EXPECT_EQ(chat_from(R"("messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"thinking","thinking":"y"},
      {"type":"redacted_thinking"},{"type":"tool_use","id":"t","name":"f","input":"{\"a"}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":null,"is_error":true}]}])"),
            R"([{"role":"assistant","content":"","reasoning_content":"xy","tool_calls":[{"id":"t","type":"function","function":)"
            R"({"name":"f","arguments":"{\"a"}}]},{"role":"tool","tool_call_id":"t","content":"Error: "}])");
}

TEST(MessagesDiagnostics, NameTheEarlierMessage) {
  const auto previous_of = [](const std::string& more) {
    std::vector<std::string> ignored;
    return chat_of_messages(parse_object("{" + kLimits + kTurn + more + "}").value(), {}, ignored).value().previous;
  };
  EXPECT_FALSE(previous_of(""));
  EXPECT_EQ(previous_of(R"(,"diagnostics":{"previous_message_id":"msg_1"})"), "msg_1");
  EXPECT_EQ(previous_of(R"(,"diagnostics":{"previous_message_id":null})"), "");
  const auto shown = [](PromptChange change) {
    PromptComparison compared;
    compared.change = change;
    compared.num_missed_tokens = 12;
    return diagnostics_json(&compared);
  };
  EXPECT_EQ(diagnostics_json(nullptr), "null");
  EXPECT_EQ(shown(PromptChange::none), "null");
  EXPECT_EQ(shown(PromptChange::not_found), R"({"cache_miss_reason":{"type":"previous_message_not_found"}})");
  EXPECT_EQ(shown(PromptChange::tools), R"({"cache_miss_reason":{"type":"tools_changed","cache_missed_input_tokens":12}})");
  EXPECT_EQ(shown(PromptChange::system), R"({"cache_miss_reason":{"type":"system_changed","cache_missed_input_tokens":12}})");
  EXPECT_EQ(shown(PromptChange::turns), R"({"cache_miss_reason":{"type":"messages_changed","cache_missed_input_tokens":12}})");
  EXPECT_EQ(shown(PromptChange::settings), R"({"cache_miss_reason":{"type":"unavailable"}})");
}

TEST(MessagesErrorBody, HasAnthropicsTypeForEachStatus) {
  const std::pair<unsigned, const char*> types[] = {
      {400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
      {404, "not_found_error"},       {405, "invalid_request_error"}, {413, "request_too_large"},
      {429, "rate_limit_error"},      {499, "invalid_request_error"}, {500, "api_error"},
      {503, "overloaded_error"}};
  for (const auto& [status, type] : types)
    EXPECT_EQ(as_messages_error({status, "application/json", R"({"error":{"message":"m"}})", {}}).body,
              std::string(R"({"type":"error","error":{"type":")") + type + R"(","message":"m"}})");
  EXPECT_EQ(as_messages_error({200, "", R"({"error":{"message":"m"}})", {}}).body, R"({"error":{"message":"m"}})");
  EXPECT_EQ(as_messages_error({399, "", R"({"error":{"message":"m"}})", {}}).body, R"({"error":{"message":"m"}})");
  EXPECT_EQ(as_messages_error({400, "", "plain", {}}).body, "plain");
  EXPECT_EQ(as_messages_error({400, "", R"({"error":{"message":3}})", {}}).body, R"({"error":{"message":3}})");
  EXPECT_EQ(stop_reason_name(FinishReason::length, {.text = "x", .token = {}}, true), "max_tokens");
  EXPECT_EQ(stop_reason_name(FinishReason::stop, {.text = "x", .token = {}}, true), "stop_sequence");
  EXPECT_EQ(stop_reason_name(FinishReason::stop, {}, true), "tool_use");
  EXPECT_EQ(stop_reason_name(FinishReason::stop, {}, false), "end_turn");
}

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
  const TranslatedCase cases[] = {
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
  for (const TranslatedCase& one : cases) EXPECT_EQ(error(one.fields), one.error) << one.fields;
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
      "previous_response_id":null,"prompt_cache_key":null,"safety_identifier":null,"user":null,"metadata":{},"parallel_tool_calls":true,
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
}

TEST_F(ResponsesErrors, StoredCallsKeepInputAndConversation) {
  const auto stored = read(R"("input":"a","prompt_cache_options":{"comparison_response_id":"resp_0","mode":"x","ttl":1})");
  ASSERT_TRUE(stored) << stored.error().to_string();
  EXPECT_TRUE(stored->call.is_stored);
  EXPECT_EQ(stored->call.input, R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]}])");
  EXPECT_EQ(stored->call.conversation, R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(stored->call.compare_with, "resp_0");
  EXPECT_EQ(ignored, (std::vector<std::string>{"prompt_cache_options.mode", "prompt_cache_options.ttl"}));
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

TEST(StoredPages, ParseTheirQueryWithinLimits) {
  const auto parsed = [](const std::string& query) {
    const auto page = parse_item_page("/v1/responses/r/input_items" + query);
    return page ? std::to_string(page->limit) + (page->is_ascending ? " asc " : " desc ") + page->after : page.error().to_string();
  };
  EXPECT_EQ(parsed(""), "20 desc ");
  EXPECT_EQ(parsed("?limit=1&order=asc&after=x&include=a&include%5B%5D=b"), "1 asc x");
  EXPECT_EQ(parsed("?limit=100&order=desc"), "100 desc ");
  EXPECT_EQ(parsed("?limit=0"), "limit: is '0'; use 1 to 100");
  EXPECT_EQ(parsed("?limit=101"), "limit: is '101'; use 1 to 100");
  EXPECT_EQ(parsed("?limit=1x"), "limit: is '1x'; use 1 to 100");
  EXPECT_EQ(parsed("?order=up"), "order: is 'up'; use asc or desc");
  EXPECT_TRUE(parsed("?limt=1").contains("did you mean 'limit'?")) << parsed("?limt=1");
}

TEST(StoredPages, ReturnTheItemsAfterAnId) {
  const StoredResponse stored{"resp_9", "{}", R"([{"id":"a","type":"reasoning"},{"role":"user"},{"id":"c","type":"message"}])", "[]", {}};
  const auto page = [&](const ItemPage& wanted) {
    const json::value list = json::parse(input_items(stored, wanted));
    std::string ids;
    for (const json::value& item : list.at("data").as_array()) ids += std::string(item.at("id").as_string()) + " ";
    return ids + (list.at("has_more") == true ? "more " : "end ") + json::serialize(list.at("first_id")) +
           json::serialize(list.at("last_id"));
  };
  EXPECT_EQ(page({}), R"(c in_9_1 a end "c""a")");
  EXPECT_EQ(page({.is_ascending = true, .after = {}}), R"(a in_9_1 c end "a""c")");
  EXPECT_EQ(page({.is_ascending = true, .limit = 2, .after = {}}), R"(a in_9_1 more "a""in_9_1")");
  EXPECT_EQ(page({.is_ascending = true, .limit = 3, .after = {}}), R"(a in_9_1 c end "a""c")");
  EXPECT_EQ(page({.is_ascending = true, .limit = 2, .after = "a"}), R"(in_9_1 c end "in_9_1""c")");
  EXPECT_EQ(page({.limit = 1, .after = "c"}), R"(in_9_1 more "in_9_1""in_9_1")");
  EXPECT_EQ(page({.after = "a"}), "end nullnull");
  EXPECT_EQ(page({.after = "unknown"}), "end nullnull");
  const json::value list = json::parse(input_items(stored, {.is_ascending = true, .after = {}}));
  EXPECT_EQ(list.at("object"), "list");
  EXPECT_EQ(list.at("data").as_array()[0].at("type"), "reasoning");
  EXPECT_EQ(list.at("data").as_array()[1].at("type"), "message");
}

TEST(ResponsesDiagnostics, ReportWhatTheCacheFound) {
  const auto shown = [](PromptChange change, std::uint64_t num_cached) {
    PromptComparison compared;
    compared.change = change;
    compared.num_missed_tokens = 5;
    compared.num_reusable_tokens = 64;
    return cache_diagnostics(compared, num_cached);
  };
  const auto miss = [](const std::string& reason) {
    return R"({"type":"cache_miss","reason":")" + reason + R"(","cache_missed_tokens":5,"comparison_reusable_tokens":64})";
  };
  EXPECT_EQ(shown(PromptChange::not_found, 0), R"({"type":"comparison_response_not_found"})");
  EXPECT_EQ(shown(PromptChange::tools, 0), miss("tools_changed"));
  EXPECT_EQ(shown(PromptChange::settings, 0), miss("reasoning_effort_changed"));
  EXPECT_EQ(shown(PromptChange::system, 0), miss("input_changed"));
  EXPECT_EQ(shown(PromptChange::turns, 0), miss("input_changed"));
  EXPECT_EQ(shown(PromptChange::none, 64), R"({"type":"cache_hit"})");
  EXPECT_EQ(shown(PromptChange::none, 64 - PromptFingerprint::kBlock), R"({"type":"cache_hit"})") << "the last block may be partial";
  EXPECT_EQ(shown(PromptChange::none, 63 - PromptFingerprint::kBlock), R"({"type":"unavailable"})");
}

TEST(ResponseStoreBytes, CountAllTextsAndTokens) {
  const StoredResponse empty{"r", "", "", "", {}};
  const StoredResponse full{"r", "12345", "123", "1234567", {1, 2}};
  EXPECT_EQ(empty.num_bytes(), 512U);
  EXPECT_EQ(full.num_bytes(), 512U + 15U + 2 * sizeof(TokenId));
  const auto shared = [](const std::string& id, std::size_t num_bytes) {
    return std::make_shared<const StoredResponse>(StoredResponse{id, std::string(num_bytes - 512, 'x'), "", "", {}});
  };
  ResponseStore exact(2000);
  exact.put("t", shared("a", 2000));
  EXPECT_NE(exact.find("t", "a"), nullptr) << "a response of exactly the budget fits";
  exact.put("t", shared("b", 2001));
  EXPECT_EQ(exact.find("t", "b"), nullptr);
  EXPECT_NE(exact.find("t", "a"), nullptr) << "it evicts nothing";
  EXPECT_EQ(exact.num_bytes(), 2000U);
  // Of two tenants with equally many bytes the first by name loses a response.
  ResponseStore even(3000);
  even.put("b", shared("b", 1500));
  even.put("a", shared("a", 1000));
  even.put("a", shared("a2", 600));
  EXPECT_EQ(even.find("a", "a"), nullptr) << "with its new response, a holds more than b";
  EXPECT_NE(even.find("b", "b"), nullptr);
  even.put("a", shared("a3", 900));
  EXPECT_NE(even.find("b", "b"), nullptr);
  EXPECT_NE(even.find("a", "a2"), nullptr) << "both tenants hold 1500 bytes";
  even.put("c", shared("c", 1500));
  EXPECT_EQ(even.find("a", "a3"), nullptr) << "of equal tenants the first by name loses its least recently used response";
  EXPECT_NE(even.find("a", "a2"), nullptr);
  EXPECT_EQ(even.find("b", "b"), nullptr) << "then this tenant holds the most";
  EXPECT_NE(even.find("c", "c"), nullptr);
  // A tenant without responses is not asked for room.
  ResponseStore left(2000);
  left.put("a", shared("a", 1000));
  EXPECT_TRUE(left.erase("a", "a"));
  left.put("b", shared("b", 1500));
  left.put("b", shared("b2", 1500));
  EXPECT_NE(left.find("b", "b2"), nullptr);
}

TEST(RenamedFields, KeepTheRestOfTheirPath) {
  constexpr FieldName kNames[] = {{"a.b", "x"}, {"a", "y"}, {"messages", "input"}};
  const auto renamed = [&](const std::string& field) {
    return rename_fields(kNames, {ErrorCode::invalid_argument, field, "m", "r"}).field;
  };
  EXPECT_EQ(renamed("a"), "y");
  EXPECT_EQ(renamed("a.c"), "y.c");
  EXPECT_EQ(renamed("a.b"), "x");
  EXPECT_EQ(renamed("a.b.c"), "x.c");
  EXPECT_EQ(renamed("ab"), "ab");
  EXPECT_EQ(renamed("messages[3].content"), "input");
  EXPECT_EQ(renamed("=messages[3].content"), "messages[3].content") << "a name of the client stays";
  EXPECT_EQ(renamed("tools[10].function.name"), "tools[10].name");
  EXPECT_EQ(renamed("tool[1].function.name"), "tool[1].function.name");
  EXPECT_EQ(renamed("tools[1].type"), "tools[1].type");
}

}  // namespace
}  // namespace quire::translated_errors_test
