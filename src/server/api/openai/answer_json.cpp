// Writes answers and events in OpenAI's formats, with vLLM's additions. Runs on the server's thread for each token of each stream, so it
// appends to one string and allocates little. The bytes of single tokens are converted to valid UTF-8 first, because a token may end within
// a character.
#include "server/api/openai/answer_json.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/json_writer.h"
#include "server/answers/token_logprobs.h"
#include "server/api/openai/chat_fields.h"
#include "server/api/openai/routed_experts_json.h"
#include "server/http/error_response.h"
#include "text/utf8.h"

namespace quire {

namespace {

// The JSON of four arrays with one element per token. An element of top_logprobs also contains the token itself.
struct CompletionLists {
  TokenNames names;
  std::size_t offset;
  std::string tokens{}, values{}, tops{}, offsets{};

  // Appends a token to all arrays. `entries` is empty if the log probabilities of the token are unknown.
  void add(TokenId token, std::span<const TokenLogprob> entries) {
    JsonWriter(tokens).value(names.name(token));
    JsonWriter(offsets).value(offset);
    offset += count_characters(names.text(token));
    JsonWriter top(tops);
    if (entries.empty()) {
      JsonWriter(values).value(nullptr);
      top.value(nullptr);
      return;
    }
    JsonWriter(values).value(entries.front().logprob);
    top.begin_object();
    for (std::size_t k = 0; k < entries.size(); ++k)
      if (k == 0 || entries[k].token != token) top.field(names.name(entries[k].token), entries[k].logprob);
    top.end_object();
  }
};

void write_completion_logprobs(JsonWriter& json, const TokenNames& names, const ChoiceText& choice) {
  CompletionLists lists{names, choice.text_offset};
  if (choice.echoed) {
    lists.add(*choice.echoed, {});
    for (const PositionLogprobs& position : *choice.prompt) {
      const std::span<const TokenLogprob> entries(position.entries);
      lists.add(entries.front().token, entries.first(std::min<std::size_t>(entries.size(), 1 + choice.num_echoed_logprobs)));
    }
  }
  for (const PositionLogprobs& position : *choice.logprobs)
    if (!position.entries.empty()) lists.add(position.entries.front().token, position.entries);
  json.begin_object();
  for (const auto& [name, list] : {std::pair("tokens", &lists.tokens),
                                   {"token_logprobs", &lists.values},
                                   {"top_logprobs", &lists.tops},
                                   {"text_offset", &lists.offsets}})
    json.begin_array(name).raw(*list).end_array();
  json.end_object();
}

// Writes prompt_logprobs in vLLM's format: for each token an object whose keys are token ids, beginning with the token itself. The first
// token has null.
void write_prompt_logprobs(JsonWriter& json, const Tokenizer& tokenizer, const std::vector<PositionLogprobs>* prompt) {
  json.key("prompt_logprobs");
  if (prompt == nullptr) {
    json.value(nullptr);
    return;
  }
  json.begin_array().value(nullptr);
  for (const PositionLogprobs& position : *prompt) {
    const auto& entries = position.entries;
    json.begin_object();
    for (std::size_t k = 0; k < entries.size(); ++k) {
      if (k > 0 && entries[k].token == entries.front().token) continue;
      json.begin_object(std::to_string(entries[k].token)).field("logprob", entries[k].logprob).field("rank", entries[k].rank);
      json.field("decoded_token", repair_utf8(tokenizer.token_bytes(entries[k].token))).end_object();
    }
    json.end_object();
  }
  json.end_array();
}

void write_logprobs(JsonWriter& json, Api api, const TokenNames& names, const ChoiceText& choice) {
  json.key("logprobs");
  if (choice.logprobs == nullptr) {
    json.value(nullptr);
  } else if (api == Api::chat) {
    json.begin_object().key("content");
    write_token_logprobs(json, names, *choice.logprobs);
    json.end_object();
  } else {
    write_completion_logprobs(json, names, choice);
  }
}

void write_finish(JsonWriter& json, const ChoiceText& choice) {
  json.key("finish_reason");
  if (choice.calls_tools && choice.finish == FinishReason::stop)
    json.value("tool_calls");
  else if (choice.finish)
    json.value(finish_reason_name(*choice.finish));
  else
    json.value(nullptr);
  json.key("stop_reason");
  if (choice.cause.text)
    json.value(*choice.cause.text);
  else
    json.value(choice.cause.token);
}

// Writes the "text", "message" or "delta" of a choice.
void write_text(JsonWriter& json, Api api, const ChoiceText& choice, std::string_view fields, bool whole) {
  if (api == Api::completion) {
    json.field("text", choice.text);
    return;
  }
  json.begin_object(whole ? "message" : "delta");
  if (whole) json.field("role", "assistant");
  if (!fields.empty())
    json.raw(fields);
  else if (whole || !choice.text.empty() || !choice.finish)
    json.field("content", choice.text);
  if (whole) json.field("refusal", nullptr);
  json.end_object();
}

// Writes a choice. For a chat, `fields` (JSON of a message or a delta) replaces the text if it is not empty.
void write_choice(JsonWriter& json, Api api, const Tokenizer& tokenizer, const ChoiceText& choice, std::string_view fields, bool whole) {
  json.begin_object().field("index", choice.index);
  write_text(json, api, choice, fields, whole);
  write_logprobs(json, api, {tokenizer, choice.tokens_as_ids}, choice);
  write_finish(json, choice);
  if (choice.writes_prompt_logprobs && api == Api::completion) write_prompt_logprobs(json, tokenizer, choice.prompt);
  if (choice.routed) json.field("routed_experts", routed_experts_text(*choice.routed));
  if (choice.token_ids != nullptr) json.field("token_ids", *choice.token_ids);
  if (choice.prompt_token_ids != nullptr && api == Api::completion) json.field("prompt_token_ids", *choice.prompt_token_ids);
  json.end_object();
}

// Returns the JSON of an answer up to the opening bracket of its choices.
std::string head_json(const AnswerHead& head, std::string_view object) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("id", head.id).field("object", object).field("created", head.created_s).field("model", head.model);
  if (!head.service_tier.empty()) json.field("service_tier", head.service_tier);
  json.begin_array("choices");
  return out;
}

}  // namespace

std::string usage_json(const Usage& usage) {
  return json_object([&](JsonWriter& json) {
    json.field("prompt_tokens", usage.prompt_tokens).field("completion_tokens", usage.completion_tokens);
    json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
    json.begin_object("prompt_tokens_details").field("cached_tokens", usage.cached_tokens).end_object();
    if (usage.reasoning_tokens > 0)
      json.begin_object("completion_tokens_details").field("reasoning_tokens", usage.reasoning_tokens).end_object();
  });
}

std::string openai_answer(const AnswerHead& head, const Tokenizer& tokenizer, const std::vector<ChoiceText>& choices, const Usage& usage,
                          std::string_view more) {
  std::string out = head_json(head, head.api == Api::chat ? "chat.completion" : "text_completion");
  JsonWriter json(out);
  for (const ChoiceText& choice : choices)
    write_choice(json, head.api, tokenizer, choice,
                 choice.parts != nullptr ? message_fields(*choice.parts, call_ids(head, choice.index)) : "", true);
  json.end_array().raw_field("usage", usage_json(usage));
  if (head.api == Api::chat && !choices.empty()) {
    const ChoiceText& first = choices.front();
    if (first.writes_prompt_logprobs) write_prompt_logprobs(json, tokenizer, first.prompt);
    if (first.prompt_token_ids != nullptr) json.field("prompt_token_ids", *first.prompt_token_ids);
  }
  json.raw(more).end_object();
  return out;
}

EventWriter::EventWriter(const AnswerHead& head, const Tokenizer& tokenizer, bool include_usage)
    : api_(head.api),
      tokenizer_(&tokenizer),
      include_usage_(include_usage),
      prefix_("data: " + head_json(head, head.api == Api::chat ? "chat.completion.chunk" : "text_completion")) {}

void EventWriter::close(std::string& out, const Usage* usage, const std::vector<TokenId>* prompt) const {
  JsonWriter json(out);
  json.end_array();
  if (prompt != nullptr) json.field("prompt_token_ids", *prompt);
  if (usage != nullptr)
    json.raw_field("usage", usage_json(*usage));
  else if (include_usage_)
    json.field("usage", nullptr);
  json.end_object();
  out += "\n\n";
}

void EventWriter::choice(std::string& out, const ChoiceText& choice, std::string_view delta, const Usage* usage) const {
  out += prefix_;
  JsonWriter json(out);
  write_choice(json, api_, *tokenizer_, choice, delta, false);
  close(out, usage, api_ == Api::chat ? choice.prompt_token_ids : nullptr);
}

void EventWriter::role(std::string& out, std::uint32_t index) const {
  out += prefix_;
  JsonWriter json(out);
  json.begin_object().field("index", index);
  json.begin_object("delta").field("role", "assistant").field("content", "").end_object();
  json.field("logprobs", nullptr).field("finish_reason", nullptr).end_object();
  close(out, nullptr);
}

void EventWriter::usage(std::string& out, const Usage& usage) const {
  out += prefix_;
  close(out, &usage);
}

void EventWriter::error(std::string& out, const Error& error) {
  out += "data: " + error_body(error, http_status(error.code)) + "\n\n";
}

void EventWriter::done(std::string& out) {
  out += "data: [DONE]\n\n";
}

}  // namespace quire
