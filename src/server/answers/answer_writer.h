#pragma once
// Writes an answer in an API's format, from its first part to its end. Completion calls the functions of a writer in this order:
// - for a stream: begin_choice() once per choice, write_choice() until the choice ends, and end_stream() last;
// - for a whole answer: only whole_answer().
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

  // Writes the first events of a choice, at its first output. Not called for a choice that the engine refuses. Only the prompt counts of
  // `usage` are meaningful.
  virtual void begin_choice(std::string& events, std::uint32_t index, const Usage& usage) = 0;
  // Writes the new part of a choice. Returns false if nothing can be written yet; the next call then passes the same part again, extended
  // by newer output.
  [[nodiscard]] virtual bool write_choice(std::string& events, const ChoiceText& choice, const Usage& so_far) = 0;
  // Ends the stream after all choices have ended. `error` is null, or states why the stream fails, before or after its first event.
  virtual void end_stream(std::string& events, const Usage& usage, const Error* error) = 0;
  // Returns the body of the response. Called once.
  [[nodiscard]] virtual std::string whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) = 0;
};

}  // namespace quire
