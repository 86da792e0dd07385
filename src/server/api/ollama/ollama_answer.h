#pragma once
// Writes answers of Ollama's /api/chat and /api/generate: whole answers, and the lines of a stream (NDJSON).
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "quire/base/error.h"
#include "quire/base/sampling.h"
#include "quire/text/tokenizer.h"
#include "server/answers/answer_writer.h"
#include "server/http/http.h"

namespace quire {

// Returns the current time by the system clock as in RFC 3339, with microseconds.
[[nodiscard]] std::string rfc3339_now();

// Converts an error from OpenAI's format to Ollama's: {"error": "text"}. Returns other responses unchanged.
[[nodiscard]] HttpResponse as_ollama_error(HttpResponse response);

// The properties of an answer that are known when its request has been read.
struct OllamaAnswerHead {
  std::string model;  // the name that the client sent
  bool is_chat = true;
  std::chrono::steady_clock::time_point received{};
};

// Returns the answer to a body without a prompt.
[[nodiscard]] std::string loaded_answer(const OllamaAnswerHead& head, bool is_unload);

// Owned by one thread at a time. The time between `received` and the construction is the answer's load_duration: in this time the body is
// read and, if the request names an adapter, its weights are loaded.
class OllamaWriter final : public AnswerWriter {
 public:
  // `tokenizer` must outlive this object.
  OllamaWriter(AnswerHead common, OllamaAnswerHead head, const Tokenizer& tokenizer);

  void begin_choice(std::string& /*events*/, std::uint32_t /*index*/, const Usage& /*usage*/) override {}
  [[nodiscard]] bool write_choice(std::string& events, const ChoiceText& choice, const Usage& so_far) override;
  void end_stream(std::string& events, const Usage& usage, const Error* error) override;
  [[nodiscard]] std::string whole_answer(const std::vector<ChoiceText>& choices, const Usage& usage) override;

 private:
  // The parts of an answer that one line, or a whole answer, has.
  struct Message {
    std::string text, thoughts, calls;  // `calls` is the JSON of the calls, with commas between them
    [[nodiscard]] bool any() const { return !text.empty() || !thoughts.empty() || !calls.empty(); }
  };
  // Adds a part to `next_`. Returns whether the part completes a piece that a stream sends.
  bool add(const AnswerPart& part);
  void write_head(JsonWriter& json, const Message& message) const;
  void write_logprobs(JsonWriter& json, bool by_id);
  void write_end(JsonWriter& json, const ChoiceText& choice, const Usage& usage) const;
  // Streams: writes `next_` and the log probabilities so far as a line.
  void write_line(std::string& events, const ChoiceText& choice);

  AnswerHead common_;
  OllamaAnswerHead head_;
  const Tokenizer* tokenizer_;
  std::chrono::nanoseconds load_duration_;
  Message next_;                            // not written yet
  std::string call_name_, call_arguments_;  // the call in progress
  std::uint32_t num_calls_ = 0;
  std::vector<PositionLogprobs> logprobs_;  // not written yet
};

}  // namespace quire
