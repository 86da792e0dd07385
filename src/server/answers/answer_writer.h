#pragma once
// Writes an answer in an API's format, from its first part to its end. Completion calls a writer in this order. For a stream:
// begin_choice() once per choice, then `write_choice()` until the choice ends, and end_stream() last. For a whole answer: only
// whole_answer().
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "server/answers/answer.h"

namespace quire {

// Owned by one thread at a time. Functions append their events to `events`.
class AnswerWriter {
 public:
  AnswerWriter() = default;
  AnswerWriter(const AnswerWriter&) = delete;
  AnswerWriter& operator=(const AnswerWriter&) = delete;
  virtual ~AnswerWriter() = default;

  // Called for the first output of a choice, but not if the choice is refused. Only the prompt counts of `usage` are meaningful.
  virtual void begin_choice(std::string& events, std::uint32_t index, const Usage& usage) = 0;
  // Writes the new part of a choice. Returns false if nothing can be written yet; the next call then passes the same part again, with more.
  [[nodiscard]] virtual bool write_choice(std::string& events, const ChoiceText& choice, const Usage& so_far) = 0;
  // Ends the stream after all choices have ended. `error`: null, or why the stream fails, before or after its first event.
  virtual void end_stream(std::string& events, const Usage& usage, const Error* error) = 0;
  // Returns the body. Called once.
  [[nodiscard]] virtual std::string whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) = 0;
};

}  // namespace quire
