// Writes answers in Anthropic's format, on the server's thread, from the same parts as chat answers. Events have Anthropic's order: one
// message_start, then the content blocks one after another, and message_stop last.
#include "server/api/anthropic/messages_answer.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <cstdint>
#include <optional>
#include <utility>

#include "base/json_writer.h"
#include "server/answers/typed_event.h"
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
  return json_object([&](JsonWriter& json) {
    json.field("type", "error").begin_object("error").field("type", messages_error_type(status));
    json.field("message", repair_utf8(message)).end_object();
  });
}

// Writes cached prompt tokens separately from the other prompt tokens. cache_creation is null, because cache writes have no separate price.
void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object("usage").field("input_tokens", usage.prompt_tokens - usage.cached_tokens).field("cache_creation", nullptr);
  json.field("cache_creation_input_tokens", 0).field("cache_read_input_tokens", usage.cached_tokens);
  json.field("output_tokens", usage.completion_tokens);
  for (const char* absent : {"output_tokens_details", "inference_geo", "server_tool_use", "service_tier"}) json.field(absent, nullptr);
  json.end_object();
}

// `end` is null before the answer has ended.
void write_stop(JsonWriter& json, const AnswerEnd* end) {
  using Text = std::optional<std::string_view>;
  json.field("stop_reason", end == nullptr ? Text() : stop_reason_name(end->reason, end->cause, end->calls_tools));
  json.field("stop_sequence", end == nullptr || !end->cause.text ? Text() : *end->cause.text);
}

}  // namespace

std::string_view stop_reason_name(FinishReason reason, const StopCause& cause, bool calls_tools) {
  if (reason == FinishReason::length) return "max_tokens";
  if (cause.text) return "stop_sequence";
  return calls_tools ? "tool_use" : "end_turn";
}

std::string diagnostics_json(const PromptComparison* compared) {
  const auto outcome = [](std::string_view type, const std::uint64_t* num_missed_tokens) {
    return json_object([&](JsonWriter& json) {
      json.begin_object("cache_miss_reason").field("type", type);
      if (num_missed_tokens != nullptr) json.field("cache_missed_input_tokens", *num_missed_tokens);
      json.end_object();
    });
  };
  const auto reason = [&](std::string_view type) { return outcome(type, nullptr); };
  const auto changed = [&](std::string_view type) { return outcome(type, &compared->num_missed_tokens); };
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

void MessageWriter::write_message(JsonWriter& json, const AnswerEnd* end, const Usage& usage) const {
  json.begin_object().field("id", head_.id).field("type", "message").field("role", "assistant").field("model", head_.model);
  json.begin_array("content").raw(content()).end_array();
  write_stop(json, end);
  json.field("stop_details", nullptr).field("container", nullptr);
  write_usage(json, usage);
  if (!diagnostics_.empty()) json.raw_field("diagnostics", diagnostics_);
  json.raw(warnings_json(head_)).end_object();
}

void MessageWriter::begin(std::string& events, const Usage& usage) {
  append_typed_event(events, "message_start", [&](JsonWriter& json) {
    json.key("message");
    write_message(json, nullptr, usage);
  });
  append_typed_event(events, "ping");
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
      // A stream cannot retract a call that was already sent; its text follows as a text block.
      close(events);
      if (!is_stream_) blocks_.pop_back();
      return;
    case AnswerPart::Kind::call_truncated:
      // A stream leaves the text as it was sent. In a whole answer, the input must be a JSON object.
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
  append_typed_event(events, "content_block_start", [&](JsonWriter& json) {
    json.field("index", num_blocks_).begin_object("content_block");
    if (kind == Kind::thinking)
      json.field("type", "thinking").field("thinking", "").field("signature", "");
    else if (kind == Kind::tool_use)
      json.field("type", "tool_use").field("id", block.id).field("name", block.name).begin_object("input").end_object();
    else
      json.field("type", "text").field("text", "");
    json.end_object();
  });
}

void MessageWriter::close(std::string& events) {
  if (std::exchange(open_, Kind::none) == Kind::none) return;
  if (is_stream_) append_typed_event(events, "content_block_stop", [&](JsonWriter& json) { json.field("index", num_blocks_); });
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
  append_typed_event(events, "content_block_delta", [&](JsonWriter& json) {
    json.field("index", num_blocks_).begin_object("delta").field("type", type).field(field, text).end_object();
  });
}

void MessageWriter::end(std::string& events, const AnswerEnd& end) {
  close(events);
  if (!is_stream_) {
    JsonWriter json(whole_);
    write_message(json, &end, end.usage);
    return;
  }
  append_typed_event(events, "message_delta", [&](JsonWriter& json) {
    json.begin_object("delta");
    write_stop(json, &end);
    json.end_object();
    write_usage(json, end.usage);
  });
  append_typed_event(events, "message_stop");
}

void MessageWriter::fail(std::string& events, const Error& error) {
  events += "event: error\ndata: " + messages_error_body(error.to_string(), http_status(error.code)) + "\n\n";
}

std::string MessageWriter::content() const {
  std::string content;
  JsonWriter json(content);
  for (const Block& block : blocks_) {
    json.begin_object();
    if (block.kind == Kind::thinking) {
      json.field("type", "thinking").field("thinking", block.text).field("signature", "");
    } else if (block.kind == Kind::tool_use) {
      json.field("type", "tool_use").field("id", block.id).field("name", block.name);
      json.raw_field("input", block.text.empty() ? "{}" : block.text).begin_object("caller").field("type", "direct").end_object();
    } else {
      json.field("type", "text").field("text", block.text).field("citations", nullptr);
    }
    json.end_object();
  }
  return content;
}

}  // namespace quire
