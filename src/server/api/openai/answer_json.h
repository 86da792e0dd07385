#pragma once
// Writes the JSON of answers: whole answers, stream chunks, usage and log probabilities, in OpenAI's formats and vLLM's additions.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/request.h"
#include "quire/text/tokenizer.h"
#include "server/answers/answer.h"

namespace quire {

[[nodiscard]] std::string usage_json(const Usage& usage);

// Returns the JSON of a whole answer. `more`: further fields of the answer, as JSON text.
[[nodiscard]] std::string openai_answer(const AnswerHead& head, const Tokenizer& tokenizer, const std::vector<ChoiceText>& choices,
                                        const Usage& usage, std::string_view more);

// Writes stream events, each "data: {...}\n\n". The text before the choices is the same in all events, so it is created once.
class EventWriter {
 public:
  EventWriter(const AnswerHead& head, const Tokenizer& tokenizer, bool include_usage);

  // `delta`: fields that replace the text of a chat. `usage` is written if given; otherwise usage is null in a stream that ends with a
  // usage event.
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
