// Writes answers in Ollama's format, on the server's thread, from the same parts as chat answers. A stream has one JSON object per line; a
// line never contains a line feed. A call is sent when its arguments are complete. A call that a limit cuts off is left out, because
// Ollama's clients run each call that they receive.
#include "server/api/ollama/ollama_answer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <iterator>
#include <utility>

#include "server/answers/token_logprobs.h"
#include "server/http/answer_id.h"
#include "text/utf8.h"

namespace quire {

namespace {

// Writes a call without line feeds. Outside of strings, where JSON text may have them, a line feed is white space.
void write_call(std::string& calls, std::string_view id, std::uint32_t index, std::string_view name, std::string arguments) {
  std::ranges::replace_if(arguments, [](char c) { return c == '\n' || c == '\r'; }, ' ');
  JsonWriter json(calls);
  json.begin_object().field("id", id).begin_object("function").field("index", index).field("name", name);
  json.raw_field("arguments", arguments.empty() ? "{}" : arguments).end_object().end_object();
}

std::string error_line(std::string_view message) {
  return json_object([&](JsonWriter& json) { json.field("error", repair_utf8(message)); });
}

}  // namespace

std::string rfc3339_now() {
  const auto now = std::chrono::system_clock::now();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now.time_since_epoch()).count() % 1'000'000;
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06}Z", fmt::gmtime(std::chrono::system_clock::to_time_t(now)), micros);
}

HttpResponse as_ollama_error(HttpResponse response) {
  if (response.status < 400) return response;
  boost::system::error_code failed;
  const boost::json::value body = boost::json::parse(response.body, failed);
  const boost::json::value* message = failed ? nullptr : body.find_pointer("/error/message", failed);
  if (message != nullptr && message->is_string()) response.body = error_line(message->get_string());
  return response;
}

std::string loaded_answer(const OllamaAnswerHead& head, bool is_unload) {
  return json_object([&](JsonWriter& json) {
    json.field("model", head.model).field("created_at", rfc3339_now());
    if (head.is_chat)
      json.begin_object("message").field("role", "assistant").field("content", "").end_object();
    else
      json.field("response", "");
    json.field("done", true).field("done_reason", is_unload ? "unload" : "load");
  });
}

OllamaWriter::OllamaWriter(AnswerHead common, OllamaAnswerHead head, const Tokenizer& tokenizer)
    : common_(std::move(common)),
      head_(std::move(head)),
      tokenizer_(&tokenizer),
      load_duration_(std::chrono::steady_clock::now() - head_.received) {}

bool OllamaWriter::add(const AnswerPart& part) {
  switch (part.kind) {
    case AnswerPart::Kind::content:
      next_.text += part.text;
      return true;
    case AnswerPart::Kind::reasoning:
      next_.thoughts += part.text;
      return true;
    case AnswerPart::Kind::call:
      call_name_ = part.text;
      call_arguments_.clear();
      return false;
    case AnswerPart::Kind::arguments:
      call_arguments_ += part.text;
      return false;
    case AnswerPart::Kind::call_end:
      write_call(next_.calls, fmt::format("call_{}_{}", unique_part(common_.id), num_calls_), num_calls_, call_name_,
                 std::exchange(call_arguments_, {}));
      ++num_calls_;
      return true;
    case AnswerPart::Kind::call_broken:
    case AnswerPart::Kind::call_truncated:
      return false;
  }
  return false;
}

void OllamaWriter::write_head(JsonWriter& json, const Message& message) const {
  json.field("model", head_.model).field("created_at", rfc3339_now());
  if (head_.is_chat) json.begin_object("message").field("role", "assistant");
  json.field(head_.is_chat ? "content" : "response", message.text);
  if (!message.thoughts.empty()) json.field("thinking", message.thoughts);
  if (!message.calls.empty()) json.begin_array("tool_calls").raw(message.calls).end_array();
  if (head_.is_chat) json.end_object();
}

void OllamaWriter::write_logprobs(JsonWriter& json, bool by_id) {
  if (logprobs_.empty()) return;
  json.key("logprobs");
  write_token_logprobs(json, TokenNames{.tokenizer = *tokenizer_, .by_id = by_id}, std::exchange(logprobs_, {}));
}

void OllamaWriter::write_end(JsonWriter& json, const ChoiceText& choice, const Usage& usage) const {
  json.field("done", true).field("done_reason", finish_reason_name(*choice.finish));
  json.field("total_duration", (load_duration_ + usage.elapsed).count()).field("load_duration", load_duration_.count());
  json.field("prompt_eval_count", usage.prompt_tokens).field("prompt_eval_duration", usage.to_first_token.count());
  json.field("eval_count", usage.completion_tokens).field("eval_duration", (usage.elapsed - usage.to_first_token).count());
  json.raw(warnings_json(common_));
}

void OllamaWriter::write_line(std::string& events, const ChoiceText& choice) {
  JsonWriter json(events);
  json.begin_object();
  write_head(json, std::exchange(next_, {}));
  json.field("done", false);
  write_logprobs(json, choice.tokens_as_ids);
  json.end_object();
  events += '\n';
}

bool OllamaWriter::write_choice(std::string& events, const ChoiceText& choice, const Usage& so_far) {
  if (choice.logprobs != nullptr) std::ranges::copy(*choice.logprobs, std::back_inserter(logprobs_));
  next_.text += choice.text;
  if (choice.parts != nullptr)
    for (const AnswerPart& part : *choice.parts)
      if (add(part)) write_line(events, choice);
  if (next_.any()) write_line(events, choice);
  // end_stream() writes the error.
  if (!choice.finish || *choice.finish == FinishReason::error) return true;
  JsonWriter json(events);
  json.begin_object();
  write_head(json, {});
  write_logprobs(json, choice.tokens_as_ids);
  write_end(json, choice, so_far);
  json.end_object();
  events += '\n';
  return true;
}

void OllamaWriter::end_stream(std::string& events, const Usage& /*usage*/, const Error* error) {
  if (error != nullptr) events += error_line(error->to_string()) + '\n';
}

std::string OllamaWriter::whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) {
  const ChoiceText& choice = choices.front();
  if (choice.logprobs != nullptr) logprobs_ = *choice.logprobs;
  next_.text += choice.text;
  if (choice.parts != nullptr)
    for (const AnswerPart& part : *choice.parts) (void)add(part);
  return json_object([&](JsonWriter& json) {
    write_head(json, next_);
    write_logprobs(json, choice.tokens_as_ids);
    write_end(json, choice, usage);
  });
}

}  // namespace quire
