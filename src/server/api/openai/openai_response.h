#pragma once
// The JSON that goes out: whole answers, stream chunks, usage and log probabilities, in the shapes of OpenAI (and of vLLM beyond them).
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quire/request.h"
#include "quire/sampling.h"
#include "quire/tokenizer.h"
#include "server/answers/answer.h"

namespace quire {

// A choice, or the next part of one.
struct ChoiceText {
  std::uint32_t index = 0;
  std::string_view text;
  const std::vector<PositionLogprobs>* logprobs = nullptr;  // null: not asked for
  std::size_t text_offset = 0;                              // completion logprobs: characters before the first of them
  const std::vector<PositionLogprobs>* prompt = nullptr;    // of its tokens but the first; null: there are none
  bool tells_prompt = false;                                // as prompt_logprobs, null though they may be
  std::optional<TokenId> echoed{};                          // the prompt's first token: `prompt` goes before `logprobs`
  std::uint32_t num_echoed_logprobs = 0;                    // alternatives of each token that is told then
  std::optional<FinishReason> finish;                       // absent: more follows
  bool calls_tools = false;                                 // a chat's answer ends with calls that are whole
  const std::vector<TokenId>* token_ids = nullptr;          // null: not asked for
  const std::vector<TokenId>* prompt_token_ids = nullptr;   // of the first part of a choice; null: not asked for, or told already
  std::string fields{};                                     // chat: instead of the text, a message's fields or, of a stream, the delta
  StopCause cause;
};

[[nodiscard]] std::string_view finish_reason_name(FinishReason reason);
[[nodiscard]] std::string usage_json(const Usage& usage);

[[nodiscard]] std::string whole_answer(const AnswerHead& head, const Tokenizer& tokenizer, const std::vector<ChoiceText>& choices,
                                       const Usage& usage);

// Writes stream events, each "data: {...}\n\n". The text before the choices is the same in all, so it is made once.
class EventWriter {
 public:
  EventWriter(const AnswerHead& head, const Tokenizer& tokenizer, bool include_usage);

  // `usage`: attached if given; else null where the stream ends with a usage event.
  void choice(std::string& out, const ChoiceText& choice, const Usage* usage) const;
  void role(std::string& out, std::uint32_t index) const;  // chat: the first delta of a choice
  void usage(std::string& out, const Usage& usage) const;  // the last event, without choices
  static void error(std::string& out, const Error& error);
  static void done(std::string& out);

 private:
  void close(std::string& out, const Usage* usage, const std::vector<TokenId>* prompt = nullptr) const;
  Api api_;
  const Tokenizer* tokenizer_;
  bool include_usage_;
  std::string prefix_;
};

}  // namespace quire
