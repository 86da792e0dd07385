// Reads sections of calls in the formats of DeepSeek and Kimi. There are delimiters around all calls, around each call, and between a
// call's head and its arguments. The delimiters differ by model (section_delimiters()); the states are the same. AnswerParser uses a reader
// on one thread at a time.
#include <string>

#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/json_object.h"

namespace quire {
namespace {

constexpr std::size_t kMaxHeadBytes = 512;
constexpr std::string_view kFence = "```json";

class SectionReader final : public CallReader {
 public:
  explicit SectionReader(const CallFormat& format) : style_(format.style), delimiters_(section_delimiters(format.style)) {}

  void begin() override {
    state_ = State::between;
    read_.clear();
  }

  ByteStatus push(char byte, CallWriter& out) override {
    switch (state_) {
      case State::between:
        return push_delimiter(byte);
      case State::head:
        return push_head(byte);
      case State::fence:
        return byte == '{' ? begin_call(byte, out) : push_fence(byte);
      case State::arguments:
        return push_arguments(byte, out);
      case State::closing:
        return push_closing(byte);
    }
    return ByteStatus::failed;
  }

 private:
  // between: before a call or the end. head: the text of a call before the separator. fence: the text between the separator and the
  // arguments.
  enum class State : std::uint8_t { between, head, fence, arguments, closing };

  ByteStatus enter(State state) {
    state_ = state;
    read_.clear();
    return ByteStatus::more;
  }
  ByteStatus push_delimiter(char byte) {
    if (read_.empty() && is_blank(byte)) return ByteStatus::more;
    read_ += byte;
    if (read_ == delimiters_.end) return ByteStatus::complete;
    if (read_ == delimiters_.call) return enter(State::head);
    return delimiters_.end.starts_with(read_) || delimiters_.call.starts_with(read_) ? ByteStatus::more : ByteStatus::failed;
  }
  ByteStatus push_head(char byte) {
    read_ += byte;
    if (read_.size() > kMaxHeadBytes) return ByteStatus::failed;
    if (!read_.ends_with(delimiters_.separator)) return ByteStatus::more;
    name_ = read_.substr(0, read_.size() - delimiters_.separator.size());
    return enter(State::fence);
  }
  // Reads the text before the arguments. R1 writes "function" in the head, and the function's name here, on a separate line.
  ByteStatus push_fence(char byte) {
    read_ += byte;
    return read_.size() > kMaxHeadBytes ? ByteStatus::failed : ByteStatus::more;
  }
  bool take_name() {
    const std::size_t line = read_.find('\n');
    if (line != std::string::npos && read_.find_first_not_of(" \n\t\r") < line) {
      name_ = read_.substr(0, line);
      read_.erase(0, line);
    }
    const std::size_t first = read_.find_first_not_of(" \n\t\r");
    if (first != std::string::npos && read_.substr(first, read_.find_last_not_of(" \n\t\r") + 1 - first) != kFence) return false;
    // Kimi's head has the form "functions.name:0".
    if (style_ == CallStyle::kimi) {
      if (name_.starts_with("functions.")) name_.erase(0, std::string_view("functions.").size());
      name_.resize(std::min(name_.rfind(':'), name_.size()));
    }
    return !name_.empty();
  }
  ByteStatus begin_call(char byte, CallWriter& out) {
    if (!take_name()) return ByteStatus::failed;
    out.begin(name_);
    object_ = JsonObject();
    state_ = State::arguments;
    return push_arguments(byte, out);
  }
  ByteStatus push_arguments(char byte, CallWriter& out) {
    const JsonState state = object_.push(byte);
    if (state == JsonState::bad) return ByteStatus::failed;
    out.arguments({&byte, 1});
    if (state == JsonState::open) return ByteStatus::more;
    out.end();
    return enter(State::closing);
  }
  ByteStatus push_closing(char byte) {
    if (read_.empty() && (is_blank(byte) || byte == '`')) return ByteStatus::more;
    read_ += byte;
    if (read_ == delimiters_.call_end) {
      enter(State::between);
      return ByteStatus::settled;
    }
    return delimiters_.call_end.starts_with(read_) ? ByteStatus::more : ByteStatus::failed;
  }

  CallStyle style_;
  SectionDelimiters delimiters_;
  State state_ = State::between;
  std::string read_, name_;
  JsonObject object_;
};

}  // namespace

std::unique_ptr<CallReader> make_section_reader(const CallFormat& format) {
  return std::make_unique<SectionReader>(format);
}

}  // namespace quire
