// Qwen3-Coder's calls: <function=name>, for each argument <parameter=key>, its value as plain text, </parameter>, then </function>. What a
// value is says the tool's schema.
// Used by AnswerParser, one thread at a time. A value is given out when its end tag has come, since only then its type is known.
#include <boost/json/array.hpp>
#include <string>

#include "base/json_text.h"
#include "text/tool_calls/call_reader.h"
#include "text/tool_calls/python_value.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr std::size_t kMaxTagBytes = 256;

const json::value* field_of(const json::value* value, std::string_view name) {
  return value != nullptr && value->is_object() ? value->get_object().if_contains(name) : nullptr;
}

// Whether a schema's "type" is, or names, `type`.
bool names_type(const json::value* type, std::string_view name) {
  if (type == nullptr) return false;
  if (type->is_string()) return type->get_string() == name;
  if (!type->is_array()) return false;
  for (const json::value& one : type->get_array())
    if (one.is_string() && one.get_string() == name) return true;
  return false;
}

// The value as JSON: a Python or JSON literal, unless the schema asks for a string or the text is none.
std::string value_json(std::string_view text, const json::value* schema) {
  const json::value* type = field_of(schema, "type");
  const bool is_null = names_type(type, "null") && (text == "None" || text == "null");
  const bool may_be_other = schema != nullptr && (is_null || (type != nullptr && !names_type(type, "string")));
  std::string out;
  if (may_be_other || (type == nullptr && schema != nullptr && !schema->get_object().contains("enum"))) {
    PythonValue value;
    PythonValue::State state = PythonValue::State::open;
    for (const char byte : text)
      if (state == PythonValue::State::open) state = value.push(byte, out);
    if (state == PythonValue::State::open && value.push(',', out) == PythonValue::State::whole) return out;
  }
  return json_string(text);
}

class XmlReader final : public CallReader {
 public:
  XmlReader(const CallFormat& format, const std::vector<Tool>& tools) : close_(format.close), tools_(&tools) {}

  void begin() override { enter(State::function); }

  Taken push(char byte, CallWriter& out) override {
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
    return Taken::failed;
  }

 private:
  // function: before its tag. inside: between the arguments. closing: before the mark behind the call.
  enum class State : std::uint8_t { function, name, inside, key, value, closing };

  Taken enter(State state) {
    state_ = state;
    word_.clear();
    return Taken::more;
  }
  // White space, then a tag, or another one.
  Taken push_tag(char byte, std::string_view tag, std::string_view other, State next) {
    if (word_.empty() && is_blank(byte)) return Taken::more;
    word_ += byte;
    if (word_ == tag) return state_ == State::closing ? Taken::over : enter(next);
    return tag.starts_with(word_) || other.starts_with(word_) ? Taken::more : Taken::failed;
  }
  Taken push_word(char byte) {
    word_ += byte;
    return byte == '\n' || byte == '<' || word_.size() > kMaxTagBytes ? Taken::failed : Taken::more;
  }
  Taken begin_call(CallWriter& out) {
    if (word_.empty()) return Taken::failed;
    out.begin(word_);
    out.arguments("{");
    const Tool* tool = find_tool(*tools_, word_);
    schema_ = field_of(tool != nullptr ? &tool->parameters : nullptr, "properties");
    is_first_ = true;
    return enter(State::inside);
  }
  Taken push_inside(char byte, CallWriter& out) {
    const Taken taken = push_tag(byte, kParameter, kFunctionEnd, State::key);
    if (word_ != kFunctionEnd) return taken;
    out.arguments("}");
    out.end();
    return enter(State::closing);
  }
  Taken begin_value() {
    if (word_.empty()) return Taken::failed;
    key_ = word_;
    return enter(State::value);
  }
  Taken push_value(char byte, CallWriter& out) {
    word_ += byte;
    if (byte != '>' || !word_.ends_with(kParameterEnd)) return Taken::more;
    std::string_view text(word_.data(), word_.size() - kParameterEnd.size());
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
    std::string argument = is_first_ ? "" : ", ";
    append_json_string(argument, key_);
    out.arguments(argument + ": " + value_json(text, field_of(schema_, key_)));
    is_first_ = false;
    return enter(State::inside);
  }

  std::string_view close_;
  const std::vector<Tool>* tools_;
  State state_ = State::function;
  const json::value* schema_ = nullptr;  // of the arguments, by name
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
    case CallStyle::harmony:  // has a parser of its own
      break;
  }
  return make_json_reader(format, tools);
}

}  // namespace quire
