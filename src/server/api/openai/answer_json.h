#pragma once
// The JSON of answers: whole ones, stream chunks, usage and log probabilities, in the shapes of OpenAI (and of vLLM beyond them).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/request.h"
#include "quire/text/tokenizer.h"
#include "server/answers/answer.h"

namespace quire {

[[nodiscard]] std::string usage_json(const Usage& usage);

// `more`: further fields of the answer: JSON text behind a comma.
[[nodiscard]] std::string openai_answer(const AnswerHead& head, const Tokenizer& tokenizer, const std::vector<ChoiceText>& choices,
                                        const Usage& usage, const std::string& more);

// Writes stream events, each "data: {...}\n\n". The text before the choices is the same in all, so it is made once.
class EventWriter {
 public:
  EventWriter(const AnswerHead& head, const Tokenizer& tokenizer, bool include_usage);

  // `delta`: of a chat, instead of the text. `usage`: attached if given; else null where the stream ends with a usage event.
  void choice(std::string& out, const ChoiceText& choice, std::string_view delta, const Usage* usage) const;
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
