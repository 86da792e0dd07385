// Reads calls in a list as Python writes them: [name(key=value, ...), ...]. Converts the arguments to JSON. AnswerParser uses a reader on
// one thread at a time.
#include <string>

#include "base/json_writer.h"
#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/python_value.h"

namespace quire {
namespace {

constexpr std::size_t kMaxWordBytesOfCall = 256;

class PythonicReader final : public CallReader {
 public:
  PythonicReader(const CallFormat& format, const std::vector<Tool>& tools) : open_(format.open), close_(format.close), tools_(&tools) {}

  void begin() override {
    state_ = State::start;
    word_.clear();
  }
  [[nodiscard]] bool opens_with(char byte) const override { return open_.empty() && byte == '['; }

  ByteStatus push(char byte, CallWriter& out) override {
    switch (state_) {
      case State::start:
        if (byte == '[') return enter(State::name);
        return is_blank(byte) ? ByteStatus::more : ByteStatus::failed;
      case State::name:
        return byte == '(' ? begin_call(out) : push_word(byte);
      case State::key:
        return push_key(byte, out);
      case State::value:
        return push_value(byte, out);
      case State::between:
        if (byte == ',') return enter(State::name);
        if (byte == ']') return close_.empty() ? ByteStatus::complete : enter(State::closing);
        return is_blank(byte) ? ByteStatus::more : ByteStatus::failed;
      case State::closing:
        return push_closing(byte);
    }
    return ByteStatus::failed;
  }

 private:
  enum class State : std::uint8_t { start, name, key, value, between, closing };

  ByteStatus enter(State state) {
    state_ = state;
    word_.clear();
    return ByteStatus::more;
  }
  // Reads a byte of a name or a key. White space may precede the word.
  ByteStatus push_word(char byte) {
    static constexpr std::string_view kNone = "()[]{}=,'\"";
    if (is_blank(byte) && word_.empty()) return ByteStatus::more;
    if (kNone.find(byte) != std::string_view::npos || is_blank(byte)) return ByteStatus::failed;
    word_ += byte;
    return word_.size() > kMaxWordBytesOfCall ? ByteStatus::failed : ByteStatus::more;
  }
  ByteStatus begin_call(CallWriter& out) {
    // Without delimiters, the text may be any list, so the name must be the name of a tool.
    if (word_.empty() || (open_.empty() && find_tool(*tools_, word_) == nullptr)) return ByteStatus::failed;
    out.begin(word_);
    out.arguments("{");
    is_first_ = true;
    return enter(State::key);
  }
  ByteStatus end_call(CallWriter& out) {
    out.arguments("}");
    out.end();
    return enter(State::between);
  }
  ByteStatus push_key(char byte, CallWriter& out) {
    // A comma may follow the last argument.
    if (byte == ')' && word_.empty()) return end_call(out);
    if (byte != '=') return push_word(byte);
    if (word_.empty()) return ByteStatus::failed;
    std::string key = is_first_ ? "" : ", ";
    append_json_string(key, word_);
    out.arguments(key + ": ");
    is_first_ = false;
    value_ = {};
    return enter(State::value);
  }
  ByteStatus push_value(char byte, CallWriter& out) {
    word_.clear();
    const PythonValue::State state = value_.push(byte, word_);
    if (!word_.empty()) out.arguments(word_);
    if (state == PythonValue::State::bad) return ByteStatus::failed;
    if (state == PythonValue::State::open) return ByteStatus::more;
    return byte == ',' ? enter(State::key) : end_call(out);
  }
  ByteStatus push_closing(char byte) {
    if (word_.empty() && is_blank(byte)) return ByteStatus::more;
    word_ += byte;
    if (word_ == close_) return ByteStatus::complete;
    return close_.starts_with(word_) ? ByteStatus::more : ByteStatus::failed;
  }

  std::string_view open_, close_;
  const std::vector<Tool>* tools_;
  State state_ = State::start;
  bool is_first_ = true;
  std::string word_;
  PythonValue value_;
};

}  // namespace

std::unique_ptr<CallReader> make_pythonic_reader(const CallFormat& format, const std::vector<Tool>& tools) {
  return std::make_unique<PythonicReader>(format, tools);
}

}  // namespace quire
