#pragma once
// Writes JSON directly into a string, without a tree of values, because streams write thousands of small objects per second.
#include <charconv>
#include <concepts>
#include <cstddef>
#include <optional>
#include <ranges>
#include <string>
#include <string_view>

namespace quire {

// Appends `text` (valid UTF-8). Escapes only the characters that JSON requires, in the form of Python's json.dumps.
void append_json_escaped(std::string& out, std::string_view text);
// Appends the escaped text in quotes.
void append_json_string(std::string& out, std::string_view text);
[[nodiscard]] std::string json_string(std::string_view text);
// Appends the shortest text that reads back as the same float. Infinities and NaN become -9999, as vLLM sends them.
void append_json_float(std::string& out, float value);

// Appends values to a string, with a comma between two values. The writer has no state except the string, whose last character shows
// whether a comma is needed. Several writers can therefore write to one string in turn, and text before the first value (such as "data: ")
// is allowed. The caller must close each object and array that it has begun.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(&out) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& begin_object(std::string_view name) { return key(name).open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& begin_array(std::string_view name) { return key(name).open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  // Appends text, a number, a bool, nullptr, an optional value (null if empty) or a range of these. A double is written as the shortest
  // text that reads back as the same double; infinities and NaN become null.
  template <class Value>
  JsonWriter& value(const Value& value) {
    if constexpr (std::convertible_to<const Value&, std::string_view>)
      return text(value);
    else if constexpr (std::same_as<Value, std::nullptr_t>)
      return raw("null");
    else if constexpr (std::same_as<Value, bool>)
      return raw(value ? "true" : "false");
    else if constexpr (std::floating_point<Value>)
      return number(value);
    else if constexpr (std::integral<Value>)
      return integer(value);
    else if constexpr (std::ranges::range<Value>)
      return array(value);
    else
      return value ? this->value(*value) : raw("null");
  }
  template <class Value>
  JsonWriter& field(std::string_view name, const Value& value) {
    return key(name).value(value);
  }
  // Appends JSON text: one value, or several with commas between them. Appends nothing if `json` is empty.
  JsonWriter& raw(std::string_view json);
  JsonWriter& raw_field(std::string_view name, std::string_view json) { return key(name).raw(json); }
  // Appends a field with a number that has `digits` digits after the decimal point.
  JsonWriter& fixed_field(std::string_view name, double value, int digits);

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& text(std::string_view text);
  JsonWriter& number(float value);
  JsonWriter& number(double value);
  JsonWriter& integer(std::integral auto value) {
    char digits[24];
    return raw({digits, std::to_chars(digits, digits + sizeof digits, value).ptr});
  }
  template <class Range>
  JsonWriter& array(const Range& range) {
    begin_array();
    for (const auto& one : range) value(one);
    return end_array();
  }
  void add_comma();

  std::string* out_;
};

// Returns nullopt for an empty text, which JsonWriter writes as null.
[[nodiscard]] inline std::optional<std::string_view> unless_empty(std::string_view text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

// Returns a JSON object. `write(json)` must write its fields.
template <class Write>
[[nodiscard]] std::string json_object(Write write) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write(json);
  json.end_object();
  return out;
}

}  // namespace quire
