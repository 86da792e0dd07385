#pragma once
// Base class of the answer writers for APIs whose answer is one message with several parts. A stream has separate events for each part.
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
  std::vector<TokenId> tokens{};  // token ids of the prompt and of the answer, if requested
};

// Owned by one thread at a time. Only streams append to `events`.
class SingleAnswerWriter : public AnswerWriter {
 public:
  // Streams: writes the first events. Only the prompt counts of `usage` are meaningful.
  virtual void begin(std::string& events, const Usage& usage) = 0;
  virtual void add(std::string& events, const AnswerPart& part) = 0;
  virtual void end(std::string& events, const AnswerEnd& end) = 0;
  // Streams: writes the failure of the stream, before or after its first event.
  virtual void fail(std::string& events, const Error& error) = 0;
  // Whole answers: returns the body, after end().
  [[nodiscard]] virtual std::string whole() const = 0;

  void begin_choice(std::string& events, std::uint32_t index, const Usage& usage) final;
  [[nodiscard]] bool write_choice(std::string& events, const ChoiceText& choice, const Usage& so_far) final;
  void end_stream(std::string& events, const Usage& usage, const Error* error) final;
  [[nodiscard]] std::string whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) final;

 protected:
  // Removes and returns the log probabilities of the tokens in `content`, if they were requested. Called by add(). A token that spans two
  // parts belongs to the first part.
  [[nodiscard]] std::vector<PositionLogprobs> take_logprobs(const AnswerPart& content);

 private:
  std::vector<PositionLogprobs> logprobs_;  // not returned by take_logprobs() yet; `spans_` has the text range of each token
  std::vector<TextSpan> spans_;
  std::vector<TokenId> tokens_;
};

}  // namespace quire
