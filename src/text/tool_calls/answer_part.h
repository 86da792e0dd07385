#pragma once
// What a parser finds in an answer, in the order of its text.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quire {

struct AnswerPart {
  enum class Kind : std::uint8_t {
    content,
    reasoning,
    call,        // begins; `text` is the tool's name
    arguments,   // the next of the call's arguments: JSON text, of an object in all
    call_end,    // the arguments are whole
    call_broken  // the call is none: its text follows as content
  };
  Kind kind = Kind::content;
  std::uint32_t call = 0;  // of calls: their number, from 0
  std::string text;
  std::size_t begin = 0, end = 0;  // of content: its place in the answer's text, in bytes

  friend bool operator==(const AnswerPart&, const AnswerPart&) = default;
};

// Parts as they come; neighbours of one kind become one, but for content with something between that is none.
class AnswerParts {
 public:
  void add(AnswerPart::Kind kind, std::string_view text, std::uint32_t call = 0) {
    const bool joins = kind == AnswerPart::Kind::content || kind == AnswerPart::Kind::reasoning || kind == AnswerPart::Kind::arguments;
    if (joins && !parts_.empty() && parts_.back().kind == kind && parts_.back().call == call)
      parts_.back().text += text;
    else
      parts_.push_back({kind, call, std::string(text)});
  }
  // Content that ends there in the answer's text.
  void say(std::string_view text, std::size_t end) {
    const std::size_t begin = end - text.size();
    if (parts_.empty() || parts_.back().kind != AnswerPart::Kind::content || parts_.back().end != begin)
      parts_.push_back({.kind = AnswerPart::Kind::content, .text = {}, .begin = begin});
    parts_.back().text += text;
    parts_.back().end = end;
  }
  [[nodiscard]] std::vector<AnswerPart> take() { return std::exchange(parts_, {}); }

 private:
  std::vector<AnswerPart> parts_;
};

// Where readers of calls write to. Calls are numbered as they begin.
class CallWriter {
 public:
  // Of a call that begins when `max_calls` have ended nothing is written.
  CallWriter(AnswerParts& parts, std::uint32_t max_calls) : parts_(&parts), max_calls_(max_calls) {}

  void begin(std::string_view name) {
    is_open_ = num_ended_ < max_calls_;
    is_refused_ = !is_open_;
    if (is_open_) parts_->add(AnswerPart::Kind::call, name, num_begun_++);
  }
  void arguments(std::string_view json) {
    if (is_open_) parts_->add(AnswerPart::Kind::arguments, json, num_begun_ - 1);
  }
  void end() {
    if (!std::exchange(is_open_, false)) return;
    ++num_ended_;
    parts_->add(AnswerPart::Kind::call_end, {}, num_begun_ - 1);
  }
  // Of the open call, if there is one.
  void give_up() {
    if (std::exchange(is_open_, false)) parts_->add(AnswerPart::Kind::call_broken, {}, num_begun_ - 1);
  }
  [[nodiscard]] bool is_open() const { return is_open_; }
  // The call that was begun last is one too many, and nothing of it is written.
  [[nodiscard]] bool is_refused() const { return is_refused_; }
  [[nodiscard]] std::uint32_t num_begun() const { return num_begun_; }
  [[nodiscard]] std::uint32_t num_ended() const { return num_ended_; }

 private:
  AnswerParts* parts_;
  std::uint32_t max_calls_;
  bool is_open_ = false;
  bool is_refused_ = false;
  std::uint32_t num_begun_ = 0;
  std::uint32_t num_ended_ = 0;
};

}  // namespace quire
