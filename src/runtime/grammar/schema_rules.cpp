// Reads the settings of a schema, and replaces the schemas inside a grammar. Grammars come from clients: only text that is certainly a
// schema is replaced.
#include "runtime/grammar/schema_rules.h"

#include <algorithm>
#include <boost/json/object.hpp>
#include <boost/json/stream_parser.hpp>
#include <string_view>

#include "runtime/grammar/schema_compiler.h"

namespace quire {
namespace {

namespace json = boost::json;

// Returns a client's regular expression with escaped slashes, as it must stand between the slashes of a Lark terminal.
std::string between_slashes(std::string_view regex) {
  std::string text;
  bool is_escaped = false;
  for (const char c : regex) {
    if (c == '/' && !is_escaped) text += '\\';
    is_escaped = c == '\\' && !is_escaped;
    text += c == '\n' ? "\\n" : std::string(1, c);
  }
  return text;
}

// Returns the length of the string, regular expression or comment at the beginning of `text`.
std::size_t size_of_quoted(std::string_view text) {
  const char quote = text.front();
  if (quote == '#' || text.starts_with("//")) return std::min(text.find('\n'), text.size());
  std::size_t at = 1;
  while (at < text.size() && text[at] != quote) at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

}  // namespace

SchemaSettings settings_of(const json::value& schema) {
  SchemaSettings settings{.white_space = kFreeWhiteSpace};
  const json::value* given = schema.is_object() ? schema.get_object().if_contains("x-guidance") : nullptr;
  if (given == nullptr || !given->is_object()) return settings;
  for (const auto& [name, value] : given->get_object()) {
    if ((name == "lenient" || name == "coerce_one_of") && value == json::value(true)) settings.is_loose = true;
    if (name == "whitespace_flexible" && value == json::value(false)) settings.white_space.clear();
    if (!value.is_string()) continue;
    if (name == "whitespace_pattern") settings.white_space = between_slashes(value.get_string());
    if (name == "item_separator") settings.item_separator = between_slashes(value.get_string());
    if (name == "key_separator") settings.key_separator = between_slashes(value.get_string());
  }
  return settings;
}

bool needs_library_compiler(const json::value& schema) {
  const json::value* given = schema.is_object() ? schema.get_object().if_contains("x-guidance") : nullptr;
  return given != nullptr && given->is_object() &&
         (given->get_object().contains("json_allowed_escapes") || given->get_object().contains("json_allow_general_unicode_escapes"));
}

Result<std::string> grammar_of_schema(const json::value& schema) {
  return SchemaCompiler(schema).make();
}

Result<std::string> with_schema_rules(const std::string& lark) {
  constexpr std::string_view kJson = "%json";
  std::string out;
  std::string_view rest = lark;
  while (!rest.empty()) {
    const std::size_t at = std::min(rest.find_first_of("\"/#%"), rest.size());
    out += rest.substr(0, at);
    rest.remove_prefix(at);
    if (rest.empty()) break;
    if (rest.front() != '%') {
      const std::size_t size = size_of_quoted(rest);
      out += rest.substr(0, size);
      rest.remove_prefix(size);
      continue;
    }
    const std::size_t word = std::min(rest.find_first_of(" \t\n{[\"", 1), rest.size());
    const std::string_view name = rest.substr(0, word);
    if (name != kJson && name != "%llguidance" && name != "%regex") {
      out += name;
      rest.remove_prefix(word);
      continue;
    }
    json::stream_parser parser({}, {.max_depth = 256});
    boost::system::error_code failed;
    std::size_t size = parser.write_some(rest.data() + word, rest.size() - word, failed);
    if (failed || !parser.done()) return out + std::string(rest);  // llguidance reports the error in the schema
    const json::value value = parser.release();
    // Keeps the white space after the schema, because a line feed ends a rule.
    while (size > 0 && std::string_view(" \t\r\n").contains(rest[word + size - 1])) --size;
    if (name != kJson || needs_library_compiler(value)) {
      out += rest.substr(0, word + size);
    } else {
      const auto rules = grammar_of_schema(value);
      if (!rules) return rules;
      out += "%lark {\n" + *rules + "}";
    }
    rest.remove_prefix(word + size);
  }
  return out;
}

}  // namespace quire
