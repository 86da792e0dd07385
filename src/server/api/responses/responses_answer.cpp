// Writes answers of /v1/responses on the server's thread, from the same parts as chat answers: each item has separate events, and one
// sequence number counts all events. keep() stores the answer's tokens and the conversation as chat messages, so that the prompt of the
// next turn can begin with exactly the same tokens.
#include "server/api/responses/responses_answer.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "base/json_writer.h"
#include "server/answers/function_call.h"
#include "server/answers/token_logprobs.h"
#include "server/answers/typed_event.h"
#include "server/api/serving.h"
#include "server/http/answer_id.h"
#include "text/utf8.h"

namespace quire {

namespace {

void write_usage(JsonWriter& json, const Usage& usage) {
  json.begin_object("usage").field("input_tokens", usage.prompt_tokens);
  json.begin_object("input_tokens_details").field("cached_tokens", usage.cached_tokens).field("cache_write_tokens", 0).end_object();
  json.field("output_tokens", usage.completion_tokens);
  json.begin_object("output_tokens_details").field("reasoning_tokens", usage.reasoning_tokens).end_object();
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens).end_object();
}

// Returns the status of the answer, which is also the status of a truncated last item.
std::string_view status_of(FinishReason reason) {
  if (reason == FinishReason::length) return "incomplete";
  return reason == FinishReason::abort ? "cancelled" : "completed";
}

// Returns the elements of the JSON array without brackets, so that more elements can be appended.
std::string elements_of(const std::vector<PositionLogprobs>& logprobs, const Tokenizer& tokenizer) {
  std::string array;
  JsonWriter json(array);
  write_token_logprobs(json, {tokenizer}, logprobs);
  return array.substr(1, array.size() - 2);
}

}  // namespace

std::string cache_diagnostics(const PromptComparison& compared, std::uint64_t num_cached_tokens) {
  const auto outcome = [](std::string_view type) { return json_object([&](JsonWriter& json) { json.field("type", type); }); };
  const auto miss = [&](std::string_view reason) {
    return json_object([&](JsonWriter& json) {
      json.field("type", "cache_miss").field("reason", reason).field("cache_missed_tokens", compared.num_missed_tokens);
      json.field("comparison_reusable_tokens", compared.num_reusable_tokens);
    });
  };
  switch (compared.change) {
    case PromptChange::not_found:
      return outcome("comparison_response_not_found");
    case PromptChange::tools:
      return miss("tools_changed");
    case PromptChange::settings:
      return miss("reasoning_effort_changed");
    case PromptChange::system:
    case PromptChange::turns:
      return miss("input_changed");
    case PromptChange::none:
      break;
  }
  // The prompts have the same prefix, so a miss means that the prefix was evicted. OpenAI's list has no reason for eviction;
  // /v1/requests/{id}/explain reports it.
  const bool is_there = num_cached_tokens + PromptFingerprint::kBlock >= compared.num_reusable_tokens;
  return outcome(is_there ? "cache_hit" : "unavailable");
}

template <class Write>
void ResponseWriter::event(std::string& events, std::string_view type, Write write) {
  append_typed_event(events, type, [&](JsonWriter& json) {
    json.field("sequence_number", num_events_++);
    write(json);
  });
}

void ResponseWriter::response_event(std::string& events, std::string_view type, const std::string& response) {
  event(events, type, [&](JsonWriter& json) { json.raw_field("response", response); });
}

// Writes the event "response.WHAT" for the last item.
template <class Write>
void ResponseWriter::item_event(std::string& events, std::string_view what, Write write) {
  event(events, fmt::format("response.{}", what), [&](JsonWriter& json) {
    json.field("item_id", items_.back().id).field("output_index", items_.size() - 1);
    write(json);
  });
}

// Writes an event that contains the whole last item.
void ResponseWriter::whole_item_event(std::string& events, std::string_view type) {
  event(events, type, [&](JsonWriter& json) {
    json.field("output_index", items_.size() - 1).key("item");
    write_item(json, items_.back());
  });
}

// Writes an event that contains the content of the last item.
void ResponseWriter::part_event(std::string& events, std::string_view what) {
  item_event(events, what, [&](JsonWriter& json) {
    json.field("content_index", 0).key("part");
    write_part(json, items_.back());
  });
}

void ResponseWriter::write_part(JsonWriter& json, const Item& item) {
  json.begin_object().field("type", item.kind == Kind::reasoning ? "reasoning_text" : "output_text").field("text", item.text);
  if (item.kind != Kind::reasoning) json.begin_array("annotations").end_array().begin_array("logprobs").raw(item.logprobs).end_array();
  json.end_object();
}

void ResponseWriter::write_item(JsonWriter& json, const Item& item) {
  json.begin_object().field("id", item.id).field("status", item.status);
  if (item.kind == Kind::call) {
    json.field("type", "function_call").field("call_id", item.call_id).field("name", item.name).field("arguments", item.text);
    json.end_object();
    return;
  }
  if (item.kind == Kind::reasoning)
    json.field("type", "reasoning").begin_array("summary").end_array();
  else
    json.field("type", "message").field("role", "assistant");
  json.begin_array("content");
  if (item.status != "in_progress") write_part(json, item);
  json.end_array().end_object();
}

void ResponseWriter::write_output(JsonWriter& json) const {
  json.begin_array("output");
  for (const Item& item : items_) write_item(json, item);
  json.end_array();
}

template <class Write>
std::string ResponseWriter::response_json(std::string_view status, Write write) const {
  return json_object([&](JsonWriter& json) {
    json.field("id", head_.id).field("object", "response").field("created_at", head_.created_s).field("status", status);
    json.field("model", head_.model);
    write(json);
    json.raw(call_.settings);
  });
}

void ResponseWriter::begin(std::string& events, const Usage& /*usage*/) {
  if (std::exchange(has_begun_, true)) return;
  const std::string response = response_json("in_progress", [](JsonWriter& json) {
    json.field("completed_at", nullptr).field("error", nullptr).field("incomplete_details", nullptr);
    json.begin_array("output").end_array().field("usage", nullptr);
  });
  for (const char* type : {"response.created", "response.in_progress"}) response_event(events, type, response);
}

void ResponseWriter::add(std::string& events, const AnswerPart& part) {
  const auto is_in = [&](Kind kind) { return is_open_ && items_.back().kind == kind; };
  switch (part.kind) {
    case AnswerPart::Kind::content:
      if (!is_in(Kind::text)) open(events, Kind::text);
      return append_text(events, part.text, elements_of(take_logprobs(part), *tokenizer_));
    case AnswerPart::Kind::reasoning:
      if (!is_in(Kind::reasoning)) open(events, Kind::reasoning);
      return append_text(events, part.text);
    case AnswerPart::Kind::call:
      return open(events, Kind::call, part.text, part.call);
    case AnswerPart::Kind::arguments:
      return append_text(events, part.text);
    case AnswerPart::Kind::call_end:
      return close(events, "completed");
    case AnswerPart::Kind::call_broken:
      // A stream cannot retract a call that was already sent; its text follows as another item.
      close(events, "incomplete");
      items_.back().is_broken = true;
      if (!is_stream_) items_.pop_back();
      return;
    case AnswerPart::Kind::call_truncated:
      return close(events, "incomplete");
  }
}

void ResponseWriter::open(std::string& events, Kind kind, std::string name, std::uint32_t call) {
  close(events, "completed");
  is_open_ = true;
  const std::string_view own = std::string_view(head_.id).substr(head_.id.find('_') + 1);
  const char* const prefix = kind == Kind::text ? "msg" : kind == Kind::reasoning ? "rs" : "fc";
  items_.push_back(
      {.kind = kind, .id = fmt::format("{}_{}_{}", prefix, own, items_.size()), .call_id = {}, .name = std::move(name), .text = {}});
  Item& item = items_.back();
  if (kind == Kind::call) item.call_id = fmt::format("call_{}_{}", unique_part(head_.id), call);
  if (!is_stream_) return;
  whole_item_event(events, "response.output_item.added");
  if (kind != Kind::call) part_event(events, "content_part.added");
}

void ResponseWriter::append_text(std::string& events, std::string_view text, const std::string& logprobs) {
  Item& item = items_.back();
  item.text += text;
  if (!item.logprobs.empty() && !logprobs.empty()) item.logprobs += ',';
  item.logprobs += logprobs;
  if (!is_stream_) return;
  const char* what = item.kind == Kind::call        ? "function_call_arguments.delta"
                     : item.kind == Kind::reasoning ? "reasoning_text.delta"
                                                    : "output_text.delta";
  item_event(events, what, [&](JsonWriter& json) {
    if (item.kind != Kind::call) json.field("content_index", 0);
    if (item.kind == Kind::text) json.begin_array("logprobs").raw(logprobs).end_array();
    json.field("delta", text);
  });
}

void ResponseWriter::close(std::string& events, std::string_view status) {
  if (!std::exchange(is_open_, false)) return;
  Item& item = items_.back();
  item.status = status;
  if (!is_stream_) return;
  if (item.kind == Kind::call) {
    item_event(events, "function_call_arguments.done",
               [&](JsonWriter& json) { json.field("name", item.name).field("arguments", item.text); });
  } else {
    const bool is_text = item.kind == Kind::text;
    item_event(events, is_text ? "output_text.done" : "reasoning_text.done", [&](JsonWriter& json) {
      json.field("content_index", 0).field("text", item.text);
      if (is_text) json.begin_array("logprobs").raw(item.logprobs).end_array();
    });
    part_event(events, "content_part.done");
  }
  whole_item_event(events, "response.output_item.done");
}

void ResponseWriter::end(std::string& events, const AnswerEnd& end) {
  if (items_.empty()) open(events, Kind::text);  // agents expect at least one message
  const std::string_view status = status_of(end.reason);
  close(events, status == "completed" ? "completed" : "incomplete");
  whole_ = response_json(status, [&](JsonWriter& json) {
    json.field("completed_at", status == "completed" ? std::optional(unix_now_s()) : std::nullopt).field("error", nullptr);
    if (status == "incomplete")
      json.begin_object("incomplete_details").field("reason", "max_output_tokens").end_object();
    else
      json.field("incomplete_details", nullptr);
    write_output(json);
    write_usage(json, end.usage);
    if (compared_ != nullptr) json.raw_field("prompt_cache_diagnostics", cache_diagnostics(*compared_, end.usage.cached_tokens));
  });
  if (status != "cancelled") keep(end);
  if (is_stream_) response_event(events, status == "completed" ? "response.completed" : "response.incomplete", whole_);
}

// Stores the answer. In the stored conversation, one message contains the content of all items.
void ResponseWriter::keep(const AnswerEnd& end) const {
  if (!call_.is_stored) return;
  std::string text, thoughts, calls;
  for (const Item& item : items_) {
    if (item.kind == Kind::text) text += item.text;
    if (item.kind == Kind::reasoning) thoughts += item.text;
    if (item.kind != Kind::call || item.is_broken) continue;
    JsonWriter json(calls);
    write_function_call(json, item.call_id, item.name, item.text);
  }
  std::string conversation = call_.conversation.substr(0, call_.conversation.size() - 1);  // without the closing bracket of the array
  JsonWriter json(conversation);
  json.begin_object().field("role", "assistant").field("content", text);
  if (!thoughts.empty()) json.field("reasoning_content", thoughts);
  if (!calls.empty()) json.begin_array("tool_calls").raw(calls).end_array();
  json.end_object().end_array();
  store_callback_({head_.id, whole_, call_.input, std::move(conversation), end.tokens});
}

void ResponseWriter::fail(std::string& events, const Error& error) {
  begin(events, {});
  const std::string response = response_json("failed", [&](JsonWriter& json) {
    json.field("completed_at", nullptr).begin_object("error").field("code", "server_error");
    json.field("message", repair_utf8(error.to_string())).end_object().field("incomplete_details", nullptr);
    write_output(json);
    json.field("usage", nullptr);
  });
  response_event(events, "response.failed", response);
}

}  // namespace quire
