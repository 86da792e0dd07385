#pragma once
// Answers in the shape of an API that has events and items of its own: one answer, from its first part to its end.
#include <string>
#include <vector>

#include "quire/error.h"
#include "quire/request.h"
#include "quire/sampling.h"
#include "server/answers/answer.h"
#include "text/tool_calls/answer_part.h"

namespace quire {

struct AnswerEnd {
  FinishReason reason = FinishReason::stop;
  StopCause cause{};
  bool calls_tools = false;
  Usage usage{};
  const std::vector<PositionLogprobs>* logprobs = nullptr;  // of all its tokens; null: not asked for
  std::vector<TokenId> tokens{};                            // the prompt's and its own, where they were asked for
};

// Owned by one thread at a time. Events are appended to what is given, and only of streams.
class AnswerWriter {
 public:
  AnswerWriter() = default;
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;
  virtual ~AnswerWriter() = default;

  // Streams: the first events. Of `usage` the prompt counts.
  virtual void begin(std::string& events, const Usage& usage) = 0;
  virtual void add(std::string& events, const AnswerPart& part) = 0;
  virtual void end(std::string& events, const AnswerEnd& end) = 0;
  // Streams that fail, begun or not.
  virtual void fail(std::string& events, const Error& error) = 0;
  // Not of streams: the body, after end().
  [[nodiscard]] virtual std::string whole() const = 0;
};

}  // namespace quire
