// Reads the events of a streamed answer. Used by the load run for each request, on its thread. Chunks are measured at the time of the read
// call that completes them. A chunk counts if it has text; an answer without any text is measured by its last chunk.
#include "traffic/answer_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <optional>
#include <utility>

#include "text/utf8.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr unsigned kOk = 200;
constexpr std::size_t kMaxReason = 200, kMaxErrorBody = 16384;

double seconds_between(AnswerReader::Clock::time_point begin, AnswerReader::Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

const json::value* member_of(const json::value& value, std::string_view name) {
  return value.is_object() ? value.get_object().if_contains(name) : nullptr;
}

std::string_view text_of(const json::value& value, std::string_view name) {
  const json::value* const member = member_of(value, name);
  return member != nullptr && member->is_string() ? std::string_view(member->get_string()) : std::string_view();
}

// Returns the count of a member; nullopt if it is not a number of tokens.
std::optional<std::uint32_t> count_of(const json::value& value, std::string_view name) {
  const json::value* const member = member_of(value, name);
  if (member == nullptr || !member->is_number()) return std::nullopt;
  boost::system::error_code code;
  const auto count = member->to_number<std::uint32_t>(code);
  return code ? std::nullopt : std::optional(count);
}

// Returns the text of an error object: OpenAI's {"error": {"message": ...}}, or {"error": "..."}, {"message": ...}, {"detail": ...}.
std::string_view message_of(const json::value& value) {
  if (const json::value* const error = member_of(value, "error"))
    return error->is_string() ? std::string_view(error->get_string()) : text_of(*error, "message");
  const std::string_view message = text_of(value, "message");
  return message.empty() ? text_of(value, "detail") : message;
}

// Returns the beginning of a text on one line, without control characters.
std::string shortened(std::string_view text) {
  std::string result = repair_utf8(text.substr(0, kMaxReason));
  std::ranges::replace_if(result, [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; }, ' ');
  return result;
}

std::string failure_of(unsigned status, std::string_view body) {
  boost::system::error_code code;
  const json::value value = json::parse(body, code);
  const std::string_view message = code ? std::string_view() : message_of(value);
  return fmt::format("{}: {}", status, shortened(message.empty() ? body : message));
}

// Returns whether a chunk of /v1/completions or /v1/chat/completions has text, thoughts or a part of a tool call.
bool has_text(const json::value& choice) {
  if (!text_of(choice, "text").empty()) return true;
  const json::value* const delta = member_of(choice, "delta");
  if (delta == nullptr) return false;
  for (const std::string_view name : {"content", "reasoning_content", "reasoning", "refusal"})
    if (!text_of(*delta, name).empty()) return true;
  const json::value* const calls = member_of(*delta, "tool_calls");
  return calls != nullptr && calls->is_array() && !calls->get_array().empty();
}

}  // namespace

void AnswerReader::take(unsigned status, std::string_view body, Clock::time_point now) {
  if (error_body_.size() < kMaxErrorBody && !has_events_) error_body_ += body.substr(0, kMaxErrorBody - error_body_.size());
  if (status != kOk) return;
  events_.feed(body, [&](std::string_view data) { take_event(data, now); });
}

void AnswerReader::take_event(std::string_view data, Clock::time_point now) {
  has_events_ = true;
  if (data == "[DONE]") {
    has_finish_ = true;
    return;
  }
  boost::system::error_code code;
  const json::value event = json::parse(data, code);
  if (code || !event.is_object()) return set_failure(fmt::format("an event of the stream is not a JSON object: {}", shortened(data)));
  if (const json::value* const error = member_of(event, "error"); error != nullptr && !error->is_null())
    return set_failure(fmt::format("error in the stream: {}", shortened(message_of(event))));
  if (const json::value* const choices = member_of(event, "choices");
      choices != nullptr && choices->is_array() && !choices->get_array().empty()) {
    const json::value& choice = choices->get_array().front();
    take_chunk(has_text(choice), now);
    has_finish_ = has_finish_ || !text_of(choice, "finish_reason").empty();
  }
  const json::value* const usage = member_of(event, "usage");
  if (usage == nullptr) return;
  const auto prompt = count_of(*usage, "prompt_tokens"), output = count_of(*usage, "completion_tokens");
  if (!prompt || !output) return;
  record_.has_usage = true;
  record_.prompt_tokens = *prompt;
  record_.output_tokens = *output;
  const json::value* const details = member_of(*usage, "prompt_tokens_details");
  const auto cached = details == nullptr ? std::nullopt : count_of(*details, "cached_tokens");
  record_.has_cached_tokens = cached.has_value();
  record_.cached_tokens = cached.value_or(0);
}

void AnswerReader::take_chunk(bool has_text, Clock::time_point now) {
  if (has_text && has_text_) record_.gaps_s.push_back(static_cast<float>(seconds_between(last_text_, now)));
  if (has_text) last_text_ = now;
  // The first chunk with text replaces an earlier chunk without text, such as the chunk of a chat with the role.
  if ((has_text && !has_text_) || !has_chunk_) first_ = now;
  has_text_ = has_text_ || has_text;
  has_chunk_ = true;
  last_ = now;
  num_chunks_ += has_text ? 1 : 0;
}

void AnswerReader::set_failure(std::string reason) {
  if (record_.failure.empty()) record_.failure = std::move(reason);
}

RequestRecord AnswerReader::finish(unsigned status, Clock::time_point now) {
  if (status != kOk) return fail(failure_of(status, error_body_), now);
  events_.finish([&](std::string_view data) { take_event(data, now); });
  if (events_.is_too_long()) set_failure("an event of the stream has more than 16 MiB");
  if (!has_events_) set_failure(fmt::format("200: the answer is not a stream of events: {}", shortened(error_body_)));
  if (!has_finish_) set_failure("the stream ended before its last event");
  if (!has_chunk_) set_failure("the stream contains no choices");
  if (!record_.failure.empty()) return fail(std::move(record_.failure), now);
  record_.ttft_s = seconds_between(sent_, first_);
  record_.latency_s = seconds_between(sent_, last_);
  if (!record_.has_usage) record_.output_tokens = num_chunks_;
  record_.end = RequestRecord::End::completed;
  return std::move(record_);
}

RequestRecord AnswerReader::fail(std::string reason, Clock::time_point now) {
  RequestRecord failed;
  failed.end = RequestRecord::End::failed;
  failed.latency_s = seconds_between(sent_, now);
  failed.failure = record_.failure.empty() ? std::move(reason) : std::move(record_.failure);
  return failed;
}

}  // namespace quire
