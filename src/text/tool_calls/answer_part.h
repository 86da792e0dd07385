#pragma once
// The parts that a parser finds in an answer, in the order of its text.
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
    call,           // a call begins; `text` is the tool's name
    arguments,      // the next piece of a call's arguments; all pieces together are the JSON text of an object
    call_end,       // the arguments are complete
    call_broken,    // the call is invalid; its text follows as content
    call_truncated  // the answer was cut off within the call, so no further part of the call follows
  };
  Kind kind = Kind::content;
  std::uint32_t call = 0;  // for calls: the number of the call, from 0
  std::string text;
  std::size_t begin = 0, end = 0;  // for content: its byte range in the answer's text

  friend bool operator==(const AnswerPart&, const AnswerPart&) = default;
};

// Collects parts in order. Joins adjacent parts of one kind, except content between which the answer has other text.
class AnswerParts {
 public:
  void add(AnswerPart::Kind kind, std::string_view text, std::uint32_t call = 0) {
    const bool joins = kind == AnswerPart::Kind::content || kind == AnswerPart::Kind::reasoning || kind == AnswerPart::Kind::arguments;
    if (joins && !parts_.empty() && parts_.back().kind == kind && parts_.back().call == call)
      parts_.back().text += text;
    else
      parts_.push_back({kind, call, std::string(text)});
  }
  // Adds content that ends at byte `end` of the answer's text.
  void append_text(std::string_view text, std::size_t end) {
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

// Receives the calls that readers find. Numbers the calls in the order in which they begin, and drops calls after the first `max_calls`.
class CallWriter {
 public:
  CallWriter(AnswerParts& parts, std::uint32_t max_calls) : parts_(&parts), max_calls_(max_calls) {}

  void begin(std::string_view name) {
    ++num_seen_;
    is_dropping_ = num_ended_ >= max_calls_;
    is_open_ = !is_dropping_;
    if (is_open_) parts_->add(AnswerPart::Kind::call, name, num_begun_++);
  }
  void arguments(std::string_view json) {
    if (is_open_) parts_->add(AnswerPart::Kind::arguments, json, num_begun_ - 1);
  }
  void end() {
    ++num_read_;
    is_dropping_ = false;
    if (!std::exchange(is_open_, false)) return;
    ++num_ended_;
    parts_->add(AnswerPart::Kind::call_end, {}, num_begun_ - 1);
  }
  // Marks the open call, if there is one, as invalid.
  void reject_call() { leave(AnswerPart::Kind::call_broken); }
  // Marks the open call as incomplete, because the answer was cut off.
  void cut() { leave(AnswerPart::Kind::call_truncated); }
  [[nodiscard]] bool is_open() const { return is_open_; }
  // Returns whether the latest call is dropped and has not ended yet.
  [[nodiscard]] bool is_dropping() const { return is_dropping_; }
  // Return the numbers of calls that have begun and that have ended, including dropped calls.
  [[nodiscard]] std::uint32_t num_seen() const { return num_seen_; }
  [[nodiscard]] std::uint32_t num_read() const { return num_read_; }
  // Returns the number of calls that have ended, without dropped calls.
  [[nodiscard]] std::uint32_t num_ended() const { return num_ended_; }

 private:
  void leave(AnswerPart::Kind how) {
    is_dropping_ = false;
    if (std::exchange(is_open_, false)) parts_->add(how, {}, num_begun_ - 1);
  }

  AnswerParts* parts_;
  std::uint32_t max_calls_;
  bool is_open_ = false;
  bool is_dropping_ = false;
  std::uint32_t num_begun_ = 0;  // without dropped calls
  std::uint32_t num_seen_ = 0, num_read_ = 0;
  std::uint32_t num_ended_ = 0;
};

}  // namespace quire
