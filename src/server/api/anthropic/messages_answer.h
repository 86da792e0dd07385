#pragma once
// Writes answers of Anthropic's /v1/messages: whole messages, and the events of a stream.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "quire/base/error.h"
#include "server/answers/single_answer_writer.h"
#include "server/http/http.h"
#include "server/request/prompt_fingerprint.h"

namespace quire {

// Returns the stop_reason: "end_turn", "max_tokens", "stop_sequence" or "tool_use".
[[nodiscard]] std::string_view stop_reason_name(FinishReason reason, const StopCause& cause, bool calls_tools);

// Returns the JSON of `diagnostics`: an object with `cache_miss_reason` if the prompt does not begin like the prompt of the compared
// answer, else null.
[[nodiscard]] std::string diagnostics_json(const PromptComparison* compared);

// Converts an error from OpenAI's format to Anthropic's: {"type": "error", "error": {"type", "message"}}. Returns other responses
// unchanged.
[[nodiscard]] HttpResponse as_messages_error(HttpResponse response);

class MessageWriter final : public SingleAnswerWriter {
 public:
  // `head.id` begins with "msg_"; the ids of tool calls are derived from it.
  MessageWriter(AnswerHead head, bool is_stream) : head_(std::move(head)), is_stream_(is_stream) {}

  void begin(std::string& events, const Usage& usage) override;
  void add(std::string& events, const AnswerPart& part) override;
  void end(std::string& events, const AnswerEnd& end) override;
  void fail(std::string& events, const Error& error) override;
  [[nodiscard]] std::string whole() const override { return whole_; }
  // Sets the JSON of `diagnostics`, which every answer contains after this call.
  void set_diagnostics(std::string diagnostics) { diagnostics_ = std::move(diagnostics); }

 private:
  enum class Kind : std::uint8_t { none, text, thinking, tool_use };
  // A content block of a whole answer. A stream stores no blocks.
  struct Block {
    Kind kind = Kind::none;
    std::string id, name, text;
  };
  [[nodiscard]] std::string content() const;
  // `end` is null before the answer has ended.
  void write_message(JsonWriter& json, const AnswerEnd* end, const Usage& usage) const;
  void open(std::string& events, Kind kind, Block block);
  void close(std::string& events);
  void append_text(std::string& events, std::string_view text);

  AnswerHead head_;
  std::string diagnostics_;  // empty: not requested
  bool is_stream_;
  Kind open_ = Kind::none;
  std::uint32_t num_blocks_ = 0;
  std::vector<Block> blocks_;  // whole answers only
  std::string whole_;
};

}  // namespace quire
