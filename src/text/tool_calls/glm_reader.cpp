// Reads calls of GLM-4.5 and later: the tool's name, <arg_key>key</arg_key> and <arg_value>value</arg_value> for each argument, then the
// closing delimiter. White space may separate them. The tool's schema determines the type of a value, so a value is written only after its
// end tag. AnswerParser uses a reader on one thread at a time.
#include <algorithm>
#include <string>

#include "base/json_writer.h"
#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/tagged_value.h"

namespace quire {
namespace {

constexpr std::size_t kMaxHeadBytesOfTags = 256;

class GlmReader final : public CallReader {
 public:
  GlmReader(const CallFormat& format, const std::vector<Tool>& tools) : close_(format.close), tools_(&tools) {}

  void begin() override {
    enter(State::name);
    name_.clear();
  }

  ByteStatus push(char byte, CallWriter& out) override {
    switch (state_) {
      case State::name:
        return push_name(byte);
      case State::inside:
        return push_inside(byte, out);
      case State::key:
        return push_key(byte);
      case State::between:
        return push_tag(byte, kArgValue) == ByteStatus::settled ? enter(State::value) : taken_;
      case State::value:
        return push_value(byte, out);
    }
    return ByteStatus::failed;
  }

 private:
  // inside: before an argument or the end of the call. between: between a key and its value. The call begins at its first argument, or at
  // its end if it has no arguments.
  enum class State : std::uint8_t { name, inside, key, between, value };

  ByteStatus enter(State state) {
    state_ = state;
    word_.clear();
    return ByteStatus::more;
  }
  ByteStatus push_name(char byte) {
    static constexpr std::string_view kOthers = "_-.:/";
    const bool is_letter = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') || (byte >= '0' && byte <= '9');
    if (is_letter || kOthers.find(byte) != std::string_view::npos) {
      name_ += byte;
      return name_.size() > kMaxHeadBytesOfTags ? ByteStatus::failed : ByteStatus::more;
    }
    if (is_blank(byte) && name_.empty()) return ByteStatus::more;
    if (name_.empty() || !(is_blank(byte) || byte == '<')) return ByteStatus::failed;
    has_begun_ = false;
    enter(State::inside);
    if (byte == '<') word_ = byte;
    return ByteStatus::more;
  }
  // Reads white space and then the tag `tag` or `other`. Returns `settled` when the tag is complete. Otherwise returns `taken_`, the status
  // of the byte.
  ByteStatus push_tag(char byte, std::string_view tag, std::string_view other = {}) {
    taken_ = ByteStatus::more;
    if (word_.empty() && is_blank(byte)) return taken_;
    word_ += byte;
    if (word_ == tag || word_ == other) return ByteStatus::settled;
    if (!tag.starts_with(word_) && !other.starts_with(word_)) taken_ = ByteStatus::failed;
    return taken_;
  }
  ByteStatus push_inside(char byte, CallWriter& out) {
    if (push_tag(byte, kArgKey, close_) != ByteStatus::settled) return taken_;
    const bool ends = word_ == close_;
    // A name without arguments may be text that only mentions the delimiters, so it must be the name of a tool.
    if (ends && !has_begun_ && find_tool(*tools_, name_) == nullptr) return ByteStatus::failed;
    if (!has_begun_) begin_call(out);
    if (!ends) return enter(State::key);
    out.arguments("}");
    out.end();
    return ByteStatus::complete;
  }
  void begin_call(CallWriter& out) {
    has_begun_ = is_first_ = true;
    tool_ = find_tool(*tools_, name_);
    out.begin(name_);
    out.arguments("{");
  }
  ByteStatus push_key(char byte) {
    word_ += byte;
    if (word_.size() > kMaxHeadBytesOfTags) return ByteStatus::failed;
    if (!word_.ends_with(kArgKeyEnd)) return ByteStatus::more;
    key_ = word_.substr(0, word_.size() - kArgKeyEnd.size());
    return enter(State::between);
  }
  ByteStatus push_value(char byte, CallWriter& out) {
    word_ += byte;
    if (byte != '>' || !word_.ends_with(kArgValueEnd)) return ByteStatus::more;
    const std::string_view text(word_.data(), word_.size() - kArgValueEnd.size());
    std::string argument = is_first_ ? "" : ", ";
    append_json_string(argument, key_);
    out.arguments(argument + ": " + tagged_value(text, schema_of_argument(tool_, key_)));
    is_first_ = false;
    return enter(State::inside);
  }

  std::string_view close_;
  const std::vector<Tool>* tools_;
  State state_ = State::name;
  ByteStatus taken_ = ByteStatus::more;
  const Tool* tool_ = nullptr;  // null: the request has no tool with this name
  bool has_begun_ = false, is_first_ = true;
  std::string name_, key_, word_;
};

}  // namespace

std::unique_ptr<CallReader> make_glm_reader(const CallFormat& format, const std::vector<Tool>& tools) {
  return std::make_unique<GlmReader>(format, tools);
}

}  // namespace quire
