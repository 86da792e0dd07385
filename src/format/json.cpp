// Parses the JSON files of models, and reads their fields by path. Called while a model or an adapter is opened, and by the hub, on any
// thread. Boost.JSON does the parsing. This file adds limits on depth, size and duplicate keys, because the files are not trusted. It also
// accepts Infinity and NaN, which Python writes and Boost.JSON rejects.
#include "format/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parser.hpp>
#include <limits>
#include <optional>
#include <unordered_set>

#include "format/mapped_file.h"
#include "format/quote.h"

namespace quire {
namespace {

constexpr std::string_view kNotJson = "download the file again; it is corrupted or not JSON";

boost::json::parse_options parse_options(const JsonLimits& limits) {
  boost::json::parse_options options;
  options.max_depth = limits.max_depth;
  return options;
}

std::unexpected<Error> not_json(std::string_view name, const boost::json::error_code& code, std::size_t offset) {
  return fail(ErrorCode::corrupt, std::string(name), fmt::format("is not valid JSON near byte {}: {}", offset, code.message()),
              std::string(kNotJson));
}

// Finds duplicate keys, because Boost.JSON silently keeps the last of two equal keys. This handler of Boost's parser stores only the keys
// of each open object.
struct DuplicateFinder {
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using error_code = boost::json::error_code;
  using string_view = boost::json::string_view;

  std::vector<std::unordered_set<std::string>> open_objects;
  std::string key;
  std::string duplicate;

  bool on_document_begin(error_code&) { return true; }
  bool on_document_end(error_code&) { return true; }
  bool on_object_begin(error_code&) {
    open_objects.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, error_code&) {
    open_objects.pop_back();
    return true;
  }
  bool on_array_begin(error_code&) { return true; }
  bool on_array_end(std::size_t, error_code&) { return true; }
  bool on_key_part(string_view part, std::size_t, error_code&) {
    key.append(part.data(), part.size());
    return true;
  }
  bool on_key(string_view part, std::size_t, error_code& code) {
    key.append(part.data(), part.size());
    if (!open_objects.back().insert(key).second) {
      duplicate = key;
      code = boost::json::error::syntax;
      return false;
    }
    key.clear();
    return true;
  }
  bool on_string_part(string_view, std::size_t, error_code&) { return true; }
  bool on_string(string_view, std::size_t, error_code&) { return true; }
  bool on_number_part(string_view, error_code&) { return true; }
  bool on_int64(std::int64_t, string_view, error_code&) { return true; }
  bool on_uint64(std::uint64_t, string_view, error_code&) { return true; }
  bool on_double(double, string_view, error_code&) { return true; }
  bool on_bool(bool, error_code&) { return true; }
  bool on_null(error_code&) { return true; }
  bool on_comment_part(string_view, error_code&) { return true; }
  bool on_comment(string_view, error_code&) { return true; }
};

Result<void> check_duplicates(std::string_view text, std::string_view name, const JsonLimits& limits) {
  boost::json::basic_parser<DuplicateFinder> parser(parse_options(limits));
  boost::json::error_code code;
  (void)parser.write_some(false, text.data(), text.size(), code);
  if (parser.handler().duplicate.empty()) return {};
  return fail(ErrorCode::corrupt, std::string(name), fmt::format("the key {} occurs twice", in_quotes(parser.handler().duplicate)),
              std::string(kNotJson));
}

// A number that JSON does not have, and the placeholder string of the same length that replaces it while Boost parses the text.
// Placeholders consist of DEL characters. A text that contains DEL is never changed, so a placeholder cannot be a string of the file.
struct PythonNumber {
  std::string_view word;
  std::string_view placeholder;  // with its quotes
  double value;
};
constexpr std::array kPythonNumbers{PythonNumber{"-Infinity", "\"\x7F\x7F\x7F\x7F\x7F\x7F\x7F\"", -std::numeric_limits<double>::infinity()},
                                    PythonNumber{"Infinity", "\"\x7F\x7F\x7F\x7F\x7F\x7F\"", std::numeric_limits<double>::infinity()},
                                    PythonNumber{"NaN", "\"\x7F\"", std::numeric_limits<double>::quiet_NaN()}};

// Returns the position after the string that begins at `at`.
std::size_t end_of_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at)
    if (text[at] == '\\') ++at;
  return std::min(at + 1, text.size());
}

// Replaces Infinity, -Infinity and NaN by their placeholders. Returns nullopt if no value in the text is such a number.
std::optional<std::string> with_placeholders(std::string_view text) {
  if (text.find('\x7F') != text.npos || text.find("\\u007") != text.npos) return std::nullopt;
  std::string changed(text);
  bool is_changed = false;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = end_of_string(text, at);
      continue;
    }
    const auto* const number =
        std::ranges::find_if(kPythonNumbers, [&](const PythonNumber& one) { return text.substr(at).starts_with(one.word); });
    if (number == kPythonNumbers.end()) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    at += number->word.size();
    const std::size_t next = text.find_first_not_of(" \t\r\n", at);
    if (next != text.npos && text[next] == ':') continue;  // not a value but a key, which must be a string: left for the parser to reject
    changed.replace(begin, number->word.size(), number->placeholder);
    is_changed = true;
  }
  return is_changed ? std::optional(std::move(changed)) : std::nullopt;
}

const PythonNumber* find_number(const boost::json::value& text, bool as_placeholder) {
  const auto* string = text.if_string();
  if (string == nullptr) return nullptr;
  const std::string_view written(string->data(), string->size());
  const auto* const found = std::ranges::find_if(kPythonNumbers, [&](const PythonNumber& number) {
    return written == (as_placeholder ? number.placeholder.substr(1, number.placeholder.size() - 2) : number.word);
  });
  return found == kPythonNumbers.end() ? nullptr : found;
}

// Replaces placeholders by their numbers. Also replaces {"__float__": "Infinity"}, which transformers 5 writes
// (PreTrainedConfig._encode_special_floats). The parser's depth limit also limits this recursion.
void restore_numbers(boost::json::value& value, bool has_placeholders) {
  if (auto* object = value.if_object()) {
    const auto* tagged = object->size() == 1 ? object->if_contains("__float__") : nullptr;
    if (const PythonNumber* number = tagged ? find_number(*tagged, false) : nullptr) {
      value = number->value;
      return;
    }
    for (auto& member : *object) restore_numbers(member.value(), has_placeholders);
  } else if (auto* array = value.if_array()) {
    for (auto& element : *array) restore_numbers(element, has_placeholders);
  } else if (const PythonNumber* number = has_placeholders ? find_number(value, true) : nullptr) {
    value = number->value;
  }
}

std::string kind_name(const boost::json::value& value) {
  const auto name = boost::json::to_string(value.kind());
  return {name.data(), name.size()};
}

}  // namespace

Result<boost::json::value> parse_json(std::string_view text, std::string_view name, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return fail(ErrorCode::too_large, std::string(name),
                fmt::format("the JSON has {} bytes, more than the limit of {}", text.size(), limits.max_bytes), "use a smaller file");
  }
  const auto changed = limits.python_numbers ? with_placeholders(text) : std::nullopt;
  if (changed) text = *changed;
  boost::json::parser parser({}, parse_options(limits));
  boost::json::error_code code;
  const std::size_t used = parser.write(text.data(), text.size(), code);
  if (code) return not_json(name, code, used);
  if (limits.reject_duplicate_keys) {
    if (auto ok = check_duplicates(text, name, limits); !ok) return std::unexpected(std::move(ok.error()));
  }
  boost::json::value value = parser.release();
  if (limits.python_numbers) restore_numbers(value, changed.has_value());
  return value;
}

Result<boost::json::value> read_json_file(const std::string& path, const JsonLimits& limits) {
  auto text = read_text_file(path, limits.max_bytes);
  if (!text) return std::unexpected(std::move(text.error()));
  return parse_json(*text, path, limits);
}

JsonRef JsonRef::member(std::string_view key, const boost::json::value& value) const {
  JsonRef child(value, name_);
  child.path_ = path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
  return child;
}

JsonRef JsonRef::element(std::size_t index, const boost::json::value& value) const {
  JsonRef child(value, name_);
  child.path_ = fmt::format("{}[{}]", path_, index);
  return child;
}

std::optional<JsonRef> JsonRef::find(std::string_view key) const {
  const auto* object = value_->if_object();
  const auto* found = object ? object->if_contains(key) : nullptr;
  if (!found || found->is_null()) return std::nullopt;
  return member(key, *found);
}

bool JsonRef::is_null(std::string_view key) const {
  const auto* object = value_->if_object();
  const auto* found = object ? object->if_contains(key) : nullptr;
  return found != nullptr && found->is_null();
}

Result<JsonRef> JsonRef::at(std::string_view key) const {
  if (auto ok = object(); !ok) return std::unexpected(std::move(ok.error()));
  if (auto found = find(key)) return std::move(*found);
  return member(key, *value_).error("the field is missing");
}

Result<std::vector<JsonRef>> JsonRef::elements() const {
  const auto* array = value_->if_array();
  if (!array) return error("expected an array, found " + kind_name(*value_));
  std::vector<JsonRef> items;
  items.reserve(array->size());
  for (const auto& item : *array) items.push_back(element(items.size(), item));
  return items;
}

Result<const boost::json::object*> JsonRef::object() const {
  if (const auto* object = value_->if_object()) return object;
  return error("expected an object, found " + kind_name(*value_));
}

std::unexpected<Error> JsonRef::error(std::string message, std::string remedy) const {
  return fail(ErrorCode::corrupt, path(), std::move(message), std::move(remedy));
}

std::unexpected<Error> JsonRef::out_of_range() const {
  return error("the number is out of range");
}

template <>
Result<bool> JsonRef::as<bool>() const {
  if (const auto* flag = value_->if_bool()) return *flag;
  return error("expected true or false, found " + kind_name(*value_));
}

template <>
Result<double> JsonRef::as<double>() const {
  if (const auto* number = value_->if_double()) return *number;
  if (const auto* number = value_->if_int64()) return static_cast<double>(*number);
  if (const auto* number = value_->if_uint64()) return static_cast<double>(*number);
  return error("expected a number, found " + kind_name(*value_));
}

template <>
Result<std::string_view> JsonRef::as<std::string_view>() const {
  if (const auto* text = value_->if_string()) return std::string_view(text->data(), text->size());
  return error("expected a string, found " + kind_name(*value_));
}

Result<std::int64_t> JsonRef::as_int64() const {
  if (const auto* number = value_->if_int64()) return *number;
  if (value_->is_uint64()) return out_of_range();
  return error("expected an integer, found " + kind_name(*value_));
}

Result<std::uint64_t> JsonRef::as_uint64() const {
  if (const auto* number = value_->if_uint64()) return *number;
  if (const auto* number = value_->if_int64()) {
    if (*number < 0) return out_of_range();
    return static_cast<std::uint64_t>(*number);
  }
  return error("expected an integer, found " + kind_name(*value_));
}

}  // namespace quire
