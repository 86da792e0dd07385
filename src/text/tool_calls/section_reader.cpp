// DeepSeek's and Kimi's sections: marks around all calls, around each, and between its head and its arguments.
// Used by AnswerParser, one thread at a time; the marks differ by model (section_marks()), the states do not.
#include <string>

#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/json_object.h"

namespace quire {
namespace {

constexpr std::size_t kMaxHeadBytes = 512;
constexpr std::string_view kFence = "```json";

class SectionReader final : public CallReader {
 public:
  explicit SectionReader(const CallFormat& format) : style_(format.style), marks_(section_marks(format.style)) {}

  void begin() override {
    state_ = State::between;
    read_.clear();
  }

  Taken push(char byte, CallWriter& out) override {
    switch (state_) {
      case State::between:
        return push_mark(byte);
      case State::head:
        return push_head(byte);
      case State::fence:
        return byte == '{' ? begin_call(byte, out) : push_fence(byte);
      case State::arguments:
        return push_arguments(byte, out);
      case State::closing:
        return push_closing(byte);
    }
    return Taken::failed;
  }

 private:
  // between: a call or the end. head: of a call, up to its separator. fence: what is between head and arguments.
  enum class State : std::uint8_t { between, head, fence, arguments, closing };

  Taken enter(State state) {
    state_ = state;
    read_.clear();
    return Taken::more;
  }
  Taken push_mark(char byte) {
    if (read_.empty() && is_blank(byte)) return Taken::more;
    read_ += byte;
    if (read_ == marks_.end) return Taken::over;
    if (read_ == marks_.call) return enter(State::head);
    return marks_.end.starts_with(read_) || marks_.call.starts_with(read_) ? Taken::more : Taken::failed;
  }
  Taken push_head(char byte) {
    read_ += byte;
    if (read_.size() > kMaxHeadBytes) return Taken::failed;
    if (!read_.ends_with(marks_.separator)) return Taken::more;
    name_ = read_.substr(0, read_.size() - marks_.separator.size());
    return enter(State::fence);
  }
  // R1 says "function" in the head; its name follows, in a line.
  Taken push_fence(char byte) {
    read_ += byte;
    return read_.size() > kMaxHeadBytes ? Taken::failed : Taken::more;
  }
  bool take_name() {
    const std::size_t line = read_.find('\n');
    if (line != std::string::npos && read_.find_first_not_of(" \n\t\r") < line) {
      name_ = read_.substr(0, line);
      read_.erase(0, line);
    }
    const std::size_t first = read_.find_first_not_of(" \n\t\r");
    if (first != std::string::npos && read_.substr(first, read_.find_last_not_of(" \n\t\r") + 1 - first) != kFence) return false;
    // "functions.name:0".
    if (style_ == CallStyle::kimi) {
      if (name_.starts_with("functions.")) name_.erase(0, std::string_view("functions.").size());
      name_.resize(std::min(name_.rfind(':'), name_.size()));
    }
    return !name_.empty();
  }
  Taken begin_call(char byte, CallWriter& out) {
    if (!take_name()) return Taken::failed;
    out.begin(name_);
    object_ = JsonObject();
    state_ = State::arguments;
    return push_arguments(byte, out);
  }
  Taken push_arguments(char byte, CallWriter& out) {
    const JsonState state = object_.push(byte);
    if (state == JsonState::bad) return Taken::failed;
    out.arguments({&byte, 1});
    if (state == JsonState::open) return Taken::more;
    out.end();
    return enter(State::closing);
  }
  Taken push_closing(char byte) {
    if (read_.empty() && (is_blank(byte) || byte == '`')) return Taken::more;
    read_ += byte;
    if (read_ == marks_.call_end) {
      enter(State::between);
      return Taken::settled;
    }
    return marks_.call_end.starts_with(read_) ? Taken::more : Taken::failed;
  }

  CallStyle style_;
  SectionMarks marks_;
  State state_ = State::between;
  std::string read_, name_;
  JsonObject object_;
};

}  // namespace

std::unique_ptr<CallReader> make_section_reader(const CallFormat& format) {
  return std::make_unique<SectionReader>(format);
}

}  // namespace quire
