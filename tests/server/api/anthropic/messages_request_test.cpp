// Tests the conversion of Anthropic requests to chats; errors must name the fields that the client sent.
#include "server/api/anthropic/messages_request.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/api/anthropic/messages_bodies.h"
#include "server/request/object_reader.h"

namespace quire {
namespace {

namespace json = boost::json;

json::value chat_from(const std::string& fields) {
  std::vector<std::string> ignored;
  auto translated = chat_of_messages(parse_object(R"({"model":"m","max_tokens":5,)" + fields + "}").value(), {}, ignored);
  if (!translated) return json::value(translated.error().to_string());
  return std::move(translated->chat);
}

// Returns the fields that an accepted body reports as ignored.
std::vector<std::string> ignored_of(const std::string& fields, MessagesCall call = {}) {
  std::vector<std::string> ignored;
  const auto translated = chat_of_messages(parse_object(R"({"model":"m","max_tokens":5,)" + fields + "}").value(), call, ignored);
  if (!translated) return {translated.error().to_string()};
  return ignored;
}

std::string field_of_refusal(const std::string& body) {
  std::vector<std::string> ignored;
  const auto chat = chat_of_messages(parse_object(body).value(), {}, ignored);
  return chat ? "none" : chat.error().field;
}

const std::string kHello = R"("messages":[{"role":"user","content":"hi"}])";

TEST(MessagesRequest, ConvertsAToolTurnToAChatTurn) {
  const json::value chat =
      chat_from(R"("system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}],
    "messages":[{"role":"user","content":"hi"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"s"},{"type":"text","text":"wait"},
        {"type":"tool_use","id":"t1","name":"f","input":{"x":1}}]},
      {"role":"user","content":[{"type":"text","text":"so?"},
        {"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"4"}]}]}])");
  EXPECT_EQ(chat.at("messages"), json::parse(R"([{"role":"system","content":"a\nb"},{"role":"user","content":"hi"},
    {"role":"assistant","content":"wait","reasoning_content":"hm",
     "tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":{"x":1}}}]},
    {"role":"tool","tool_call_id":"t1","content":"4"},{"role":"user","content":"so?"}])"))
      << json::serialize(chat);
}

TEST(MessagesRequest, ConvertsFieldsToChatFields) {
  const std::pair<std::string, std::string> cases[] = {
      {R"("stop_sequences":["a"],"top_k":4,"stream":true)", R"({"stop":["a"],"top_k":4,"stream":true})"},
      {R"("metadata":{"user_id":"u"},"service_tier":"auto","cache_control":{"type":"ephemeral"})",
       R"({"prompt_cache_key":"u","prompt_cache_retention":"300s"})"},
      {R"("system":[{"type":"text","text":"x-anthropic-billing-header: a=1;","cache_control":{"ttl":"1h"}}],
          "cache_control":{"type":"ephemeral"})",
       R"({"prompt_cache_retention":"3600s"})"},
      {R"("mcp_servers":[{"type":"url","url":"http://x","name":"x"}],"container":"c")", "{}"},
      {R"("tools":[{"type":"web_search_20250305","name":"web_search"},{"type":"custom","name":"f","input_schema":{}}])",
       R"({"tools":[{"type":"web_search_20250305"},{"type":"function","function":{"name":"f","parameters":{}}}]})"},
      {R"("system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1; cch=2;"}])", "{}"},
      {R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}])",
       R"({"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],
           "prompt_cache_retention":"300s"})"},
      {R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true})", R"({"tool_choice":"auto","parallel_tool_calls":false})"},
      {R"("tool_choice":{"type":"any"})", R"({"tool_choice":"required"})"},
      {R"("tool_choice":{"type":"none"})", R"({"tool_choice":"none"})"},
      {R"("tool_choice":{"type":"tool","name":"f"})", R"({"tool_choice":{"type":"function","function":{"name":"f"}}})"},
      {R"("thinking":{"type":"enabled","budget_tokens":1024})", R"({"enable_thinking":true})"},
      {R"("thinking":{"type":"disabled"})", R"({"enable_thinking":false})"},
      {R"("output_config":{"effort":"low","format":{"type":"json_schema","schema":{"type":"array"}}})",
       R"({"reasoning_effort":"low","response_format":{"type":"json_schema",
           "json_schema":{"name":"answer","schema":{"type":"array"},"strict":true}}})"},
  };
  for (const auto& [sent, wanted] : cases) {
    json::value expected = json::parse(wanted);
    expected.as_object().emplace("model", "m");
    expected.as_object().emplace("max_tokens", 5);
    expected.as_object().emplace("messages", json::parse(R"([{"role":"user","content":"hi"}])"));
    const json::value chat = chat_from(kHello + "," + sent);
    EXPECT_EQ(chat, expected) << sent << '\n' << json::serialize(chat);
  }
}

TEST(MessagesRequest, ConvertsSystemMessagesWithinAConversationToReminders) {
  const json::value chat = chat_from(R"("messages":[{"role":"user","content":[{"type":"text","text":"hi"}]},{"role":"system","content":"a"},
    {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"4"}]},
    {"role":"system","content":[{"type":"text","text":"b"}]}])");
  const auto& messages = chat.at("messages").as_array();
  ASSERT_EQ(messages.size(), 4U) << json::serialize(chat);
  EXPECT_EQ(messages[0].at("content"), "hi\n<system-reminder>\na\n</system-reminder>");
  EXPECT_EQ(messages[3], json::parse(R"({"role":"user","content":"<system-reminder>\nb\n</system-reminder>"})"));
}

TEST(MessagesRequest, MarksTheResultOfAFailedTool) {
  for (const auto& [is_error, content] : {std::pair("true", "Error: no such file"), std::pair("false", "no such file")}) {
    const json::value chat = chat_from(R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"no such file","is_error":)" +
                                       std::string(is_error) + "}]}]");
    EXPECT_EQ(chat.at("messages").as_array().back().at("content"), content);
  }
}

TEST(MessagesRequest, NamesTheInvalidField) {
  const std::string head = R"({"model":"m","max_tokens":5,)";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"max_tokens":5,)" + kHello + "}", "model"},
      {R"({"model":"m",)" + kHello + "}", "max_tokens"},
      {head + R"("messages":[]})", "messages"},
      {head + R"("messages":[3]})", "messages[0]"},
      {head + R"("messages":[{"role":"system","content":"a"}]})", "messages[0].role"},
      {head + R"("messages":[{"role":"user"}]})", "messages[0].content"},
      {head + R"("messages":[{"role":"user","content":[{"type":"document","source":{}}]}]})", "messages[0].content[0].type"},
      {head + R"("messages":[{"role":"user","content":["a"]}]})", "messages[0].content[0]"},
      {head + R"("messages":[{"role":"user","content":[{"type":"tool_result"}]}]})", "messages[0].content[0].tool_use_id"},
      {head + R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"a","name":"f","input":3}]}]})",
       "messages[0].content[0].input"},
      {head + R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})", "messages"},
      {head + kHello + R"(,"system":[{"type":"text"}]})", "system[0].text"},
      {head + kHello + R"(,"tools":[{"type":"costum","name":"f","input_schema":{}}]})", "tools[0].type"},
      {head + kHello + R"(,"tools":[{"type":3,"name":"f","input_schema":{}}]})", "tools[0].type"},
      {head + kHello + R"(,"context_management":3})", "context_management"},
      {head + kHello + R"(,"context_management":{"edits":{}}})", "context_management.edits"},
      {head + kHello + R"(,"context_management":{"edits":[3]}})", "context_management.edits[0]"},
      {head + kHello + R"(,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"some"}]}})",
       "context_management.edits[0].keep"},
      {head + kHello +
           R"(,"context_management":{"edits":[{"type":"clear_tool_uses_20250919","trigger":{"type":"tool_uses","value":-1}}]}})",
       "context_management.edits[0].trigger.value"},
      {head + kHello + R"(,"tools":[{"name":"f"}]})", "tools[0].input_schema"},
      {head + kHello + R"(,"tool_choice":{"type":"tool"}})", "tool_choice"},
      {head + kHello + R"(,"tool_choice":"auto"})", "tool_choice"},
      {head + kHello + R"(,"thinking":{"type":"maybe"}})", "thinking"},
      {head + kHello + R"(,"temperatur":1})", "temperatur"},
      {head + kHello + R"(,"stop":["a"]})", "stop"},
  };
  for (const auto& [body, field] : cases) EXPECT_EQ(field_of_refusal(body), field) << body;
}

TEST(MessagesRequest, CountsTokensWithoutMaxTokens) {
  std::vector<std::string> ignored;
  EXPECT_TRUE(
      chat_of_messages(parse_object(R"({"model":"m","metadata":{},"xyzzy":1,)" + kHello + "}").value(), {.counts_only = true}, ignored)
          .has_value());
  EXPECT_EQ(ignored, (std::vector<std::string>{"metadata", "xyzzy"}));
}

TEST(MessagesRequest, ErrorsNameTheFieldsOfTheClient) {
  const auto renamed = [](const char* field) {
    return with_messages_field_names(Error{ErrorCode::invalid_argument, field, "is wrong", ""}).field;
  };
  EXPECT_EQ(renamed("stop"), "stop_sequences");
  EXPECT_EQ(renamed("stop_token_ids"), "stop_token_ids");
  EXPECT_EQ(renamed("response_format"), "output_config.format");
  EXPECT_EQ(renamed("max_tokens"), "max_tokens");
}

TEST(MessagesRequest, AcceptsAndReportsFieldsWithoutEffect) {
  const auto names = [](auto... name) { return std::vector<std::string>{name...}; };
  EXPECT_EQ(ignored_of(kHello +
                       R"(,"context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"},{"type":"compact_20260112"}]})"),
            names("context_management.edits[1]:compact_20260112"));
  EXPECT_EQ(ignored_of(kHello + R"(,"mcp_servers":[],"container":"c")"), names("mcp_servers", "container"));
  EXPECT_EQ(ignored_of(kHello + R"(,"metadata":{"user_id":"u"})"), names());
  EXPECT_EQ(ignored_of(kHello + R"(,"metadata":{"user_id":"u","team":"t"})"), names("metadata"));
  EXPECT_EQ(ignored_of(kHello + R"(,"thinking":{"type":"enabled","budget_tokens":5})"), names("thinking.budget_tokens"));
  EXPECT_EQ(ignored_of(kHello + R"(,"output_config":{"task_budget":{}})"), names("output_config.task_budget"));
  EXPECT_EQ(ignored_of(kHello + R"(,"system":[{"type":"text","text":"x-anthropic-billing-header: a"}])"),
            names("system[0]:x-anthropic-billing-header"));
}

TEST(MessagesRequest, BetaRequestsMayHaveUnknownFields) {
  const std::string body = R"({"model":"m","max_tokens":5,"systems":1,)" + kHello + "}";
  EXPECT_EQ(field_of_refusal(body), "systems") << "a misspelt field is an error";
  EXPECT_EQ(ignored_of(kHello + R"(,"systems":1)", {.is_beta = true}), std::vector<std::string>{"systems"});
}

// Supported fields, null fields and fields of ignored parts are not reported.
TEST(MessagesRequest, ReportsIgnoredFieldsOfParts) {
  const std::vector<std::string> named = ignored_of(R"("system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"},"aa":1}],
    "messages":[{"role":"user","content":"hi","bb":1},
      {"role":"assistant","id":"msg_1","content":[{"type":"thinking","thinking":"hm","signature":"s","cc":1},
        {"type":"redacted_thinking","data":"x","dd":1},{"type":"text","text":"wait","citations":null},
        {"type":"tool_use","id":"t1","name":"f","input":{"any":1},"caller":{"type":"direct"},"kk":1}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","is_error":false,"ee":1,
        "content":[{"type":"text","text":"4","citations":[]}]}]}],
    "tools":[{"type":"web_search_20250305","name":"web_search","max_uses":5},
      {"type":"custom","name":"f","strict":true,"input_schema":{"any":1},"defer_loading":true}],
    "tool_choice":{"type":"auto","ff":1},"thinking":{"type":"enabled","gg":1},
    "output_config":{"format":{"type":"json_schema","schema":{"any":1},"hh":1}})");
  EXPECT_EQ(named, (std::vector<std::string>{"system[0].aa", "messages[0].bb", "messages[1].id", "messages[1].content[0].cc",
                                             "messages[1].content[1].dd", "messages[1].content[3].kk", "messages[2].content[0].ee",
                                             "messages[2].content[0].content[0].citations", "tools[1].defer_loading",
                                             "output_config.format.hh", "tool_choice.ff", "thinking.gg"}));
}

TEST(MessagesRequest, ReportsAFieldOfEveryTurnOnce) {
  std::string turns = R"({"role":"user","content":"hi"})";
  for (int i = 0; i < 40; ++i) turns += R"(,{"role":"user","content":[{"type":"text","text":"hi","citations":[]}]})";
  EXPECT_EQ(ignored_of(R"("messages":[)" + turns + R"(],"xyzzy":1)"),
            (std::vector<std::string>{"messages[1].content[0].citations", "xyzzy"}));
}

TEST(MessagesRequest, RefusesMisspeltFieldsWithinParts) {
  const std::pair<std::string, std::string> cases[] = {
      {R"("messages":[{"role":"user","content":[{"type":"text","text":"a","cache_controll":{}}]}])",
       "messages[0].content[0].cache_controll"},
      {R"("messages":[{"role":"user","content":[{"type":"text","tex":"a"}]}])", "messages[0].content[0].text"},
      {R"("messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","is_eror":true}]}])",
       "messages[0].content[0].is_eror"},
      {kHello + R"(,"tools":[{"name":"f","input_schema":{},"descripton":"d"}])", "tools[0].descripton"},
      {R"("messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"ttl":"1y"}}]}])",
       "messages[0].content[0].cache_control.ttl"},
  };
  for (const auto& [fields, field] : cases) EXPECT_EQ(field_of_refusal(R"({"model":"m","max_tokens":5,)" + fields + "}"), field) << fields;
  EXPECT_EQ(ignored_of(kHello + R"(,"tools":[{"name":"f","input_schema":{},"descripton":"d"}])", {.is_beta = true}),
            std::vector<std::string>{"tools[0].descripton"});
}

struct MessagesCase {
  std::string fields, error;
};

std::string messages_error(const std::string& fields) {
  std::vector<std::string> ignored;
  const auto chat = chat_of_messages(parse_object("{" + fields + "}").value(), {}, ignored);
  return chat ? "accepted" : chat.error().to_string();
}

std::string user_with(const std::string& blocks) {
  return kModelAndLimit + R"("messages":[{"role":"user","content":[)" + blocks + "]}]";
}

TEST(MessagesErrors, NameTheFieldTheProblemAndTheFix) {
  const std::string turn = kModelAndLimit + kUserTurn + ",";
  const std::string which = "; use the type auto, any, none, or tool with a name";
  const std::string schema = R"(must be a JSON schema; send {"type": "json_schema", "schema": {...}})";
  std::string edits = R"({"type":"clear_thinking_20251015"})";
  for (int i = 1; i < 17; ++i) edits += R"(,{"type":"clear_thinking_20251015"})";
  const auto edit = [&](const std::string& more) {
    return turn + R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919",)" + more + "}]}";
  };
  const MessagesCase cases[] = {
      {R"("max_tokens":5,)" + kUserTurn, "model: is missing; use a model from /v1/models"},
      {R"("model":"m",)" + kUserTurn, "max_tokens: is missing; send the maximum number of answer tokens"},
      {R"("model":"m","max_tokens":0,)" + kUserTurn, "max_tokens: is 0; use 1 to 2147483647"},
      {R"("model":"m","max_tokens":2147483647,)" + kUserTurn, "accepted"},
      {kModelAndLimit + R"("messages":[])",
       R"(messages: must be an array with at least one message; send [{"role": "user", "content": "..."}])"},
      {kModelAndLimit + R"("messages":"a")",
       R"(messages: must be an array with at least one message; send [{"role": "user", "content": "..."}])"},
      {kModelAndLimit + R"("messages":[1])", "messages[0]: must be an object, not integer 1"},
      {kModelAndLimit + R"("messages":[{"role":"system","content":"a"}])",
       "messages[0].role: must be user or assistant; send the system prompt as system"},
      {kModelAndLimit + R"("messages":[{"role":"user","content":"a"},{"role":"tool","content":"a"}])",
       "messages[1].role: must be user or assistant; send the system prompt as system"},
      {kModelAndLimit + R"("messages":[{"role":"user","content":3}])", "messages[0].content: must be a string or an array of blocks"},
      {user_with("1"), R"(messages[0].content[0]: must be an object with a type; send {"type": "text", "text": "..."})"},
      {user_with(R"({"type":"text","text":"a"},{"type":"audio"})"),
       "messages[0].content[1].type: is 'audio'; send text blocks: this model supports text only"},
      {user_with(R"({"type":"text","text":3})"), "messages[0].content[0].text: must be a string"},
      {user_with(R"({"type":"tool_result"})"), "messages[0].content[0].tool_use_id: must be the id of a tool_use block"},
      {user_with(R"({"type":"tool_result","tool_use_id":"t","content":3})"),
       "messages[0].content[0].content: must be a string or an array of blocks, not integer 3"},
      {user_with(R"({"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]})"),
       "messages[0].content[0].content[0].type: is 'image'; send text blocks: this model supports text only"},
      {kModelAndLimit + R"("messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":{}}]}])",
       "messages[0].content[0]: must have an id and a name"},
      {kModelAndLimit + R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","input":{}}]}])",
       "messages[0].content[0]: must have an id and a name"},
      {kModelAndLimit + R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f"}]}])",
       "messages[0].content[0].input: must be an object"},
      {kModelAndLimit + R"("messages":[{"role":"assistant","content":"a"}])",
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
  for (const MessagesCase& one : cases) EXPECT_EQ(messages_error(one.fields), one.error) << one.fields;
  EXPECT_EQ(messages_error(turn + R"("context_management":{"edits":[)" + edits.substr(0, edits.rfind(",{")) + "]}"), "accepted");
}

TEST(MessagesChat, HasTheContentOfTheBody) {
  const auto chat_from = [](const std::string& fields) {
    std::vector<std::string> ignored;
    auto chat = chat_of_messages(parse_object("{" + kModelAndLimit + fields + "}").value(), {}, ignored);
    EXPECT_TRUE(chat) << fields << chat.error().to_string();
    return json::serialize(chat->chat.at("messages"));
  };
  EXPECT_EQ(chat_from(R"("system":"","messages":[{"role":"user","content":[]}])"), R"([{"role":"user","content":""}])");
  EXPECT_EQ(chat_from(R"("system":[{"type":"text","text":"x-anthropic-billing-header: a"},{"type":"text","text":"s"}],)" + kUserTurn),
            R"([{"role":"system","content":"s"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(chat_from(R"("system":[{"type":"text","text":"s"},{"type":"text","text":"x-anthropic-billing-header: a"}],)" + kUserTurn),
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

}  // namespace
}  // namespace quire
