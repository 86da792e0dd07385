#include "text/tool_calls/loose_schema.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/string.hpp>
#include <string_view>
#include <utility>

namespace quire {

namespace json = boost::json;

namespace {

// Returns whether a pattern has look-around or back-references, which the Rust crate `regex` does not support.
bool looks_around(std::string_view pattern) {
  for (const std::string_view sign : {"(?=", "(?!", "(?<=", "(?<!"})
    if (pattern.find(sign) != std::string_view::npos) return true;
  for (std::size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] != '\\') continue;
    ++i;
    if (pattern[i] >= '1' && pattern[i] <= '9') return true;
  }
  return false;
}

bool is_type(const json::value& type) {
  static constexpr std::array<std::string_view, 7> kTypes{"object", "array", "string", "number", "integer", "boolean", "null"};
  if (type.is_array()) return std::ranges::all_of(type.get_array(), [](const json::value& one) { return one.is_string() && is_type(one); });
  return type.is_string() && std::ranges::find(kTypes, std::string_view(type.get_string())) != kTypes.end();
}

bool is_kept(std::string_view keyword, const json::value& value) {
  if (keyword == "pattern") return value.is_string() && !looks_around(value.get_string());
  if (keyword == "type") return is_type(value);
  if (keyword == "$ref") return value.is_string() && value.get_string().starts_with('#');
  if (keyword == "required" || keyword == "enum") return value.is_array();
  if (keyword == "properties") return value.is_object();
  return true;
}

// Loosens a subschema. A boolean stays unchanged. Any other value that is not an object becomes an empty schema.
void loosen_part(json::value& part) {
  if (part.is_object())
    loosen_schema(part);
  else if (!part.is_bool())
    part = json::object();
}

}  // namespace

json::object json_settings(bool is_loose, bool is_canonical) {
  json::object settings;
  if (is_canonical)
    settings = {{"whitespace_flexible", false}, {"item_separator", ", "}, {"key_separator", ": "}, {"json_allowed_escapes", R"(nrbtf\")"}};
  if (is_loose) settings["lenient"] = true;
  return settings;
}

void loosen_schema(json::value& schema) {
  if (!schema.is_object()) return;
  json::object kept;
  for (json::key_value_pair& field : schema.get_object()) {
    const std::string_view keyword = field.key();
    if (!is_kept(keyword, field.value())) continue;
    json::value& value = kept[keyword] = std::move(field.value());
    const bool is_named = keyword == "properties" || keyword == "$defs" || keyword == "definitions" || keyword == "patternProperties";
    const bool is_list = keyword == "anyOf" || keyword == "allOf" || keyword == "oneOf" || keyword == "prefixItems" || keyword == "items";
    if (is_named && value.is_object())
      for (json::key_value_pair& part : value.get_object()) loosen_part(part.value());
    else if (is_list && value.is_array())
      for (json::value& part : value.get_array()) loosen_part(part);
    else if (keyword == "items" || keyword == "additionalProperties")
      loosen_part(value);
  }
  schema = std::move(kept);
}

}  // namespace quire
