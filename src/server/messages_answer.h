#pragma once
// Answers of Anthropic's /v1/messages: whole messages, and the events of a stream.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "quire/error.h"
#include "server/http.h"
#include "server/openai_response.h"
#include "text/tool_calls/answer_part.h"

namespace quire {

// How a message ended: "end_turn", "max_tokens", "stop_sequence" or "tool_use".
[[nodiscard]] std::string_view stop_reason_name(FinishReason reason, const StopCause& cause, bool calls_tools);

// An error in OpenAI's shape in Anthropic's: {"type": "error", "error": {"type", "message"}}. Other responses stay.
[[nodiscard]] HttpResponse as_messages_error(HttpResponse response);

// One answer, from its first part to its end. Owned by one thread at a time.
class MessageWriter {
 public:
  struct End {
    FinishReason reason = FinishReason::stop;
    StopCause cause;
    bool calls_tools = false;
    Usage usage;
  };

  // `head.id` begins with "msg_"; ids of calls are made of it.
  MessageWriter(AnswerHead head, bool is_stream) : head_(std::move(head)), is_stream_(is_stream) {}

  // Streams: the first event and a ping. Of `usage` the prompt counts.
  void begin(std::string& events, const Usage& usage) const;
  void add(std::string& events, const AnswerPart& part);
  // Streams: the last events.
  void end(std::string& events, const End& end);
  // Streams that fail.
  static void error(std::string& events, const Error& error);
  // Whole answers, once all parts are added.
  [[nodiscard]] std::string message(const End& end) const;

 private:
  enum class Kind : std::uint8_t { none, text, thinking, tool_use };
  struct Block {
    Kind kind = Kind::none;
    std::string id, name, text;
  };
  [[nodiscard]] std::string message_json(std::string_view content, std::string_view stop, const Usage& usage) const;
  void open(std::string& events, Kind kind, Block block);
  void close(std::string& events);
  void say(std::string& events, std::string_view text);

  AnswerHead head_;
  bool is_stream_;
  Kind open_ = Kind::none;
  std::uint32_t num_blocks_ = 0;
  std::vector<Block> blocks_;  // of a whole answer
};

}  // namespace quire
