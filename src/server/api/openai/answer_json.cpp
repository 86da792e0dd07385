// Writes answers and events in OpenAI's formats, with vLLM's additions. Runs on the server's thread for each token of each stream, so it
// appends to one string and allocates little. All text is escaped as JSON. Bytes of single tokens are made valid UTF-8 first, because a
// token may end within a character.
#include "server/api/openai/answer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/append_format.h"
#include "base/json_text.h"
#include "server/answers/token_logprobs.h"
#include "server/api/openai/chat_fields.h"
#include "server/api/openai/routed_experts_json.h"
#include "server/http/error_response.h"
#include "text/utf8.h"

namespace quire {

namespace {

// One list per key, all of the same length. top_logprobs contains the token itself, too.
struct CompletionLists {
  TokenNames names;
  std::size_t offset;
  std::string tokens{}, values{}, tops{}, offsets{};

  // No entries: the log probabilities of the token are unknown.
  void add(TokenId token, std::span<const TokenLogprob> entries) {
    const char* comma = tokens.empty() ? "" : ",";
    for (std::string* list : {&tokens, &values, &tops}) *list += comma;
    append_json_string(tokens, names.name(token));
    append_format(offsets, "{}{}", comma, offset);
    offset += count_characters(names.text(token));
    if (entries.empty()) {
      values += "null";
      tops += "null";
      return;
    }
    append_json_float(values, entries.front().logprob);
    for (std::size_t k = 0; k < entries.size(); ++k) {
      if (k > 0 && entries[k].token == token) continue;
      tops += k == 0 ? '{' : ',';
      append_json_string(tops, names.name(entries[k].token));
      tops += ':';
      append_json_float(tops, entries[k].logprob);
    }
    tops += '}';
  }
};

void append_completion_logprobs(std::string& out, const TokenNames& names, const ChoiceText& choice) {
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
  append_format(out, R"({{"tokens":[{}],"token_logprobs":[{}],"top_logprobs":[{}],"text_offset":[{}]}})", lists.tokens, lists.values,
                lists.tops, lists.offsets);
}

// Writes vLLM's form: for each token an object by token id, with the token itself first. The first token has null.
void append_prompt_logprobs(std::string& out, const Tokenizer& tokenizer, const std::vector<PositionLogprobs>* prompt) {
  out += R"(,"prompt_logprobs":)";
  if (prompt == nullptr) {
    out += "null";
    return;
  }
  out += "[null";
  for (const PositionLogprobs& position : *prompt) {
    const auto& entries = position.entries;
    for (std::size_t k = 0; k < entries.size(); ++k) {
      if (k > 0 && entries[k].token == entries.front().token) continue;
      append_format(out, R"({}"{}":{{"logprob":)", k == 0 ? ",{" : ",", entries[k].token);
      append_json_float(out, entries[k].logprob);
      append_format(out, R"(,"rank":{},"decoded_token":)", entries[k].rank);
      append_json_string(out, repair_utf8(tokenizer.token_bytes(entries[k].token)));
      out += '}';
    }
    out += '}';
  }
  out += ']';
}

void append_logprobs(std::string& out, Api api, const TokenNames& names, const ChoiceText& choice) {
  out += R"(,"logprobs":)";
  if (choice.logprobs == nullptr) {
    out += "null";
  } else if (api == Api::chat) {
    out += R"({"content":)";
    append_token_logprobs(out, names, *choice.logprobs);
    out += '}';
  } else {
    append_completion_logprobs(out, names, choice);
  }
}

void append_finish(std::string& out, const ChoiceText& choice) {
  out += R"(,"finish_reason":)";
  if (choice.calls_tools && choice.finish == FinishReason::stop)
    out += R"("tool_calls")";
  else
    out += choice.finish ? fmt::format("\"{}\"", finish_reason_name(*choice.finish)) : "null";
  out += R"(,"stop_reason":)";
  if (choice.cause.text)
    append_json_string(out, *choice.cause.text);
  else
    out += choice.cause.token ? std::to_string(*choice.cause.token) : "null";
}

void append_prompt_token_ids(std::string& out, const std::vector<TokenId>& tokens) {
  out += fmt::format(R"(,"prompt_token_ids":[{}])", fmt::join(tokens, ","));
}

// Writes a choice with its "text", "message" or "delta". `fields` replaces the text of a chat: fields of a message, or a delta.
void append_choice(std::string& out, Api api, const Tokenizer& tokenizer, const ChoiceText& choice, std::string_view fields, bool whole) {
  append_format(out, R"({{"index":{},)", choice.index);
  if (api == Api::completion) {
    out += R"("text":)";
    append_json_string(out, choice.text);
  } else if (!fields.empty()) {
    out += whole ? R"("message":{"role":"assistant",)" : R"("delta":)";
    out += fields;
    if (whole) out += R"(,"refusal":null})";
  } else if (!whole && choice.text.empty() && choice.finish) {
    out += R"("delta":{})";
  } else {
    out += whole ? R"("message":{"role":"assistant","content":)" : R"("delta":{"content":)";
    append_json_string(out, choice.text);
    if (whole) out += R"(,"refusal":null)";
    out += '}';
  }
  append_logprobs(out, api, {tokenizer, choice.tokens_as_ids}, choice);
  append_finish(out, choice);
  if (choice.writes_prompt_logprobs && api == Api::completion) append_prompt_logprobs(out, tokenizer, choice.prompt);
  if (choice.routed) append_routed_experts(out, *choice.routed);
  if (choice.token_ids != nullptr) out += fmt::format(R"(,"token_ids":[{}])", fmt::join(*choice.token_ids, ","));
  if (choice.prompt_token_ids != nullptr && api == Api::completion) append_prompt_token_ids(out, *choice.prompt_token_ids);
  out += '}';
}

std::string head_json(const AnswerHead& head, std::string_view object) {
  return fmt::format(R"({{"id":{},"object":"{}","created":{},"model":{},"choices":[)", json_string(head.id), object, head.created_s,
                     json_string(head.model));
}

}  // namespace

std::string usage_json(const Usage& usage) {
  std::string out =
      fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}})",
                  usage.prompt_tokens, usage.completion_tokens, usage.prompt_tokens + usage.completion_tokens, usage.cached_tokens);
  if (usage.reasoning_tokens > 0) out += fmt::format(R"(,"completion_tokens_details":{{"reasoning_tokens":{}}})", usage.reasoning_tokens);
  return out + '}';
}

std::string openai_answer(const AnswerHead& head, const Tokenizer& tokenizer, const std::vector<ChoiceText>& choices, const Usage& usage,
                          const std::string& more) {
  std::string out = head_json(head, head.api == Api::chat ? "chat.completion" : "text_completion");
  for (const ChoiceText& choice : choices) {
    if (&choice != choices.data()) out += ',';
    append_choice(out, head.api, tokenizer, choice,
                  choice.parts != nullptr ? message_fields(*choice.parts, call_ids(head, choice.index)) : "", true);
  }
  out += R"(],"usage":)" + usage_json(usage);
  if (head.api == Api::chat && !choices.empty() && choices.front().writes_prompt_logprobs)
    append_prompt_logprobs(out, tokenizer, choices.front().prompt);
  if (head.api == Api::chat && !choices.empty() && choices.front().prompt_token_ids != nullptr)
    append_prompt_token_ids(out, *choices.front().prompt_token_ids);
  return out + more + "}";
}

EventWriter::EventWriter(const AnswerHead& head, const Tokenizer& tokenizer, bool include_usage)
    : api_(head.api),
      tokenizer_(&tokenizer),
      include_usage_(include_usage),
      prefix_("data: " + head_json(head, head.api == Api::chat ? "chat.completion.chunk" : "text_completion")) {}

void EventWriter::close(std::string& out, const Usage* usage, const std::vector<TokenId>* prompt) const {
  out += ']';
  if (prompt != nullptr) append_prompt_token_ids(out, *prompt);
  if (usage != nullptr)
    out += R"(,"usage":)" + usage_json(*usage);
  else if (include_usage_)
    out += R"(,"usage":null)";
  out += "}\n\n";
}

void EventWriter::choice(std::string& out, const ChoiceText& choice, std::string_view delta, const Usage* usage) const {
  out += prefix_;
  append_choice(out, api_, *tokenizer_, choice, delta, false);
  close(out, usage, api_ == Api::chat ? choice.prompt_token_ids : nullptr);
}

void EventWriter::role(std::string& out, std::uint32_t index) const {
  out += prefix_;
  append_format(out, R"({{"index":{},"delta":{{"role":"assistant","content":""}},"logprobs":null,"finish_reason":null}})", index);
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
