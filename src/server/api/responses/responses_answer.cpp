// Writes answers of /v1/responses on the server's thread, from the same parts as chat answers: items with separate events, and one sequence
// number over all events. keep() stores the conversation as templates read it, and its tokens, so that the next turn's prompt can begin
// with exactly the same tokens.
#include "server/api/responses/responses_answer.h"

#include <fmt/format.h>

#include <utility>

#include "base/append_format.h"
#include "base/json_text.h"
#include "server/answers/token_logprobs.h"
#include "server/api/serving.h"
#include "server/http/answer_id.h"
#include "text/utf8.h"

namespace quire {

namespace {

constexpr std::string_view kEmptyEnding = R"("completed_at":null,"error":null,"incomplete_details":null,"output":[],"usage":null)";

std::string responses_usage(const Usage& usage) {
  return fmt::format(R"({{"input_tokens":{},"input_tokens_details":{{"cached_tokens":{},"cache_write_tokens":0}},"output_tokens":{},)"
                     R"("output_tokens_details":{{"reasoning_tokens":{}}},"total_tokens":{}}})",
                     usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens, usage.reasoning_tokens,
                     usage.prompt_tokens + usage.completion_tokens);
}

// Returns the status of the answer, and of its last item if that is cut off.
std::string_view status_of(FinishReason reason) {
  if (reason == FinishReason::length) return "incomplete";
  return reason == FinishReason::abort ? "cancelled" : "completed";
}

// Returns the elements of an array without brackets, so that more can be added.
std::string elements_of(const std::vector<PositionLogprobs>& logprobs, const Tokenizer& tokenizer) {
  std::string array;
  append_token_logprobs(array, {tokenizer}, logprobs);
  return array.substr(1, array.size() - 2);
}

}  // namespace

std::string cache_diagnostics(const PromptComparison& compared, std::uint64_t num_cached_tokens) {
  const auto outcome = [](std::string_view type) { return fmt::format(R"({{"type":"{}"}})", type); };
  const auto miss = [&](std::string_view reason) {
    return fmt::format(R"({{"type":"cache_miss","reason":"{}","cache_missed_tokens":{},"comparison_reusable_tokens":{}}})", reason,
                       compared.num_missed_tokens, compared.num_reusable_tokens);
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
  // The prefix is the same, and the cache has lost it. OpenAI's list has no reason for that case; /v1/requests/{id}/explain has one.
  const bool is_there = num_cached_tokens + PromptFingerprint::kBlock >= compared.num_reusable_tokens;
  return outcome(is_there ? "cache_hit" : "unavailable");
}

void ResponseWriter::event(std::string& events, std::string_view type, const std::string& fields) {
  append_format(events, "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},{2}}}\n\n", type, num_events_++, fields);
}

// Writes the event "response.WHAT" of the last item.
void ResponseWriter::item_event(std::string& events, std::string_view what, const std::string& fields) {
  event(events, fmt::format("response.{}", what),
        fmt::format(R"("item_id":{},"output_index":{},{})", json_string(items_.back().id), items_.size() - 1, fields));
}

std::string ResponseWriter::part_json(const Item& item) {
  if (item.kind == Kind::reasoning) return fmt::format(R"({{"type":"reasoning_text","text":{}}})", json_string(item.text));
  return fmt::format(R"({{"type":"output_text","text":{},"annotations":[],"logprobs":[{}]}})", json_string(item.text), item.logprobs);
}

std::string ResponseWriter::item_json(const Item& item) {
  const bool is_new = item.status == "in_progress";
  const std::string content = is_new ? "" : part_json(item);
  const std::string head = fmt::format(R"({{"id":{},"status":"{}",)", json_string(item.id), item.status);
  if (item.kind == Kind::call)
    return head + fmt::format(R"("type":"function_call","call_id":{},"name":{},"arguments":{}}})", json_string(item.call_id),
                              json_string(item.name), json_string(item.text));
  if (item.kind == Kind::reasoning) return head + fmt::format(R"("type":"reasoning","summary":[],"content":[{}]}})", content);
  return head + fmt::format(R"("type":"message","role":"assistant","content":[{}]}})", content);
}

std::string ResponseWriter::output_json() const {
  std::string out = "[";
  for (const Item& item : items_) {
    if (out.size() > 1) out += ',';
    out += item_json(item);
  }
  return out + "]";
}

std::string ResponseWriter::response_json(std::string_view status, const std::string& ending) const {
  return fmt::format(R"({{"id":{},"object":"response","created_at":{},"status":"{}","model":{},{}{}}})", json_string(head_.id),
                     head_.created_s, status, json_string(head_.model), ending, call_.settings);
}

void ResponseWriter::begin(std::string& events, const Usage& /*usage*/) {
  if (std::exchange(has_begun_, true)) return;
  const std::string response = R"("response":)" + response_json("in_progress", std::string(kEmptyEnding));
  event(events, "response.created", response);
  event(events, "response.in_progress", response);
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
      // A stream cannot take the call back; its text follows.
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
  event(events, "response.output_item.added", fmt::format(R"("output_index":{},"item":{})", items_.size() - 1, item_json(item)));
  if (kind != Kind::call) item_event(events, "content_part.added", R"("content_index":0,"part":)" + part_json(item));
}

void ResponseWriter::append_text(std::string& events, std::string_view text, const std::string& logprobs) {
  Item& item = items_.back();
  item.text += text;
  if (!item.logprobs.empty() && !logprobs.empty()) item.logprobs += ',';
  item.logprobs += logprobs;
  if (!is_stream_) return;
  const std::string delta = R"("delta":)" + json_string(text);
  if (item.kind == Kind::call) return item_event(events, "function_call_arguments.delta", delta);
  if (item.kind == Kind::reasoning) return item_event(events, "reasoning_text.delta", R"("content_index":0,)" + delta);
  item_event(events, "output_text.delta", fmt::format(R"("content_index":0,"logprobs":[{}],{})", logprobs, delta));
}

void ResponseWriter::close(std::string& events, std::string_view status) {
  if (!std::exchange(is_open_, false)) return;
  Item& item = items_.back();
  item.status = status;
  if (!is_stream_) return;
  const std::string text = json_string(item.text);
  if (item.kind == Kind::call) {
    item_event(events, "function_call_arguments.done", fmt::format(R"("name":{},"arguments":{})", json_string(item.name), text));
  } else {
    const std::string done = R"("content_index":0,"text":)" + text;
    if (item.kind == Kind::reasoning)
      item_event(events, "reasoning_text.done", done);
    else
      item_event(events, "output_text.done", fmt::format(R"({},"logprobs":[{}])", done, item.logprobs));
    item_event(events, "content_part.done", R"("content_index":0,"part":)" + part_json(item));
  }
  event(events, "response.output_item.done", fmt::format(R"("output_index":{},"item":{})", items_.size() - 1, item_json(item)));
}

void ResponseWriter::end(std::string& events, const AnswerEnd& end) {
  if (items_.empty()) open(events, Kind::text);  // agents expect a message
  const std::string_view status = status_of(end.reason);
  close(events, status == "completed" ? "completed" : "incomplete");
  const std::string ending =
      fmt::format(R"("completed_at":{},"error":null,"incomplete_details":{},"output":{},"usage":{})",
                  status == "completed" ? std::to_string(unix_now_s()) : "null",
                  status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null", output_json(), responses_usage(end.usage));
  whole_ = response_json(
      status,
      ending + (compared_ == nullptr ? "" : R"(,"prompt_cache_diagnostics":)" + cache_diagnostics(*compared_, end.usage.cached_tokens)));
  if (status != "cancelled") keep(end);
  if (is_stream_) event(events, status == "completed" ? "response.completed" : "response.incomplete", R"("response":)" + whole_);
}

// Stores the answer. The chat continues from one message that contains the content of all items.
void ResponseWriter::keep(const AnswerEnd& end) const {
  if (!call_.is_stored) return;
  std::string text, thoughts, calls;
  for (const Item& item : items_) {
    if (item.kind == Kind::text) text += item.text;
    if (item.kind == Kind::reasoning) thoughts += item.text;
    if (item.kind != Kind::call || item.is_broken) continue;
    calls += fmt::format(R"({}{{"id":{},"type":"function","function":{{"name":{},"arguments":{}}}}})", calls.empty() ? "" : ",",
                         json_string(item.call_id), json_string(item.name), json_string(item.text));
  }
  std::string message = R"({"role":"assistant","content":)" + json_string(text);
  if (!thoughts.empty()) message += R"(,"reasoning_content":)" + json_string(thoughts);
  if (!calls.empty()) message += R"(,"tool_calls":[)" + calls + "]";
  // The conversation contains a message already, so a comma comes first.
  std::string conversation = call_.conversation.substr(0, call_.conversation.size() - 1) + "," + message + "}]";
  store_callback_({head_.id, whole_, call_.input, std::move(conversation), end.tokens});
}

void ResponseWriter::fail(std::string& events, const Error& error) {
  begin(events, {});
  const std::string ending = fmt::format(
      R"("completed_at":null,"error":{{"code":"server_error","message":{}}},"incomplete_details":null,"output":{},"usage":null)",
      json_string(repair_utf8(error.to_string())), output_json());
  event(events, "response.failed", R"("response":)" + response_json("failed", ending));
}

}  // namespace quire
