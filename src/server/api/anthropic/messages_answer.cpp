// Writes answers for Anthropic's clients, on the server's thread, from the same parts as chat answers. Events keep Anthropic's order: a
// message begins once, blocks are opened and closed one after another, and nothing follows message_stop.
#include "server/api/anthropic/messages_answer.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <utility>

#include "base/append_format.h"
#include "base/json_text.h"
#include "server/http/answer_id.h"
#include "server/http/error_response.h"
#include "text/tool_calls/json_object.h"
#include "text/utf8.h"

namespace quire {

namespace {

std::string_view messages_error_type(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

std::string messages_error_body(const std::string& message, unsigned status) {
  return fmt::format(R"({{"type":"error","error":{{"type":"{}","message":{}}}}})", messages_error_type(status),
                     json_string(repair_utf8(message)));
}

// Reports cached prompt tokens separately from the other prompt tokens. cache_creation is null, because cache writes have no separate
// price.
std::string messages_usage(const Usage& usage) {
  return fmt::format(R"({{"input_tokens":{},"cache_creation":null,"cache_creation_input_tokens":0,"cache_read_input_tokens":{},)"
                     R"("output_tokens":{},"output_tokens_details":null,"inference_geo":null,"server_tool_use":null,"service_tier":null}})",
                     usage.prompt_tokens - usage.cached_tokens, usage.cached_tokens, usage.completion_tokens);
}

std::string stop_json(const AnswerEnd& end) {
  return fmt::format(R"("stop_reason":"{}","stop_sequence":{})", stop_reason_name(end.reason, end.cause, end.calls_tools),
                     end.cause.text ? json_string(*end.cause.text) : "null");
}

void append_event(std::string& events, std::string_view type, std::string_view fields) {
  append_format(events, "event: {0}\ndata: {{\"type\":\"{0}\"{1}}}\n\n", type, fields);
}

}  // namespace

std::string_view stop_reason_name(FinishReason reason, const StopCause& cause, bool calls_tools) {
  if (reason == FinishReason::length) return "max_tokens";
  if (cause.text) return "stop_sequence";
  return calls_tools ? "tool_use" : "end_turn";
}

std::string diagnostics_json(const PromptComparison* compared) {
  const auto reason = [](std::string_view type) { return fmt::format(R"({{"cache_miss_reason":{{"type":"{}"}}}})", type); };
  const auto changed = [&](std::string_view type) {
    return fmt::format(R"({{"cache_miss_reason":{{"type":"{}","cache_missed_input_tokens":{}}}}})", type, compared->num_missed_tokens);
  };
  switch (compared != nullptr ? compared->change : PromptChange::none) {
    case PromptChange::none:
      return "null";
    case PromptChange::not_found:
      return reason("previous_message_not_found");
    case PromptChange::tools:
      return changed("tools_changed");
    case PromptChange::system:
      return changed("system_changed");
    case PromptChange::turns:
      return changed("messages_changed");
    case PromptChange::settings:
      return reason("unavailable");
  }
  return "null";
}

HttpResponse as_messages_error(HttpResponse response) {
  if (response.status < 400) return response;
  boost::system::error_code failed;
  const boost::json::value body = boost::json::parse(response.body, failed);
  const boost::json::value* message = failed ? nullptr : body.find_pointer("/error/message", failed);
  if (message != nullptr && message->is_string()) response.body = messages_error_body(std::string(message->get_string()), response.status);
  return response;
}

std::string MessageWriter::message_json(std::string_view content, std::string_view stop, const Usage& usage) const {
  return fmt::format(
      R"({{"id":{},"type":"message","role":"assistant","model":{},"content":[{}],{},"stop_details":null,"container":null,"usage":{}{}{}{}}})",
      json_string(head_.id), json_string(head_.model), content, stop, messages_usage(usage),
      diagnostics_.empty() ? "" : R"(,"diagnostics":)", diagnostics_, warnings_json(head_));
}

void MessageWriter::begin(std::string& events, const Usage& usage) {
  append_event(events, "message_start", R"(,"message":)" + message_json("", R"("stop_reason":null,"stop_sequence":null)", usage));
  append_event(events, "ping", "");
}

void MessageWriter::add(std::string& events, const AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::content:
      if (open_ != Kind::text) open(events, Kind::text, {});
      return append_text(events, part.text);
    case AnswerPart::Kind::reasoning:
      if (open_ != Kind::thinking) open(events, Kind::thinking, {});
      return append_text(events, part.text);
    case AnswerPart::Kind::call:
      return open(
          events, Kind::tool_use,
          {.kind = Kind::tool_use, .id = fmt::format("toolu_{}_{}", unique_part(head_.id), part.call), .name = part.text, .text = {}});
    case AnswerPart::Kind::arguments:
      return append_text(events, part.text);
    case AnswerPart::Kind::call_end:
      return close(events);
    case AnswerPart::Kind::call_broken:
      // A stream cannot take the call back; its text follows.
      close(events);
      if (!is_stream_) blocks_.pop_back();
      return;
    case AnswerPart::Kind::call_truncated:
      // A stream keeps the text as it came; a whole answer must contain a JSON object.
      close(events);
      if (!is_stream_) blocks_.back().text = complete_object(blocks_.back().text, UnterminatedString::dropped).value_or("{}");
      return;
  }
}

void MessageWriter::open(std::string& events, Kind kind, Block block) {
  close(events);
  open_ = kind;
  block.kind = kind;
  if (!is_stream_) {
    blocks_.push_back(std::move(block));
    return;
  }
  std::string shown = R"({"type":"text","text":""})";
  if (kind == Kind::thinking) shown = R"({"type":"thinking","thinking":"","signature":""})";
  if (kind == Kind::tool_use)
    shown = fmt::format(R"({{"type":"tool_use","id":{},"name":{},"input":{{}}}})", json_string(block.id), json_string(block.name));
  append_event(events, "content_block_start", fmt::format(R"(,"index":{},"content_block":{})", num_blocks_, shown));
}

void MessageWriter::close(std::string& events) {
  if (std::exchange(open_, Kind::none) == Kind::none) return;
  if (is_stream_) append_event(events, "content_block_stop", fmt::format(R"(,"index":{})", num_blocks_));
  ++num_blocks_;
}

void MessageWriter::append_text(std::string& events, std::string_view text) {
  if (!is_stream_) {
    blocks_.back().text += text;
    return;
  }
  std::string_view type = "text_delta", field = "text";
  if (open_ == Kind::thinking) type = "thinking_delta", field = "thinking";
  if (open_ == Kind::tool_use) type = "input_json_delta", field = "partial_json";
  append_event(events, "content_block_delta",
               fmt::format(R"(,"index":{},"delta":{{"type":"{}","{}":{}}})", num_blocks_, type, field, json_string(text)));
}

void MessageWriter::end(std::string& events, const AnswerEnd& end) {
  close(events);
  if (!is_stream_) {
    whole_ = message_json(content(), stop_json(end), end.usage);
    return;
  }
  append_event(events, "message_delta", fmt::format(R"(,"delta":{{{}}},"usage":{})", stop_json(end), messages_usage(end.usage)));
  append_event(events, "message_stop", "");
}

void MessageWriter::fail(std::string& events, const Error& error) {
  events += "event: error\ndata: " + messages_error_body(error.to_string(), http_status(error.code)) + "\n\n";
}

std::string MessageWriter::content() const {
  std::string content;
  for (const Block& block : blocks_) {
    if (!content.empty()) content += ',';
    if (block.kind == Kind::thinking)
      content += fmt::format(R"({{"type":"thinking","thinking":{},"signature":""}})", json_string(block.text));
    else if (block.kind == Kind::tool_use)
      content += fmt::format(R"({{"type":"tool_use","id":{},"name":{},"input":{},"caller":{{"type":"direct"}}}})", json_string(block.id),
                             json_string(block.name), block.text.empty() ? "{}" : block.text);
    else
      content += fmt::format(R"({{"type":"text","text":{},"citations":null}})", json_string(block.text));
  }
  return content;
}

}  // namespace quire
