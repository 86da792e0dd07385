#include "text/tool_calls/tool_definitions.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <string_view>
#include <utility>

namespace quire {

namespace json = boost::json;

namespace {

constexpr std::string_view kValues[] = {"default", "const", "enum", "examples", "example"};
// Keywords whose value is an object with keys that the client chooses. Each key maps to a schema.
constexpr std::string_view kNamed[] = {"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"};
constexpr std::string_view kTypes[] = {"string", "number", "integer", "boolean", "array", "object"};

template <std::size_t N>
bool is_in(const std::string_view (&names)[N], std::string_view name) {
  return std::ranges::find(names, name) != std::end(names);
}

// Recurses at most 64 levels, because bodies are at most 64 levels deep. Adding a member to an object may move its existing members.
void drop_nulls_of_schema(json::value& schema);

void drop_nulls_of_named(json::value& named) {
  if (!named.is_object()) return drop_nulls_of_schema(named);
  for (json::key_value_pair& entry : named.get_object())
    if (entry.value().is_null())
      entry.value() = json::object();
    else
      drop_nulls_of_schema(entry.value());
}

void drop_nulls_of_schema(json::value& schema) {
  if (schema.is_array()) {
    for (json::value& element : schema.get_array()) drop_nulls_of_schema(element);
    return;
  }
  if (!schema.is_object()) return;
  bool has_nulls = false;
  for (json::key_value_pair& field : schema.get_object()) {
    if (is_in(kValues, field.key())) continue;
    has_nulls |= field.value().is_null();
    is_in(kNamed, field.key()) ? drop_nulls_of_named(field.value()) : drop_nulls_of_schema(field.value());
  }
  if (!has_nulls) return;
  json::object kept;
  for (json::key_value_pair& field : schema.get_object())
    if (!field.value().is_null() || is_in(kValues, field.key())) kept.emplace(field.key(), std::move(field.value()));
  schema = std::move(kept);
}

std::string_view type_of(const json::value& value) {
  if (value.is_bool()) return "boolean";
  if (value.is_int64() || value.is_uint64()) return "integer";
  if (value.is_double()) return "number";
  if (value.is_array()) return "array";
  return value.is_object() ? "object" : "string";
}

// Returns the type that best describes what a schema allows.
std::string_view first_type(const json::object& schema) {
  const json::value* type = schema.if_contains("type");
  if (type != nullptr && type->is_string() && is_in(kTypes, type->get_string()))
    return *std::ranges::find(kTypes, std::string_view(type->get_string()));
  if (type != nullptr && type->is_array())
    for (const json::value& one : type->get_array())
      if (one.is_string() && is_in(kTypes, one.get_string())) return *std::ranges::find(kTypes, std::string_view(one.get_string()));
  if (const json::value* value = schema.if_contains("const")) return type_of(*value);
  if (const json::value* values = schema.if_contains("enum"); values != nullptr && values->is_array() && !values->get_array().empty())
    return type_of(values->get_array().front());
  if (schema.contains("properties") || schema.contains("additionalProperties")) return "object";
  if (schema.contains("items") || schema.contains("prefixItems")) return "array";
  for (const char* several : {"anyOf", "oneOf", "allOf"})
    if (const json::value* options = schema.if_contains(several); options != nullptr && options->is_array())
      for (const json::value& option : options->get_array())
        if (option.is_object() && (!option.get_object().contains("type") || option.get_object().at("type") != "null"))
          return first_type(option.get_object());
  return "string";
}

void fill_schema(json::value& schema);

void fill_object(json::object& schema) {
  json::value& properties = schema["properties"];
  if (!properties.is_object()) properties = json::object();
  for (json::key_value_pair& entry : properties.get_object()) fill_schema(entry.value());
  json::value* more = schema.if_contains("additionalProperties");
  if (more == nullptr || !more->is_object()) schema["additionalProperties"] = json::object();
  fill_schema(schema["additionalProperties"]);
}

void fill_schema(json::value& value) {
  if (!value.is_object()) value = json::object();
  json::object& schema = value.get_object();
  const std::string_view type = first_type(schema);
  schema["type"] = type;
  if (json::value& description = schema["description"]; !description.is_string()) description = "";
  // gpt-oss's template concatenates the default of schemas with enum or oneOf to text, so the default must be a string.
  if (json::value* preset = schema.if_contains("default"); preset != nullptr && (schema.contains("enum") || schema.contains("oneOf"))) {
    if (preset->is_null())
      schema.stable_erase("default");
    else if (!preset->is_string())
      *preset = json::value(json::serialize(*preset));
  }
  if (type == "array") fill_schema(schema["items"]);
  if (type == "object") fill_object(schema);
  for (const char* several : {"anyOf", "oneOf", "allOf"})
    if (json::value* options = schema.if_contains(several); options != nullptr && options->is_array())
      for (json::value& option : options->get_array()) fill_schema(option);
}

void fill_function(json::object& function, ToolFields fields) {
  if (json::value& description = function["description"]; !description.is_string()) description = "";
  json::value& value = function["parameters"];
  if (!value.is_object()) value = json::object();
  json::object& parameters = value.get_object();
  if (!parameters.contains("type")) parameters["type"] = "object";
  if (json::value& properties = parameters["properties"]; !properties.is_object()) properties = json::object();
  if (fields == ToolFields::schemas)
    for (json::key_value_pair& entry : parameters["properties"].get_object()) fill_schema(entry.value());
}

}  // namespace

void drop_nulls_of_tools(json::value& tools) {
  if (!tools.is_array()) return;
  for (json::value& tool : tools.get_array()) drop_nulls_of_schema(tool);
}

void fill_in(json::value& tools, ToolFields fields) {
  if (!tools.is_array() || fields == ToolFields::as_sent) return;
  for (json::value& tool : tools.get_array()) {
    if (!tool.is_object()) continue;
    json::object& definition = tool.get_object();
    if (definition.contains("function")) definition.emplace("type", "function");
    json::value* const function = definition.if_contains("function");
    if (function != nullptr && function->is_object())
      fill_function(function->get_object(), fields);
    else if (definition.contains("name"))
      fill_function(definition, fields);
  }
}

Result<std::string> render_with_tools(const ChatTemplate& chat_template, json::object& context, const TemplateOptions& options) {
  json::value& tools = context["tools"];
  drop_nulls_of_tools(tools);
  auto text = chat_template.render(context, options);
  if (text || !tools.is_array()) return text;
  for (const ToolFields fields : {ToolFields::functions, ToolFields::schemas}) {
    fill_in(tools, fields);
    auto again = chat_template.render(context, options);
    if (again) return again;
  }
  return text;
}

}  // namespace quire
