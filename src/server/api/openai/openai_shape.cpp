#include "server/api/openai/openai_shape.h"

#include <utility>

#include "base/json_writer.h"
#include "server/api/openai/chat_fields.h"
#include "server/http/error_response.h"
#include "server/request/completion_request.h"
#include "server/request/hidden_states.h"
#include "server/request/transfer_params.h"

namespace quire {

std::unique_ptr<AnswerWriter> OpenAiShape::make_writer(AnswerHead head, const CompletionRequest& request,
                                                       const Tokenizer& tokenizer) const {
  OpenAiWriterOptions options{.include_usage = request.include_usage, .continuous_usage = request.continuous_usage};
  if (!hidden_states_path_.empty()) JsonWriter(options.more).raw_field("kv_transfer_params", hidden_states_params(hidden_states_path_));
  return std::make_unique<OpenAiWriter>(std::move(head), tokenizer, std::move(options));
}

OpenAiWriter::OpenAiWriter(AnswerHead head, const Tokenizer& tokenizer, OpenAiWriterOptions options)
    : head_(std::move(head)), tokenizer_(&tokenizer), options_(std::move(options)), writer_(head_, tokenizer, options_.include_usage) {}

void OpenAiWriter::begin_choice(std::string& events, std::uint32_t index, const Usage& /*usage*/) {
  if (head_.api == Api::chat && begun_.insert(index).second) writer_.role(events, index);
}

// Writes each delta in a separate event, as OpenAI does. The finish reason follows in another event.
bool OpenAiWriter::write_choice(std::string& events, const ChoiceText& choice, const Usage& so_far) {
  begin_choice(events, choice.index, so_far);
  const Usage* const usage = options_.continuous_usage ? &so_far : nullptr;
  const std::vector<PositionLogprobs> no_logprobs;
  const std::vector<TokenId> no_tokens;
  ChoiceText next = choice;
  next.finish.reset();
  next.cause = {};
  bool has_deltas = false;
  if (choice.parts != nullptr) {
    const std::string ids = call_ids(head_, choice.index);
    for (const AnswerPart& part : *choice.parts) {
      const std::string delta = delta_fields(part, ids);
      if (delta.empty()) continue;
      writer_.choice(events, next, delta, usage);
      has_deltas = true;
      // Only the first delta has log probabilities and token ids.
      if (next.logprobs != nullptr) next.logprobs = &no_logprobs;
      if (next.token_ids != nullptr) next.token_ids = &no_tokens;
      next.prompt = nullptr;
      next.prompt_token_ids = nullptr;
    }
  }
  // Clients do not know "error" as a finish reason, so an event with the error follows instead.
  const bool has_failed = choice.finish == FinishReason::error;
  if ((!choice.finish || has_failed) && (has_deltas || choice.text.empty())) return has_deltas;
  if (!has_failed) next.finish = choice.finish;
  next.cause = choice.cause;
  writer_.choice(events, next, {}, usage);
  return true;
}

void OpenAiWriter::end_stream(std::string& events, const Usage& usage, const Error* error) {
  if (error != nullptr) EventWriter::error(events, *error);
  if (options_.include_usage) writer_.usage(events, usage);
  EventWriter::done(events);
}

std::string OpenAiWriter::whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) {
  std::string more = options_.more;
  JsonWriter json(more);
  if (!choices.empty() && choices.front().kv_transfer != nullptr)
    json.raw_field("kv_transfer_params", transfer_params_json(*choices.front().kv_transfer));
  json.raw(warnings_json(head_));
  return openai_answer(head_, *tokenizer_, choices, usage, more);
}

}  // namespace quire
