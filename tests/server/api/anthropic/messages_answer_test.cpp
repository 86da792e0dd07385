// Tests messages and their events in Anthropic's format.
#include "server/api/anthropic/messages_answer.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <string>
#include <utility>
#include <vector>

#include "server/api/anthropic/messages_bodies.h"
#include "server/api/anthropic/messages_request.h"
#include "server/http/error_response.h"
#include "server/request/prompt_fingerprint.h"

namespace quire {
namespace {

namespace json = boost::json;
using PartKind = AnswerPart::Kind;

const AnswerHead kHead{.api = Api::chat, .id = "msg_1", .model = "m", .created_s = 0};
const std::vector<AnswerPart> kParts{{PartKind::reasoning, 0, "hm"},      {PartKind::content, 0, "a\"b"},  {PartKind::call, 0, "f"},
                                     {PartKind::arguments, 0, R"({"x")"}, {PartKind::arguments, 0, ":1}"}, {PartKind::call_end, 0, ""}};
const AnswerEnd kEnd{.reason = FinishReason::stop, .cause = {}, .calls_tools = true, .usage = {10, 4, 3}};

TEST(MessagesAnswer, WritesTheBlocksOfAWholeMessageInOrder) {
  MessageWriter writer(kHead, false);
  std::string none;
  for (const AnswerPart& part : kParts) writer.add(none, part);
  writer.end(none, kEnd);
  EXPECT_EQ(none, "");
  EXPECT_EQ(json::parse(writer.whole()), json::parse(R"({"id":"msg_1","type":"message","role":"assistant","model":"m","content":[
    {"type":"thinking","thinking":"hm","signature":""},{"type":"text","text":"a\"b","citations":null},
    {"type":"tool_use","id":"toolu_1_0","name":"f","input":{"x":1},"caller":{"type":"direct"}}],"stop_reason":"tool_use",
    "stop_sequence":null,"stop_details":null,"container":null,"usage":{"input_tokens":7,"cache_creation":null,"cache_creation_input_tokens":0,
    "cache_read_input_tokens":3,"output_tokens":4,"output_tokens_details":null,"inference_geo":null,"server_tool_use":null,
    "service_tier":null}})"));
}

// `order` collects the type and index of each event.
TEST(MessagesAnswer, OpensAndClosesStreamedBlocksOneByOne) {
  MessageWriter writer(kHead, true);
  std::string events, order;
  writer.begin(events, kEnd.usage);
  for (const AnswerPart& part : kParts) writer.add(events, part);
  writer.end(events, kEnd);
  for (std::size_t at = events.find("data: "); at != std::string::npos; at = events.find("data: ", at + 1)) {
    const json::object data = json::parse(events.substr(at + 6, events.find('\n', at) - at - 6)).as_object();
    order += std::string(data.at("type").as_string()) + (data.contains("index") ? std::to_string(data.at("index").as_int64()) : "") + " ";
  }
  EXPECT_EQ(order,
            "message_start ping content_block_start0 content_block_delta0 content_block_stop0 content_block_start1 content_block_delta1 "
            "content_block_stop1 content_block_start2 content_block_delta2 content_block_delta2 content_block_stop2 message_delta "
            "message_stop ");
}

TEST(MessagesAnswer, OmitsABrokenCallFromAWholeMessage) {
  MessageWriter writer(kHead, false);
  std::string none;
  for (const AnswerPart& part :
       {AnswerPart{PartKind::call, 0, "f"}, AnswerPart{PartKind::call_broken, 0, ""}, AnswerPart{PartKind::content, 0, "x"}})
    writer.add(none, part);
  writer.end(none, {.reason = FinishReason::length});
  const json::value message = json::parse(writer.whole());
  EXPECT_EQ(message.at("content"), json::parse(R"([{"type":"text","text":"x","citations":null}])"));
  EXPECT_EQ(message.at("stop_reason"), "max_tokens");
}

TEST(MessagesAnswer, KeepsTheCompleteInputsOfATruncatedCall) {
  const auto input_of = [](const char* arguments) {
    MessageWriter writer(kHead, false);
    std::string none;
    for (const AnswerPart& part :
         {AnswerPart{PartKind::call, 0, "f"}, AnswerPart{PartKind::arguments, 0, arguments}, AnswerPart{PartKind::call_truncated, 0, ""}})
      writer.add(none, part);
    writer.end(none, {.reason = FinishReason::length});
    const json::value message = json::parse(writer.whole());
    EXPECT_EQ(message.at("content").as_array().size(), 1U);
    return json::serialize(message.at("content").as_array()[0].at("input"));
  };
  EXPECT_EQ(input_of(R"({"a": "b", "c": ["d", 12, "e)"), R"({"a":"b","c":["d",12]})");
  EXPECT_EQ(input_of(R"({"a": tr)"), "{}");
  EXPECT_EQ(input_of(R"({"a": {"b": null)"), R"({"a":{"b":null}})");
  EXPECT_EQ(input_of(""), "{}");
}

TEST(MessagesAnswer, ReportsTheStopReason) {
  StopCause by_text;
  by_text.text = "x";
  EXPECT_EQ(stop_reason_name(FinishReason::stop, {}, false), "end_turn");
  EXPECT_EQ(stop_reason_name(FinishReason::stop, {}, true), "tool_use");
  EXPECT_EQ(stop_reason_name(FinishReason::stop, by_text, false), "stop_sequence");
  EXPECT_EQ(stop_reason_name(FinishReason::length, {}, true), "max_tokens");
}

TEST(MessagesAnswer, WritesErrorsInAnthropicsFormat) {
  const HttpResponse refused = as_messages_error(error_response(404, {ErrorCode::not_found, "model", "is unknown", ""}));
  EXPECT_EQ(refused.status, 404U);
  EXPECT_EQ(json::parse(refused.body).at("type"), "error");
  EXPECT_EQ(json::parse(refused.body).at("error").at("type"), "not_found_error");
  EXPECT_EQ(json::parse(refused.body).at("error").at("message"), "model: is unknown");
  const HttpResponse busy = as_messages_error(error_response(429, {ErrorCode::overloaded, "", "too much", ""}, 7));
  EXPECT_EQ(busy.headers, (HttpHeaders{{"Retry-After", "7"}}));
  EXPECT_EQ(as_messages_error({200, "application/json", "{}", {}}).body, "{}");
}

TEST(MessagesDiagnostics, NameTheEarlierMessage) {
  const auto previous_of = [](const std::string& more) {
    std::vector<std::string> ignored;
    return chat_of_messages(parse_object("{" + kModelAndLimit + kUserTurn + more + "}").value(), {}, ignored).value().previous;
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

}  // namespace
}  // namespace quire
