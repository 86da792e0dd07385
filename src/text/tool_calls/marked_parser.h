#pragma once
// Answers that are text, with marks around calls and around what the model thinks. Owned by one thread at a time.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tool_calls/answer_parser.h"
#include "text/tool_calls/call_reader.h"

namespace quire {

// White space before what may be a mark is held back, too: it goes where a mark or a call follows.
class MarkedParser final : public AnswerParser {
 public:
  // `format` and `tools` must outlive it.
  MarkedParser(const CallFormat& format, const std::vector<Tool>& tools, AnswerParserOptions options);

  void feed(std::string_view text) override;
  void finish() override;
  [[nodiscard]] std::vector<AnswerPart> take_parts() override { return parts_.take(); }
  [[nodiscard]] bool is_thinking() const override { return mode_ == Mode::thought; }
  [[nodiscard]] std::uint32_t num_calls() const override { return calls_.num_ended(); }

 private:
  // start: nothing but white space so far, so that the model may begin to think or an answer that is all calls.
  enum class Mode : std::uint8_t { thought, start, text, calls };

  void step(char byte);
  void step_thought(char byte);
  void step_text(char byte);
  void step_calls(char byte);
  void think(char byte);
  // `end`: bytes of the answer up to this one and with it.
  void say(char byte, std::size_t end);
  // So many of the held bytes begin no mark: they are text.
  void release(std::size_t num_bytes);
  void end_thought();
  void begin_calls();
  // What was read as calls since the last that ended is text.
  void give_up();
  [[nodiscard]] bool reads_calls() const { return calls_.num_ended() < options_.max_calls; }
  // A model thinks once, at the answer's beginning.
  [[nodiscard]] bool may_think() const { return mode_ == Mode::start && !has_thought_ && !format_->think_open.empty(); }
  [[nodiscard]] bool may_begin_mark(std::string_view text) const;

  const CallFormat* format_;
  AnswerParserOptions options_;
  // Null where no calls are looked for; it is given bytes in mode `calls` only.
  std::unique_ptr<CallReader> reader_;
  AnswerParts parts_;
  CallWriter calls_;
  Mode mode_;
  std::size_t num_bytes_ = 0;  // of the answer so far
  bool has_thought_ = false;
  bool has_thoughts_text_ = false;
  std::string held_;   // may begin a mark
  std::string space_;  // white space that waits for what follows it
  std::string raw_;    // of the calls under way, behind the last that ended
};

}  // namespace quire
