#pragma once
// Answers in OpenAI's Harmony format, which gpt-oss writes: messages, each with a head that says its channel and whom it is for. Owned by
// one thread at a time.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_parser.h"
#include "text/tool_calls/json_object.h"

namespace quire {

// Messages of the channel "analysis" are thought, those for functions are calls, all others are said. Heads come out nowhere, whole or
// broken off; text that has none is said.
class HarmonyParser final : public AnswerParser {
 public:
  // `tools` must outlive it.
  HarmonyParser(const std::vector<Tool>& tools, AnswerParserOptions options);

  void feed(std::string_view text) override;
  void finish() override;
  [[nodiscard]] std::vector<AnswerPart> take_parts() override { return parts_.take(); }
  [[nodiscard]] bool is_thinking() const override { return mode_ == Mode::thought; }
  [[nodiscard]] std::uint32_t num_calls() const override { return calls_.num_ended(); }

 private:
  // head: up to where a message's text begins. arguments: of a call, before their first byte and then; behind: the object is whole.
  enum class Mode : std::uint8_t { head, thought, said, arguments, behind };

  void step(char byte);
  void take_mark(std::string_view mark);
  // `end`: bytes of the answer up to this one and with it.
  void take_text(char byte, std::size_t end);
  void take_head_mark(std::string_view mark, bool ends);
  void take_head_text(char byte);
  // What was read as a head is text that somebody wrote without one.
  void is_no_head();
  void begin_head();
  void take_argument(char byte);
  void begin_message();
  // by_mark: or because the answer ends, or another message begins.
  void end_message(bool by_mark);
  // The function that the head names; empty: none, or calls are not looked for.
  [[nodiscard]] std::string called() const;
  // It ends where the text that was taken ends.
  void say(std::string_view text) { parts_.say(text, text_end_); }
  // What was read of the call is text.
  void give_up();

  const std::vector<Tool>* tools_;
  AnswerParserOptions options_;
  AnswerParts parts_;
  CallWriter calls_;
  Mode mode_;
  std::size_t num_bytes_ = 0;  // of the answer so far
  std::size_t text_end_ = 0;   // of them up to the last that was text
  bool has_thoughts_ = false;  // in an earlier message
  bool has_messages_ = false;  // one has ended
  std::string held_;           // may begin a mark
  std::string head_;
  bool head_has_mark_ = false;
  std::string name_, raw_;  // of the call: its function, and what was read of its arguments
  JsonObject object_;
};

}  // namespace quire
