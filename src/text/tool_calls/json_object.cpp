// Reads JSON byte by byte with Boost's push parser. Used by the readers of calls and by the server, on one thread at a time. Rejects text
// that is not JSON as early as possible, because the client does not see the text until then.
#include "text/tool_calls/json_object.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <limits>
#include <utility>

#include "text/tool_calls/call_reader.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::size_t kMaxCallDepth = 64;
constexpr std::size_t kMaxEscapeBytes = 12;  // the length of an escaped surrogate pair

json::parse_options call_options() {
  json::parse_options options;
  options.max_depth = kMaxCallDepth;
  return options;
}

// Receives a document from Boost's parser without storing it. If a function returns false, parsing stops.
struct QuietHandler {
  static constexpr std::size_t max_object_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_array_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_key_size = std::numeric_limits<std::size_t>::max();
  static constexpr std::size_t max_string_size = std::numeric_limits<std::size_t>::max();
  using Code = json::error_code;
  using Text = json::string_view;

  std::size_t depth = 0;
  bool is_whole = false;

  // The handlers below override these functions. Boost's parser calls one of them per value, but passes a text in several parts.
  virtual bool value(Code& /*code*/) { return true; }
  virtual bool open(char /*bracket*/) { return true; }
  virtual bool close() { return true; }
  virtual bool text(Text /*part*/, bool /*is_key*/, bool /*last*/) { return true; }
  virtual ~QuietHandler() = default;

  bool on_document_begin(Code& /*code*/) { return true; }
  bool on_document_end(Code& /*code*/) { return true; }
  bool enter(char bracket, Code& code) {
    ++depth;
    return accept(open(bracket), code);
  }
  bool leave(Code& code) {
    --depth;
    is_whole = depth == 0;
    return accept(close(), code);
  }
  static bool accept(bool good, Code& code) {
    if (!good) code = json::error::syntax;
    return good;
  }
  bool on_object_begin(Code& code) { return enter('{', code); }
  bool on_object_end(std::size_t /*n*/, Code& code) { return leave(code); }
  bool on_array_begin(Code& code) { return enter('[', code); }
  bool on_array_end(std::size_t /*n*/, Code& code) { return leave(code); }
  bool on_key_part(Text part, std::size_t /*n*/, Code& code) { return accept(text(part, true, false), code); }
  bool on_key(Text part, std::size_t /*n*/, Code& code) { return accept(text(part, true, true), code); }
  bool on_string_part(Text part, std::size_t /*n*/, Code& code) { return accept(text(part, false, false), code); }
  bool on_string(Text part, std::size_t /*n*/, Code& code) { return accept(text(part, false, true), code); }
  bool on_number_part(Text /*part*/, Code& /*code*/) { return true; }
  bool on_int64(std::int64_t /*number*/, Text /*part*/, Code& code) { return accept(value(code), code); }
  bool on_uint64(std::uint64_t /*number*/, Text /*part*/, Code& code) { return accept(value(code), code); }
  bool on_double(double /*number*/, Text /*part*/, Code& code) { return accept(value(code), code); }
  bool on_bool(bool /*yes*/, Code& code) { return accept(value(code), code); }
  bool on_null(Code& code) { return accept(null(), code); }
  virtual bool null() { return true; }
  bool on_comment_part(Text /*part*/, Code& /*code*/) { return true; }
  bool on_comment(Text /*part*/, Code& /*code*/) { return true; }
};

// Collects the name and the arguments of a call. Depth 1 is the call itself.
struct CallHandler final : QuietHandler {
  enum class Field : std::uint8_t { other, name, arguments };
  Field field = Field::other;
  bool only_known = false;
  std::string key;
  std::string name;
  bool has_name = false;
  bool has_arguments = false;
  bool in_arguments = false;  // the position is inside the object of the arguments
  std::string quoted;         // arguments that the model wrote as a string

  bool value(Code& /*code*/) override { return depth != 1 || field == Field::other; }
  bool null() override { return depth != 1 || field != Field::name; }
  bool open(char bracket) override {
    if (depth != 2 || field == Field::other) return depth > 1 || bracket == '{';
    in_arguments = true;
    return field == Field::arguments && bracket == '{';
  }
  bool close() override {
    if (depth == 1) in_arguments = false;
    return true;
  }
  bool text(Text part, bool is_key, bool last) override {
    if (depth != 1) return true;
    if (is_key) {
      key += std::string_view(part.data(), part.size());
      return !last || take_key();
    }
    if (field == Field::name) add(name, part);
    if (field == Field::arguments) add(quoted, part);
    return true;
  }
  static void add(std::string& to, Text part) { to.append(part.data(), part.size()); }

  bool take_key() {
    const std::string taken = std::exchange(key, {});
    if (taken == "name") {
      field = Field::name;
      return !std::exchange(has_name, true);
    }
    if (taken == "arguments" || taken == "parameters") {
      field = Field::arguments;
      return !std::exchange(has_arguments, true);
    }
    field = Field::other;
    return !only_known || taken == "id" || taken == "type";
  }
};

// Finds the positions at which the text of an object can be closed: after an opening bracket or after a value.
class CloseHandler final : public QuietHandler {
 public:
  std::string open_brackets;
  bool is_value_whole = false;  // the last byte ended a value or opened its brackets

  bool value(Code& /*code*/) override { return is_value_whole = true; }
  bool null() override { return is_value_whole = true; }
  bool open(char bracket) override {
    open_brackets += bracket;
    return is_value_whole = true;
  }
  bool close() override {
    open_brackets.pop_back();
    return is_value_whole = true;
  }
  bool text(Text /*part*/, bool is_key, bool last) override {
    is_value_whole = !is_key && last;
    return true;
  }
};

template <class Parser>
bool push_byte(Parser& parser, char byte) {
  json::error_code code;
  parser.write_some(true, &byte, 1, code);
  return !code;
}

}  // namespace

struct JsonObject::Parser {
  json::basic_parser<QuietHandler> bytes{call_options()};
  bool is_first = true;
};

JsonObject::JsonObject() : parser_(std::make_unique<Parser>()) {}
JsonObject::~JsonObject() = default;
JsonObject::JsonObject(JsonObject&&) noexcept = default;
JsonObject& JsonObject::operator=(JsonObject&&) noexcept = default;

JsonState JsonObject::push(char byte) {
  if (std::exchange(parser_->is_first, false) && byte != '{') return JsonState::bad;
  if (!push_byte(parser_->bytes, byte)) return JsonState::bad;
  return parser_->bytes.handler().is_whole ? JsonState::whole : JsonState::open;
}

struct JsonCall::Parser {
  json::basic_parser<CallHandler> bytes{call_options()};
};

JsonCall::JsonCall(const std::vector<Tool>* tools) : parser_(std::make_unique<Parser>()), tools_(tools) {
  parser_->bytes.handler().only_known = tools != nullptr;
}
JsonCall::~JsonCall() = default;
JsonCall::JsonCall(JsonCall&&) noexcept = default;
JsonCall& JsonCall::operator=(JsonCall&&) noexcept = default;

bool JsonCall::begin(CallWriter& out) {
  const std::string& name = parser_->bytes.handler().name;
  if (name.empty() || (tools_ != nullptr && find_tool(*tools_, name) == nullptr)) return false;
  out.begin(name);
  if (!early_.empty()) out.arguments(std::exchange(early_, {}));
  begun_ = true;
  return true;
}

bool JsonCall::end(CallWriter& out) {
  const CallHandler& fields = parser_->bytes.handler();
  if (!fields.has_name) return false;
  if (!fields.quoted.empty()) {
    json::error_code code;
    const json::value arguments = json::parse(fields.quoted, code, {}, call_options());
    if (code || !arguments.is_object()) return false;
    early_ = fields.quoted;
  }
  if (!begun_ && early_.empty()) early_ = "{}";
  if (!begun_ && !begin(out)) return false;
  out.end();
  return true;
}

JsonState JsonCall::push(char byte, CallWriter& out) {
  const CallHandler& fields = parser_->bytes.handler();
  const bool was_within = fields.in_arguments;
  if (!push_byte(parser_->bytes, byte)) return JsonState::bad;
  if (fields.is_whole) return end(out) ? JsonState::whole : JsonState::bad;
  if (!was_within && !fields.in_arguments) return JsonState::open;
  // If a name has begun, it is complete here, because the arguments cannot begin within the name.
  if (!begun_ && fields.has_name && !begin(out)) return JsonState::bad;
  if (begun_)
    out.arguments({&byte, 1});
  else
    early_ += byte;
  return JsonState::open;
}

std::optional<std::string> complete_object(std::string_view begun, UnterminatedString unterminated) {
  const auto whole = [](std::string text) -> std::optional<std::string> {
    json::error_code code;
    const json::value value = json::parse(text, code, {}, call_options());
    return !code && value.is_object() ? std::optional(std::move(text)) : std::nullopt;
  };
  const auto closed = [](std::string_view text, std::string_view brackets) {
    std::string out(text);
    for (std::size_t i = brackets.size(); i > 0; --i) out += brackets[i - 1] == '{' ? '}' : ']';
    return out;
  };
  json::basic_parser<CloseHandler> parser{call_options()};
  CloseHandler& handler = parser.handler();
  std::string last_whole;
  bool in_string = false, is_escaped = false;
  std::size_t string_begin = 0;
  for (std::size_t i = 0; i < begun.size(); ++i) {
    const char byte = begun[i];
    handler.is_value_whole = false;
    if (!push_byte(parser, byte)) return std::nullopt;
    if (handler.is_whole) return whole(std::string(begun));
    if (byte == '"' && !is_escaped) {
      in_string = !in_string;
      string_begin = i;
    }
    is_escaped = in_string && byte == '\\' && !is_escaped;
    // The parser recognizes the end of a number or a word only at the next byte.
    const bool is_behind = handler.is_value_whole && (byte == ',' || is_blank(byte));
    if (handler.is_value_whole) last_whole = closed(begun.substr(0, is_behind ? i : i + 1), handler.open_brackets);
  }
  if (last_whole.empty()) return std::nullopt;
  // The text may also end within an escape. Removes bytes from the end until the string is valid.
  for (std::size_t cut = 0; unterminated == UnterminatedString::closed && in_string && cut <= kMaxEscapeBytes; ++cut) {
    if (begun.size() - cut <= string_begin) break;
    if (auto object = whole(closed(std::string(begun.substr(0, begun.size() - cut)) + '"', handler.open_brackets))) return object;
  }
  return whole(std::move(last_whole));
}

}  // namespace quire
