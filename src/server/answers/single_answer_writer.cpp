#include "server/answers/single_answer_writer.h"

#include <algorithm>
#include <iterator>

namespace quire {

void SingleAnswerWriter::begin_choice(std::string& events, std::uint32_t /*index*/, const Usage& usage) {
  begin(events, usage);
}

std::vector<PositionLogprobs> SingleAnswerWriter::take_logprobs(const AnswerPart& content) {
  std::vector<PositionLogprobs> taken;
  std::size_t i = 0;
  for (; i < spans_.size() && spans_[i].begin < content.end; ++i)
    if (spans_[i].end > std::max(spans_[i].begin, content.begin)) taken.push_back(std::move(logprobs_[i]));
  spans_.erase(spans_.begin(), spans_.begin() + static_cast<std::ptrdiff_t>(i));
  logprobs_.erase(logprobs_.begin(), logprobs_.begin() + static_cast<std::ptrdiff_t>(i));
  return taken;
}

bool SingleAnswerWriter::write_choice(std::string& events, const ChoiceText& choice, const Usage& so_far) {
  if (choice.logprobs != nullptr && choice.token_spans != nullptr) {
    std::ranges::copy(*choice.logprobs, std::back_inserter(logprobs_));
    std::ranges::copy(*choice.token_spans, std::back_inserter(spans_));
  }
  for (const std::vector<TokenId>* tokens : {choice.prompt_token_ids, choice.token_ids})
    if (tokens != nullptr) tokens_.insert(tokens_.end(), tokens->begin(), tokens->end());
  if (choice.parts != nullptr)
    for (const AnswerPart& part : *choice.parts) add(events, part);
  if (!choice.finish || *choice.finish == FinishReason::error) return true;
  end(events, {.reason = *choice.finish, .cause = choice.cause, .calls_tools = choice.calls_tools, .usage = so_far, .tokens = tokens_});
  return true;
}

void SingleAnswerWriter::end_stream(std::string& events, const Usage& /*usage*/, const Error* error) {
  if (error != nullptr) fail(events, *error);
}

std::string SingleAnswerWriter::whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) {
  std::string no_events;
  (void)write_choice(no_events, choices.front(), usage);
  return whole();
}

}  // namespace quire
