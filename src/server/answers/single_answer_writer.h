#pragma once
// The writer of an API whose answers are one message of parts, with events of its own for each.
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/sampling.h"
#include "server/answers/answer_writer.h"

namespace quire {

struct AnswerEnd {
  FinishReason reason = FinishReason::stop;
  StopCause cause{};
  bool calls_tools = false;
  Usage usage{};
  std::vector<TokenId> tokens{};  // the prompt's and its own, where they were asked for
};

// Owned by one thread at a time. Events are appended to what is given, and only of streams.
class SingleAnswerWriter : public AnswerWriter {
 public:
  // Streams: the first events. Of `usage` the prompt counts.
  virtual void begin(std::string& events, const Usage& usage) = 0;
  virtual void add(std::string& events, const AnswerPart& part) = 0;
  virtual void end(std::string& events, const AnswerEnd& end) = 0;
  // Streams that fail, begun or not.
  virtual void fail(std::string& events, const Error& error) = 0;
  // Not of streams: the body, after end().
  [[nodiscard]] virtual std::string whole() const = 0;

  void begin_choice(std::string& events, std::uint32_t index, const Usage& usage) final;
  [[nodiscard]] bool tell(std::string& events, const ChoiceText& choice, const Usage& so_far) final;
  void end_stream(std::string& events, const Usage& usage, const Error* error) final;
  [[nodiscard]] std::string whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) final;

 protected:
  // For add(), where they were asked for: of the tokens that this content is made of. A token of two parts belongs to the first.
  [[nodiscard]] std::vector<PositionLogprobs> take_logprobs(const AnswerPart& content);

 private:
  std::vector<PositionLogprobs> logprobs_;  // not taken yet, with their spans
  std::vector<TextSpan> spans_;
  std::vector<TokenId> tokens_;
};

}  // namespace quire
