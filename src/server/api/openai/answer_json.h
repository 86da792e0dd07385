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

// Returns the JSON of a whole answer. `more` is JSON text with further fields of the answer.
[[nodiscard]] std::string openai_answer(const AnswerHead& head, const Tokenizer& tokenizer, const std::vector<ChoiceText>& choices,
                                        const Usage& usage, std::string_view more);

// Writes stream events, each "data: {...}\n\n". Builds the text before the choices once, because it is the same in all events.
class EventWriter {
 public:
  EventWriter(const AnswerHead& head, const Tokenizer& tokenizer, bool include_usage);

  // Writes an event with one choice. `delta` is JSON with fields that replace the text of a chat. If `usage` is null, an event of a stream
  // that ends with a usage event has "usage": null.
  void choice(std::string& out, const ChoiceText& choice, std::string_view delta, const Usage* usage) const;
  void role(std::string& out, std::uint32_t index) const;  // chat: the first delta of a choice
  void usage(std::string& out, const Usage& usage) const;  // writes the last event, which has no choices
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
