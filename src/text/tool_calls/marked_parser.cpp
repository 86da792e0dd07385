// Parses a streaming answer into content, reasoning and tool calls. Called by the server for the text of each token of a request, on one
// thread at a time. The parser holds back text that may begin a delimiter. Text that turns out not to be a call becomes content again, and
// only calls above the limit are dropped.
//
// A call within the reasoning counts if the answer ends before the reasoning is closed, as with vLLM's parser for Qwen 3. If the reasoning
// is closed later, the calls were only part of the model's reasoning. The parser therefore holds back everything from the first of these
// calls until the reasoning or the answer ends.
#include "text/tool_calls/marked_parser.h"

#include <algorithm>
#include <utility>

#include "text/tool_calls/harmony_parser.h"

namespace quire {

std::unique_ptr<AnswerParser> make_answer_parser(const CallFormat& format, const std::vector<Tool>& tools, AnswerParserOptions options) {
  if (format.style == CallStyle::harmony) return std::make_unique<HarmonyParser>(tools, options);
  return std::make_unique<MarkedParser>(format, tools, options);
}

// Transitions: reasoning -> start -> text <-> calls, also start -> calls; reasoning <-> tentative. finish() may be called in every state.
MarkedParser::MarkedParser(const CallFormat& format, const std::vector<Tool>& tools, AnswerParserOptions options)
    : format_(&format),
      tools_(&tools),
      options_(options),
      calls_(parts_, options.max_calls),
      mode_(options.in_reasoning ? Mode::reasoning : Mode::start) {
  if (options_.max_calls > 0) reader_ = make_call_reader(format, tools);
}

void MarkedParser::feed(std::string_view text) {
  for (const char byte : text) step(byte);
}

void MarkedParser::step(char byte) {
  ++num_bytes_;
  if (mode_ == Mode::reasoning)
    step_reasoning(byte);
  else if (mode_ == Mode::tentative)
    step_tentative(byte);
  else if (mode_ == Mode::calls)
    step_calls(byte);
  else
    step_text(byte);
}

// Line feeds next to a delimiter belong to the delimiter and are dropped.
void MarkedParser::append_reasoning(char byte) {
  if (byte == '\n') {
    if (has_reasoning_text_) space_ += byte;
    return;
  }
  has_reasoning_text_ = true;
  parts_.add(AnswerPart::Kind::reasoning, std::exchange(space_, {}) + byte);
}

void MarkedParser::end_reasoning() {
  mode_ = Mode::start;
  has_reasoning_ = true;
  held_.clear();
  space_.clear();
}

void MarkedParser::step_reasoning(char byte) {
  held_ += byte;
  if (held_ == format_->think_close) return end_reasoning();
  const bool looks_for_calls = reader_ != nullptr && has_delimiters();
  if (looks_for_calls && num_bytes_ > num_settled_ && held_ == format_->open) return begin_tentative();
  const auto may_begin = [&](std::string_view text) {
    return std::string_view(format_->think_close).starts_with(text) ||
           (looks_for_calls && std::string_view(format_->open).starts_with(text));
  };
  while (!held_.empty() && !may_begin(held_)) release(1);
}

void MarkedParser::begin_tentative() {
  mode_ = Mode::tentative;
  tentative_text_ = std::exchange(held_, {});
  tentative_delimiter_.clear();
  found_ = CallWriter(found_parts_, std::numeric_limits<std::uint32_t>::max());
  reads_tentative_ = true;
  reader_->begin();
}

void MarkedParser::step_tentative(char byte) {
  tentative_text_ += byte;
  if (reads_tentative_) return read_tentative(byte);
  // After a call, waits for another opening delimiter, or for the end of the reasoning, which makes the calls part of the reasoning.
  tentative_delimiter_ += byte;
  if (tentative_delimiter_ == format_->think_close) return settle_tentative(true);
  if (tentative_delimiter_ == format_->open) {
    tentative_delimiter_.clear();
    reads_tentative_ = true;
    return reader_->begin();
  }
  const auto may_begin = [&](std::string_view text) {
    return std::string_view(format_->think_close).starts_with(text) || std::string_view(format_->open).starts_with(text);
  };
  while (!tentative_delimiter_.empty() && !may_begin(tentative_delimiter_)) tentative_delimiter_.erase(0, 1);
}

// Reads a byte of a possible call within the reasoning. If there is no complete call yet and this one is invalid, the text is reasoning.
// After a complete call, an invalid one does not change the state.
void MarkedParser::read_tentative(char byte) {
  const ByteStatus taken = reader_->push(byte, found_);
  bool is_unknown = false;
  for (const AnswerPart& part : found_parts_.take())
    is_unknown |= part.kind == AnswerPart::Kind::call && find_tool(*tools_, part.text) == nullptr;
  if (taken != ByteStatus::failed && taken != ByteStatus::complete && !is_unknown) return;
  if (taken != ByteStatus::complete && found_.num_read() == 0) return settle_tentative(true);
  found_.reject_call();
  reads_tentative_ = false;
  tentative_delimiter_ = taken == ByteStatus::complete ? "" : std::string(1, byte);
}

void MarkedParser::settle_tentative(bool is_reasoning) {
  const std::string text = std::exchange(tentative_text_, {});
  mode_ = Mode::reasoning;
  if (!is_reasoning) end_reasoning();
  num_settled_ = num_bytes_;
  num_bytes_ -= text.size();
  feed(text);
}

void MarkedParser::append_text(char byte, std::size_t end) {
  if (is_blank(byte) && (mode_ == Mode::start || reader_ != nullptr)) {
    space_ += byte;
    return;
  }
  // Drops white space between the reasoning and the answer's first letter.
  if (mode_ == Mode::start && has_reasoning_) space_.clear();
  mode_ = Mode::text;
  parts_.append_text(std::exchange(space_, {}) + byte, end);
}

// Returns the first held bytes as text or reasoning, because they are not part of a delimiter.
void MarkedParser::release(std::size_t num_bytes) {
  const std::string released = held_.substr(0, num_bytes);
  std::size_t end = num_bytes_ - held_.size();
  held_.erase(0, num_bytes);
  for (const char byte : released) mode_ == Mode::reasoning ? append_reasoning(byte) : append_text(byte, ++end);
}

bool MarkedParser::may_begin_delimiter(std::string_view text) const {
  if (may_think() && std::string_view(format_->think_open).starts_with(text)) return true;
  return reader_ != nullptr && std::string_view(format_->open).starts_with(text);
}

void MarkedParser::step_text(char byte) {
  if (held_.empty() && mode_ == Mode::start && reader_ != nullptr && reader_->opens_with(byte)) {
    begin_calls();
    return step_calls(byte);
  }
  held_ += byte;
  if (!may_begin_delimiter(held_)) {
    release(1);
    while (!held_.empty() && !may_begin_delimiter(held_)) release(1);
    return;
  }
  if (may_think() && held_ == format_->think_open) {
    mode_ = Mode::reasoning;
    held_.clear();
    space_.clear();
  } else if (held_ == format_->open) {
    begin_calls();
    raw_ = std::exchange(held_, {});
  }
}

void MarkedParser::begin_calls() {
  if (mode_ == Mode::start && has_reasoning_) space_.clear();
  mode_ = Mode::calls;
  raw_.clear();
  reader_->begin();
}

void MarkedParser::step_calls(char byte) {
  raw_ += byte;
  const std::uint32_t num_seen = calls_.num_seen();
  const std::uint32_t num_read = calls_.num_read();
  const ByteStatus taken = reader_->push(byte, calls_);
  // Keeps the white space before the call, because it becomes text again if the call turns out to be invalid.
  if (calls_.num_seen() != num_seen) raw_.insert(0, std::exchange(space_, {}));
  if (taken == ByteStatus::failed) return reject_call();
  if (calls_.num_read() != num_read || taken == ByteStatus::settled || taken == ByteStatus::complete) raw_.clear();
  if (taken == ByteStatus::complete) mode_ = Mode::text;
}

// Turns the bytes after the last call into text. Keeps back an end that may begin a delimiter.
void MarkedParser::reject_call() {
  if (calls_.is_dropping()) raw_.clear();
  calls_.reject_call();
  mode_ = Mode::text;
  held_ = std::exchange(raw_, {});
  std::size_t num_text = held_.size() - std::min(held_.size(), format_->open.size());
  while (num_text < held_.size() && !may_begin_delimiter(std::string_view(held_).substr(num_text))) ++num_text;
  release(num_text);
}

// Ends the calls at the end of the answer. If the answer is truncated, drops an unfinished call between delimiters, because it is neither
// text nor usable as a call.
void MarkedParser::finish_calls(bool is_truncated) {
  const bool is_call = has_delimiters() || calls_.is_open() || calls_.num_read() > 0;
  if (is_truncated && is_call) {
    calls_.cut();
    raw_.clear();
    space_.clear();
  } else if (calls_.is_open() || calls_.is_dropping() || !std::ranges::all_of(raw_, is_blank)) {
    reject_call();
  }
}

void MarkedParser::finish(bool is_truncated) {
  if (mode_ == Mode::tentative) settle_tentative(found_.num_read() == 0 && !(is_truncated && found_.is_open()));
  if (mode_ == Mode::calls) finish_calls(is_truncated);
  // At a truncated end, drops held bytes that begin a delimiter, except a single byte without an earlier call, which may be text.
  const bool is_delimiter =
      has_delimiters() && reader_ != nullptr && mode_ != Mode::reasoning && std::string_view(format_->open).starts_with(held_);
  const bool is_dropped = is_truncated && is_delimiter && held_.size() > (calls_.num_read() > 0 ? 0U : 1U);
  const std::size_t end = num_bytes_ - (is_dropped ? held_.size() : 0);
  if (is_dropped) held_.clear();
  release(held_.size());
  // White space at the end of an answer is part of the answer, unless it follows a call or the reasoning.
  const bool follows_delimiter = calls_.num_read() > 0 || (mode_ == Mode::start && has_reasoning_);
  if (!follows_delimiter && !space_.empty()) {
    if (mode_ == Mode::reasoning)
      parts_.add(AnswerPart::Kind::reasoning, space_);
    else
      parts_.append_text(space_, end);
  }
  space_.clear();
}

}  // namespace quire
