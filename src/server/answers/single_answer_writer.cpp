#include "server/answers/single_answer_writer.h"

#include <algorithm>
#include <iterator>

namespace quire {

void SingleAnswerWriter::begin_choice(std::string& events, std::uint32_t /*index*/, const Usage& usage) {
  begin(events, usage);
}

bool SingleAnswerWriter::tell(std::string& events, const ChoiceText& choice, const Usage& so_far) {
  if (choice.logprobs != nullptr) std::ranges::copy(*choice.logprobs, std::back_inserter(logprobs_));
  for (const std::vector<TokenId>* tokens : {choice.prompt_token_ids, choice.token_ids})
    if (tokens != nullptr) tokens_.insert(tokens_.end(), tokens->begin(), tokens->end());
  if (choice.parts != nullptr)
    for (const AnswerPart& part : *choice.parts) add(events, part);
  if (!choice.finish || *choice.finish == FinishReason::error) return true;
  end(events, {.reason = *choice.finish,
               .cause = choice.cause,
               .calls_tools = choice.calls_tools,
               .usage = so_far,
               .logprobs = choice.logprobs != nullptr ? &logprobs_ : nullptr,
               .tokens = tokens_});
  return true;
}

void SingleAnswerWriter::end_stream(std::string& events, const Usage& /*usage*/, const Error* error) {
  if (error != nullptr) fail(events, *error);
}

std::string SingleAnswerWriter::whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) {
  std::string no_events;
  (void)tell(no_events, choices.front(), usage);
  return whole();
}

}  // namespace quire
