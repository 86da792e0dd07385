#include "server/api/ollama/closed_schema.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <initializer_list>
#include <string_view>

namespace quire {

namespace json = boost::json;

namespace {

using Names = std::initializer_list<std::string_view>;

bool has_any(const json::object& schema, Names names) {
  return std::ranges::any_of(names, [&schema](std::string_view name) { return schema.contains(name); });
}

// Returns whether a part of the schema combines several schemas for one object. Each of them would forbid the properties of the others.
bool combines_schemas(const json::value& schema) {
  if (schema.is_array()) return std::ranges::any_of(schema.get_array(), combines_schemas);
  const json::object* const fields = schema.if_object();
  if (fields == nullptr) return false;
  const json::value* const all = fields->if_contains("allOf");
  if (all != nullptr && all->is_array() && all->get_array().size() > 1) return true;
  if (fields->contains("properties") && has_any(*fields, {"allOf", "anyOf", "oneOf", "$ref", "if"})) return true;
  return std::ranges::any_of(*fields, [](const json::key_value_pair& field) { return combines_schemas(field.value()); });
}

void close_parts(json::value& schema) {
  json::object* const fields = schema.if_object();
  if (fields == nullptr) return;
  for (const std::string_view named : {"properties", "$defs", "definitions"})
    if (json::value* parts = fields->if_contains(named); parts != nullptr && parts->is_object())
      for (json::key_value_pair& part : parts->get_object()) close_parts(part.value());
  for (const std::string_view listed : {"allOf", "anyOf", "oneOf", "prefixItems"})
    if (json::value* parts = fields->if_contains(listed); parts != nullptr && parts->is_array())
      for (json::value& part : parts->get_array()) close_parts(part);
  if (json::value* items = fields->if_contains("items")) close_parts(*items);
  if (fields->contains("properties") && !has_any(*fields, {"additionalProperties", "patternProperties", "unevaluatedProperties"}))
    fields->emplace("additionalProperties", false);
}

}  // namespace

void close_objects(json::value& schema) {
  if (!combines_schemas(schema)) close_parts(schema);
}

}  // namespace quire
