#pragma once
// Writes an answer in an API's shape: from its first part to its end. What Completion tells, in this order: of a stream, for each choice
// begin_choice() once and then tell() until its end, and last end_stream(); of a whole answer whole_answer().
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "server/answers/answer.h"

namespace quire {

// Owned by one thread at a time. Events are appended to what is given.
class AnswerWriter {
 public:
  AnswerWriter() = default;
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;
  virtual ~AnswerWriter() = default;

  // Something has come of the choice. Of `usage` the prompt counts. Not of a choice that is refused.
  virtual void begin_choice(std::string& events, std::uint32_t index, const Usage& usage) = 0;
  // What is new of a choice. False: nothing could be told yet, and all of it comes again with more.
  [[nodiscard]] virtual bool tell(std::string& events, const ChoiceText& choice, const Usage& so_far) = 0;
  // All choices have ended; `error`: null, or why the stream fails, begun or not.
  virtual void end_stream(std::string& events, const Usage& usage, const Error* error) = 0;
  // The body; called once.
  [[nodiscard]] virtual std::string whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) = 0;
};

}  // namespace quire
