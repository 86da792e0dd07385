// Takes an answer apart while it streams: content, reasoning, calls of tools. Called by the server for each token's text of a request, one
// thread at a time. Whatever comes is either given out or held back because it may begin a mark; nothing is lost: what turns out to be no
// call is text again.
#include "text/tool_calls/marked_parser.h"

#include <algorithm>
#include <utility>

#include "text/tool_calls/harmony_parser.h"

namespace quire {

std::unique_ptr<AnswerParser> make_answer_parser(const CallFormat& format, const std::vector<Tool>& tools, AnswerParserOptions options) {
  if (format.style == CallStyle::harmony) return std::make_unique<HarmonyParser>(tools, options);
  return std::make_unique<MarkedParser>(format, tools, options);
}

// States: thought -> start -> text <-> calls, or from start at once to calls. finish() ends each.
MarkedParser::MarkedParser(const CallFormat& format, const std::vector<Tool>& tools, AnswerParserOptions options)
    : format_(&format), options_(options), calls_(parts_, options.max_calls), mode_(options.in_thought ? Mode::thought : Mode::start) {
  if (options_.max_calls > 0) reader_ = make_call_reader(format, tools);
}

void MarkedParser::feed(std::string_view text) {
  for (const char byte : text) step(byte);
}

void MarkedParser::step(char byte) {
  ++num_bytes_;
  if (mode_ == Mode::thought)
    step_thought(byte);
  else if (mode_ == Mode::calls)
    step_calls(byte);
  else
    step_text(byte);
}

// Line feeds beside the marks belong to them.
void MarkedParser::think(char byte) {
  if (byte == '\n') {
    if (has_thoughts_text_) space_ += byte;
    return;
  }
  has_thoughts_text_ = true;
  parts_.add(AnswerPart::Kind::reasoning, std::exchange(space_, {}) + byte);
}

void MarkedParser::end_thought() {
  mode_ = Mode::start;
  has_thought_ = true;
  held_.clear();
  space_.clear();
}

void MarkedParser::step_thought(char byte) {
  held_ += byte;
  if (held_ == format_->think_close) return end_thought();
  while (!held_.empty() && !std::string_view(format_->think_close).starts_with(held_)) release(1);
}

void MarkedParser::say(char byte, std::size_t end) {
  if (is_blank(byte) && (mode_ == Mode::start || reader_ != nullptr)) {
    space_ += byte;
    return;
  }
  // Behind a reasoning part an answer begins with its first letter.
  if (mode_ == Mode::start && has_thought_) space_.clear();
  mode_ = Mode::text;
  parts_.say(std::exchange(space_, {}) + byte, end);
}

// What was held back, and is none of a mark.
void MarkedParser::release(std::size_t num_bytes) {
  const std::string released = held_.substr(0, num_bytes);
  std::size_t end = num_bytes_ - held_.size();
  held_.erase(0, num_bytes);
  for (const char byte : released) mode_ == Mode::thought ? think(byte) : say(byte, ++end);
}

bool MarkedParser::may_begin_mark(std::string_view text) const {
  if (may_think() && std::string_view(format_->think_open).starts_with(text)) return true;
  return reader_ != nullptr && reads_calls() && std::string_view(format_->open).starts_with(text);
}

void MarkedParser::step_text(char byte) {
  if (held_.empty() && mode_ == Mode::start && reader_ != nullptr && reads_calls() && reader_->opens_with(byte)) {
    begin_calls();
    return step_calls(byte);
  }
  held_ += byte;
  if (!may_begin_mark(held_)) {
    release(1);
    while (!held_.empty() && !may_begin_mark(held_)) release(1);
    return;
  }
  if (may_think() && held_ == format_->think_open) {
    mode_ = Mode::thought;
    held_.clear();
    space_.clear();
  } else if (held_ == format_->open) {
    begin_calls();
    raw_ = std::exchange(held_, {});
  }
}

void MarkedParser::begin_calls() {
  if (mode_ == Mode::start && has_thought_) space_.clear();
  mode_ = Mode::calls;
  raw_.clear();
  reader_->begin();
}

void MarkedParser::step_calls(char byte) {
  raw_ += byte;
  const std::uint32_t num_begun = calls_.num_begun();
  const std::uint32_t num_ended = calls_.num_ended();
  const Taken taken = reader_->push(byte, calls_);
  // Should the call break off, the space before it is text again.
  if (calls_.num_begun() != num_begun) raw_.insert(0, std::exchange(space_, {}));
  if (taken == Taken::failed || calls_.is_refused()) return give_up();
  if (calls_.num_ended() != num_ended || taken == Taken::settled || taken == Taken::over) raw_.clear();
  if (taken == Taken::over) mode_ = Mode::text;
}

// What was read behind the last call is text, but for an end of it that may begin a mark.
void MarkedParser::give_up() {
  calls_.give_up();
  mode_ = Mode::text;
  held_ = std::exchange(raw_, {});
  std::size_t num_text = held_.size() - std::min(held_.size(), format_->open.size());
  while (num_text < held_.size() && !may_begin_mark(std::string_view(held_).substr(num_text))) ++num_text;
  release(num_text);
}

void MarkedParser::finish() {
  if (mode_ == Mode::calls) {
    if (calls_.is_open() || !std::ranges::all_of(raw_, is_blank)) give_up();
  }
  release(held_.size());
  // Space at the end of an answer belongs to it, unless a call or a reasoning part comes before it.
  const bool ends_mark = calls_.num_ended() > 0 || (mode_ == Mode::start && has_thought_);
  if (!ends_mark && !space_.empty()) {
    if (mode_ == Mode::thought)
      parts_.add(AnswerPart::Kind::reasoning, space_);
    else
      parts_.say(space_, num_bytes_);
  }
  space_.clear();
}

}  // namespace quire
