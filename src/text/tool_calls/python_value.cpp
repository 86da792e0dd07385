// Converts a Python literal to JSON while its bytes arrive. Used by the pythonic, xml and glm readers, on one thread at a time. Writes only
// text that later bytes cannot change, so an incomplete value needs no correction.
#include "text/tool_calls/python_value.h"

#include <boost/json/parse.hpp>
#include <charconv>
#include <utility>

#include "base/append_format.h"
#include "text/tool_calls/call_reader.h"

namespace quire {
namespace {

constexpr std::size_t kMaxNesting = 64;
constexpr std::size_t kMaxWordBytes = 64;
constexpr std::uint32_t kNoCharacter = 0xFFFD;

void append_code_unit(std::string& out, std::uint32_t unit) {
  append_format(out, "\\u{:04x}", unit);
}

bool is_json_number(std::string_view word) {
  boost::json::error_code code;
  const boost::json::value value = boost::json::parse(word, code);
  return !code && value.is_number();
}

// Returns the JSON spelling of a word, or an empty text if no value is spelled like this.
std::string json_word(std::string_view word) {
  if (word == "True" || word == "true") return "true";
  if (word == "False" || word == "false") return "false";
  if (word == "None" || word == "null") return "null";
  if (word.starts_with('+')) word.remove_prefix(1);
  return is_json_number(word) ? std::string(word) : std::string();
}

}  // namespace

PythonValue::State PythonValue::push(char byte, std::string& json) {
  switch (at_) {
    case At::value:
      return push_value(byte, json);
    case At::text:
      return push_text(byte, json);
    case At::escape:
      return push_escape(byte, json);
    case At::code:
      return push_code(byte, json);
    case At::word:
      return push_word(byte, json);
    case At::after_value:
      return push_after_value(byte, json);
  }
  return State::bad;
}

// Writes the comma before the next value. It is not written earlier, because Python allows a comma after the last value.
void PythonValue::separate(std::string& json) {
  if (needs_comma_) json += ", ";
  needs_comma_ = is_empty_ = false;
}

PythonValue::State PythonValue::push_value(char byte, std::string& json) {
  if (is_blank(byte)) return State::open;
  if (byte == ']' || byte == ')' || byte == '}') return is_empty_ ? close(byte, json) : State::bad;
  separate(json);
  if (byte == '\'' || byte == '"') {
    quote_ = byte;
    json += '"';
    at_ = At::text;
    return State::open;
  }
  if (is_key_) return State::bad;
  if (byte != '[' && byte != '(' && byte != '{') {
    at_ = At::word;
    word_.clear();
    return push_word(byte, json);
  }
  if (nest_.size() == kMaxNesting) return State::bad;
  nest_ += byte;
  is_empty_ = true;
  is_key_ = byte == '{';
  json += byte == '{' ? '{' : '[';
  return State::open;
}

// Replaces half of a surrogate pair by U+FFFD if the other half does not follow.
void PythonValue::drop_half(std::string& json) {
  if (std::exchange(half_, 0) != 0) append_code_unit(json, kNoCharacter);
}

PythonValue::State PythonValue::push_text(char byte, std::string& json) {
  if (byte != '\\') drop_half(json);
  if (byte == '\\') {
    at_ = At::escape;
  } else if (byte == quote_) {
    json += '"';
    at_ = At::after_value;
  } else if (byte == '"') {
    json += "\\\"";
  } else if (static_cast<unsigned char>(byte) < 0x20) {
    append_code_unit(json, static_cast<unsigned char>(byte));
  } else {
    json += byte;
  }
  return State::open;
}

PythonValue::State PythonValue::push_escape(char byte, std::string& json) {
  at_ = At::text;
  if (byte != 'u') drop_half(json);
  static constexpr std::string_view kSame = "\\\"/nrtbf";
  if (byte == 'x' || byte == 'u' || byte == 'U') {
    at_ = At::code;
    code_digits_ = byte == 'x' ? 2 : (byte == 'u' ? 4 : 8);
    word_.clear();
  } else if (byte == '\'') {
    json += '\'';
  } else if (byte == '\n') {
    return State::open;  // a backslash before a line feed continues the line
  } else if (byte == 'a' || byte == 'v' || byte == '0') {
    append_code_unit(json, byte == 'a' ? 7 : (byte == 'v' ? 11 : 0));
  } else if (kSame.find(byte) != std::string_view::npos) {
    json += '\\';
    json += byte;
  } else {
    // This is no escape, so the backslash stays, as in Python.
    json += "\\\\";
    return push_text(byte, json);
  }
  return State::open;
}

PythonValue::State PythonValue::push_code(char byte, std::string& json) {
  word_ += byte;
  if (word_.size() < code_digits_) return State::open;
  std::uint32_t code = 0;
  const auto read = std::from_chars(word_.data(), word_.data() + word_.size(), code, 16);
  if (read.ec != std::errc() || read.ptr != word_.data() + word_.size() || code > 0x10FFFF) return State::bad;
  const bool is_low = code >= 0xDC00 && code < 0xE000;
  if (!is_low) drop_half(json);
  if (code > 0xFFFF) {
    append_code_unit(json, 0xD800 + ((code - 0x10000) >> 10));
    code = 0xDC00 + ((code - 0x10000) & 0x3FF);
  } else if (code >= 0xD800 && code < 0xDC00) {
    half_ = code;
    code = 0;
  } else if (is_low) {
    if (half_ == 0) code = kNoCharacter;
    if (half_ != 0) append_code_unit(json, std::exchange(half_, 0));
  }
  if (half_ == 0) append_code_unit(json, code);
  at_ = At::text;
  return State::open;
}

PythonValue::State PythonValue::push_word(char byte, std::string& json) {
  static constexpr std::string_view kEnds = " \n\t\r,:)]}";
  if (kEnds.find(byte) == std::string_view::npos) {
    word_ += byte;
    return word_.size() > kMaxWordBytes ? State::bad : State::open;
  }
  const std::string word = json_word(word_);
  if (word.empty()) return State::bad;
  json += word;
  at_ = At::after_value;
  return push_after_value(byte, json);
}

PythonValue::State PythonValue::push_after_value(char byte, std::string& json) {
  if (is_blank(byte)) return State::open;
  if (is_key_) {
    if (byte != ':') return State::bad;
    json += ": ";
    is_key_ = false;
    at_ = At::value;
    return State::open;
  }
  if (nest_.empty()) return byte == ',' || byte == ')' ? State::whole : State::bad;
  if (byte != ',') return close(byte, json);
  needs_comma_ = is_empty_ = true;
  is_key_ = nest_.back() == '{';
  at_ = At::value;
  return State::open;
}

PythonValue::State PythonValue::close(char byte, std::string& json) {
  const char open = nest_.empty() ? '\0' : nest_.back();
  const bool fits = (byte == ']' && open == '[') || (byte == ')' && open == '(') || (byte == '}' && open == '{');
  if (!fits) return State::bad;
  nest_.pop_back();
  json += open == '{' ? '}' : ']';
  needs_comma_ = is_empty_ = is_key_ = false;
  at_ = At::after_value;
  return State::open;
}

}  // namespace quire
