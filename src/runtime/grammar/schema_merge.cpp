#include "runtime/grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <cmath>
#include <string>
#include <utility>

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::array<std::string_view, 6> kJsonTypes{"object", "array", "string", "number", "boolean", "null"};

bool names_type(const json::value& said, std::string_view type) {
  const auto is_it = [type](const json::value& one) {
    return one.is_string() && (one.get_string() == type || (type == "integer" && one.get_string() == "number"));
  };
  return said.is_array() ? std::ranges::any_of(said.get_array(), is_it) : is_it(said);
}

// Returns the types that two values of the keyword `type` both allow; an empty array if they allow none.
json::value common_types(const json::value& a, const json::value& b) {
  json::array both;
  for (const std::string_view type : {"object", "array", "string", "number", "integer", "boolean", "null"}) {
    if (!names_type(a, type) || !names_type(b, type)) continue;
    if (type == "integer" && std::ranges::find(both, json::value("number")) != both.end()) continue;
    both.emplace_back(type);
  }
  return both.size() == 1 ? both.front() : json::value(both);
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

const json::value* find_in(const json::object& schema, std::string_view word) {
  return schema.if_contains(word);
}

// Returns whether `a` constrains properties that only `b` names (additionalProperties, patternProperties).
bool forbids_other_properties(const json::object& a, const json::object& b) {
  const json::value* rest = find_in(a, "additionalProperties");
  if (rest != nullptr && *rest == json::value(true)) rest = nullptr;
  if (rest == nullptr && find_in(a, "patternProperties") == nullptr) return false;
  const json::value* names = find_in(b, "properties");
  if (names == nullptr || !names->is_object()) return false;
  const json::value* own = find_in(a, "properties");
  return std::ranges::any_of(names->get_object(), [&](const json::key_value_pair& field) {
    return own == nullptr || !own->is_object() || !own->get_object().contains(field.key());
  });
}

bool merge_properties(json::value& into, const json::value& from) {
  if (!into.is_object() || !from.is_object()) return false;
  for (const auto& [name, schema] : from.get_object()) {
    json::value& own = into.get_object()[name];
    if (own.is_null() || own == schema)
      own = schema;
    else
      own = json::object{{"allOf", json::array{own, schema}}};
  }
  return true;
}

bool merge_word(std::string_view word, json::value& into, const json::value& from) {
  if (into == from) return true;
  if (word == "type") {
    into = common_types(into, from);
    return true;
  }
  if (word == "properties") return merge_properties(into, from);
  if (word == "required" && into.is_array() && from.is_array()) {
    for (const json::value& name : from.get_array())
      if (std::ranges::find(into.get_array(), name) == into.get_array().end()) into.get_array().push_back(name);
    return true;
  }
  if (word == "enum" && into.is_array() && from.is_array()) {
    json::array both;
    for (const json::value& value : into.get_array())
      if (std::ranges::find(from.get_array(), value) != from.get_array().end()) both.push_back(value);
    into = std::move(both);
    return true;
  }
  if (!into.is_number() || !from.is_number()) return false;
  const bool is_less = into.to_number<double>() < from.to_number<double>();
  if (is_one_of(word, {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})) {
    if (is_less) into = from;
    return true;
  }
  if (is_one_of(word, {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})) {
    if (!is_less) into = from;
    return true;
  }
  return false;
}

std::optional<json::value> constant_of(const json::object& schema) {
  if (const json::value* constant = find_in(schema, "const")) return *constant;
  const json::value* values = find_in(schema, "enum");
  if (values != nullptr && values->is_array() && values->get_array().size() == 1) return values->get_array().front();
  return std::nullopt;
}

bool requires_name(const json::object& schema, std::string_view name) {
  const json::value* required = find_in(schema, "required");
  return required != nullptr && required->is_array() &&
         std::ranges::any_of(required->get_array(), [name](const json::value& one) { return one.is_string() && one.get_string() == name; });
}

}  // namespace

std::optional<json::object> merged(const json::object& a, const json::object& b) {
  if (forbids_other_properties(a, b) || forbids_other_properties(b, a)) return std::nullopt;
  constexpr std::array<std::string_view, 3> kItems{"items", "prefixItems", "additionalItems"};
  const auto has_items = [&](const json::object& schema) {
    return std::ranges::any_of(kItems, [&](std::string_view word) { return schema.contains(word); });
  };
  const bool both_have_items = has_items(a) && has_items(b);
  json::object all = a;
  for (const auto& [word, value] : b) {
    if (both_have_items && std::ranges::find(kItems, std::string_view(word)) != kItems.end()) {
      if (!a.contains(word) || a.at(word) != value) return std::nullopt;
    }
    if (!all.contains(word))
      all[word] = value;
    else if (!merge_word(word, all[word], value))
      return std::nullopt;
  }
  if (both_have_items && std::ranges::any_of(kItems, [&](std::string_view word) { return a.contains(word) && !b.contains(word); }))
    return std::nullopt;
  return all;
}

bool allows_type(const json::object& schema, std::string_view type) {
  const json::value* said = find_in(schema, "type");
  return said == nullptr || names_type(*said, type);
}

bool has_type_of(const json::object& schema, const json::value& value) {
  switch (value.kind()) {
    case json::kind::object:
      return allows_type(schema, "object");
    case json::kind::array:
      return allows_type(schema, "array");
    case json::kind::string:
      return allows_type(schema, "string");
    case json::kind::bool_:
      return allows_type(schema, "boolean");
    case json::kind::null:
      return allows_type(schema, "null");
    case json::kind::double_:
      if (std::floor(value.get_double()) != value.get_double()) return allows_type(schema, "number");
      [[fallthrough]];
    case json::kind::int64:
    case json::kind::uint64:
      return allows_type(schema, "integer");
  }
  return false;
}

bool are_disjoint(const json::object& a, const json::object& b) {
  const auto one = constant_of(a), other = constant_of(b);
  if (one && other) return *one != *other;
  const bool share_type = std::ranges::any_of(kJsonTypes, [&](std::string_view type) {
    const auto allows = [type](const json::object& schema) { return allows_type(schema, type == "number" ? "integer" : type); };
    return allows(a) && allows(b);
  });
  if (!share_type) return true;
  if (one) return !has_type_of(b, *one);
  if (other) return !has_type_of(a, *other);
  const json::value *left = find_in(a, "properties"), *right = find_in(b, "properties");
  // A property makes two schemas disjoint only if both require objects.
  const bool are_objects =
      a.contains("type") && a.at("type") == json::value("object") && b.contains("type") && b.at("type") == json::value("object");
  if (!are_objects || left == nullptr || right == nullptr || !left->is_object() || !right->is_object()) return false;
  return std::ranges::any_of(left->get_object(), [&](const json::key_value_pair& field) {
    const json::value* same = right->get_object().if_contains(field.key());
    return same != nullptr && same->is_object() && field.value().is_object() &&
           (requires_name(a, field.key()) || requires_name(b, field.key())) && are_disjoint(field.value().get_object(), same->get_object());
  });
}

}  // namespace quire
