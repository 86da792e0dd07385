#include "text/tool_calls/tagged_value.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/json_writer.h"
#include "text/tool_calls/python_value.h"

namespace quire {

namespace json = boost::json;

namespace {

constexpr int kMaxSchemaParts = 8;  // maximum depth of nested anyOf and oneOf

const json::value* field_of(const json::value* value, std::string_view name) {
  return value != nullptr && value->is_object() ? value->get_object().if_contains(name) : nullptr;
}

// One bit for each kind of value.
enum : unsigned { kText = 1, kNull = 2, kOther = 4 };

unsigned kind_of_type(const json::value& type) {
  return type == "string" ? kText : type == "null" ? kNull : kOther;
}

unsigned kind_of(const json::value& value) {
  return value.is_string() ? kText : value.is_null() ? kNull : kOther;
}

// Returns the kinds of values that a schema allows, or 0 if the schema does not restrict them.
unsigned kinds_of(const json::value* schema, int depth = 0) {
  const auto field = [schema](std::string_view name) { return field_of(schema, name); };
  unsigned kinds = 0;
  if (const json::value* type = field("type"); type != nullptr) {
    if (!type->is_array()) return kind_of_type(*type);
    for (const json::value& one : type->get_array()) kinds |= kind_of_type(one);
    return kinds;
  }
  if (const json::value* only = field("const"); only != nullptr) return kind_of(*only);
  if (const json::value* choices = field("enum"); choices != nullptr && choices->is_array())
    for (const json::value& choice : choices->get_array()) kinds |= kind_of(choice);
  for (const char* name : {"anyOf", "oneOf"}) {
    const json::value* parts = field(name);
    if (parts == nullptr || !parts->is_array() || depth == kMaxSchemaParts) continue;
    for (const json::value& part : parts->get_array()) {
      const unsigned of_part = kinds_of(&part, depth + 1);
      kinds |= of_part != 0 ? of_part : kText | kOther;
    }
  }
  return kinds;
}

}  // namespace

const json::value* schema_of_argument(const Tool* tool, std::string_view key) {
  return field_of(field_of(tool != nullptr ? &tool->parameters : nullptr, "properties"), key);
}

bool may_be_text(const json::value* schema) {
  const unsigned kinds = kinds_of(schema);
  return kinds == 0 || (kinds & kText) != 0;
}

std::string tagged_value(std::string_view text, const json::value* schema) {
  const unsigned kinds = kinds_of(schema);
  const bool is_null = (kinds & kNull) != 0 && (text == "None" || text == "null");
  if (schema == nullptr || ((kinds & kText) != 0 && !is_null)) return json_string(text);
  std::string out;
  PythonValue value;
  PythonValue::State state = PythonValue::State::open;
  for (const char byte : text)
    if (state == PythonValue::State::open) state = value.push(byte, out);
  const bool is_literal = state == PythonValue::State::open && value.push(',', out) == PythonValue::State::whole;
  return is_literal ? out : json_string(text);
}

}  // namespace quire
