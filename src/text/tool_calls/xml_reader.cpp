// Reads calls of Qwen3-Coder and Seed-OSS: <function=name>; for each argument <parameter=key>, its value as plain text, and </parameter>;
// then </function>. The tool's schema determines the type of a value, so a value is written only after its end tag. AnswerParser uses a
// reader on one thread at a time.
#include <string>

#include "base/json_writer.h"
#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/tagged_value.h"

namespace quire {
namespace {

constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr std::size_t kMaxTagBytes = 256;

class XmlReader final : public CallReader {
 public:
  XmlReader(const CallFormat& format, const std::vector<Tool>& tools) : close_(format.close), is_tight_(format.is_tight), tools_(&tools) {}

  void begin() override { enter(State::function); }

  ByteStatus push(char byte, CallWriter& out) override {
    switch (state_) {
      case State::function:
        return push_tag(byte, kFunction, {}, State::name);
      case State::name:
        return byte == '>' ? begin_call(out) : push_word(byte);
      case State::inside:
        return push_inside(byte, out);
      case State::key:
        return byte == '>' ? begin_value() : push_word(byte);
      case State::value:
        return push_value(byte, out);
      case State::closing:
        return push_tag(byte, close_, {}, State::function);
    }
    return ByteStatus::failed;
  }

 private:
  // function: before the function's tag. inside: before an argument or the end of the function. closing: before the delimiter that ends the
  // call.
  enum class State : std::uint8_t { function, name, inside, key, value, closing };

  ByteStatus enter(State state) {
    state_ = state;
    word_.clear();
    return ByteStatus::more;
  }
  // Reads white space and then the tag `tag` or `other`. Enters the state `next` after `tag`.
  ByteStatus push_tag(char byte, std::string_view tag, std::string_view other, State next) {
    if (word_.empty() && is_blank(byte)) return ByteStatus::more;
    word_ += byte;
    if (word_ == tag) return state_ == State::closing ? ByteStatus::complete : enter(next);
    return tag.starts_with(word_) || other.starts_with(word_) ? ByteStatus::more : ByteStatus::failed;
  }
  ByteStatus push_word(char byte) {
    word_ += byte;
    return byte == '\n' || byte == '<' || word_.size() > kMaxTagBytes ? ByteStatus::failed : ByteStatus::more;
  }
  ByteStatus begin_call(CallWriter& out) {
    if (word_.empty()) return ByteStatus::failed;
    out.begin(word_);
    out.arguments("{");
    tool_ = find_tool(*tools_, word_);
    is_first_ = true;
    return enter(State::inside);
  }
  ByteStatus push_inside(char byte, CallWriter& out) {
    const ByteStatus taken = push_tag(byte, kParameter, kFunctionEnd, State::key);
    if (word_ != kFunctionEnd) return taken;
    out.arguments("}");
    out.end();
    return enter(State::closing);
  }
  ByteStatus begin_value() {
    if (word_.empty()) return ByteStatus::failed;
    key_ = word_;
    return enter(State::value);
  }
  ByteStatus push_value(char byte, CallWriter& out) {
    word_ += byte;
    if (byte != '>' || !word_.ends_with(kParameterEnd)) return ByteStatus::more;
    std::string_view text(word_.data(), word_.size() - kParameterEnd.size());
    if (!is_tight_ && text.starts_with('\n')) text.remove_prefix(1);
    if (!is_tight_ && text.ends_with('\n')) text.remove_suffix(1);
    std::string argument = is_first_ ? "" : ", ";
    append_json_string(argument, key_);
    out.arguments(argument + ": " + tagged_value(text, schema_of_argument(tool_, key_)));
    is_first_ = false;
    return enter(State::inside);
  }

  std::string_view close_;
  bool is_tight_;
  const std::vector<Tool>* tools_;
  State state_ = State::function;
  const Tool* tool_ = nullptr;  // null: the request has no tool with this name
  bool is_first_ = true;
  std::string word_, key_;
};

}  // namespace

std::unique_ptr<CallReader> make_xml_reader(const CallFormat& format, const std::vector<Tool>& tools) {
  return std::make_unique<XmlReader>(format, tools);
}

std::unique_ptr<CallReader> make_call_reader(const CallFormat& format, const std::vector<Tool>& tools) {
  switch (format.style) {
    case CallStyle::plain:
    case CallStyle::llama:
    case CallStyle::marked:
      return make_json_reader(format, tools);
    case CallStyle::mistral:
    case CallStyle::mistral_v11:
      return make_mistral_reader();
    case CallStyle::deepseek:
    case CallStyle::deepseek_v31:
    case CallStyle::kimi:
      return make_section_reader(format);
    case CallStyle::pythonic:
      return make_pythonic_reader(format, tools);
    case CallStyle::xml:
      return make_xml_reader(format, tools);
    case CallStyle::glm:
      return make_glm_reader(format, tools);
    case CallStyle::harmony:  // has a separate parser
      break;
  }
  return make_json_reader(format, tools);
}

}  // namespace quire
