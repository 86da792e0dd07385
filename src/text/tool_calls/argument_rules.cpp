// Builds the grammar rules for arguments that are not JSON (Python literals, tags) from the tools' schemas. Called by call_grammar.cpp when
// a request with tools arrives. All functions are pure. Clients choose the schemas, so rules stop growing at kMaxRuleBytes. If a schema
// cannot be expressed and the tool is not strict, its rule accepts more values.
#include "text/tool_calls/argument_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <iterator>
#include <utility>
#include <vector>

#include "base/append_format.h"
#include "base/json_writer.h"
#include "text/tool_calls/loose_schema.h"
#include "text/tool_calls/tagged_value.h"

namespace quire {

namespace json = boost::json;

namespace {

// A rule body for a string in single or double quotes, with the escapes of Python and JSON.
constexpr std::string_view kPythonText =
    R"_(/'([^'\\]|\\(['"\\\/abfnrtv0]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(0[0-9a-fA-F]|10)[0-9a-fA-F]{4}))*'/ | )_"
    R"_(/"([^"\\]|\\(['"\\\/abfnrtv0]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U00(0[0-9a-fA-F]|10)[0-9a-fA-F]{4}))*"/)_";

struct Property {
  std::string name;
  const json::value* schema;
  bool is_required;
};

// Returns the required properties, then the optional ones, each group in the order of the schema.
std::vector<Property> properties_of(const Tool& tool) {
  std::vector<Property> properties, optional;
  if (!tool.parameters.is_object()) return properties;
  const json::object& schema = tool.parameters.get_object();
  const json::value* fields = schema.if_contains("properties");
  if (fields == nullptr || !fields->is_object()) return properties;
  const json::value* required = schema.if_contains("required");
  for (const auto& [name, field] : fields->get_object()) {
    const bool is_required = required != nullptr && required->is_array() &&
                             std::ranges::find(required->get_array(), json::value(name)) != required->get_array().end();
    (is_required ? properties : optional).push_back({std::string(name), &field, is_required});
  }
  properties.insert(properties.end(), optional.begin(), optional.end());
  return properties;
}

bool is_of_type(const Property& property, std::string_view type) {
  if (!property.schema->is_object()) return false;
  const json::object& schema = property.schema->get_object();
  const json::value* said = schema.if_contains("type");
  return said != nullptr && said->is_string() && said->get_string() == type && !schema.contains("enum") && !schema.contains("const");
}

// Returns whether the schema allows every value of `type`, as its only type or as one of several.
bool allows_any(const json::value& schema, std::string_view type) {
  static constexpr std::string_view kWords[] = {"type", "description", "title", "default", "examples", "anyOf"};
  if (!schema.is_object()) return false;
  const json::object& fields = schema.get_object();
  const auto is_plain = [](const json::key_value_pair& field) {
    return std::ranges::find(kWords, std::string_view(field.key())) != std::end(kWords);
  };
  if (!std::ranges::all_of(fields, is_plain)) return false;
  if (const json::value* said = fields.if_contains("type"))
    return said->is_array() ? std::ranges::find(said->get_array(), json::value(type)) != said->get_array().end()
                            : *said == json::value(type);
  const json::value* parts = fields.if_contains("anyOf");
  return parts != nullptr && parts->is_array() &&
         std::ranges::any_of(parts->get_array(), [type](const json::value& part) { return allows_any(part, type); });
}

// Returns rule bodies for Python's spellings of a value of this schema, each with " | " before it.
std::string python_alternatives(const json::value& schema) {
  std::string all;
  if (allows_any(schema, "string")) all += fmt::format(" | {}", kPythonText);
  if (allows_any(schema, "boolean")) all += R"( | "True" | "False")";
  if (allows_any(schema, "null")) all += R"( | "None")";
  return all;
}

// Returns the rule body for a boolean or null in Python's spelling, which models also write. Returns an empty text for other types.
std::string word_rule(const Property& property, bool also_json) {
  if (is_of_type(property, "boolean")) return also_json ? R"(("true" | "false" | "True" | "False"))" : R"(("True" | "False"))";
  if (is_of_type(property, "null")) return also_json ? R"(("null" | "None"))" : R"("None")";
  return {};
}

// Returns the rule body for a property's schema, including the definitions to which the schema may refer.
std::string json_value_rule(const Property& property, const Tool& tool, bool is_canonical) {
  json::value value = property.schema->is_object() ? *property.schema : json::object();
  json::object& schema = value.get_object();
  for (const char* definitions : {"$defs", "definitions"}) {
    const json::value* all = tool.parameters.get_object().if_contains(definitions);
    if (all != nullptr && !schema.contains(definitions)) schema[definitions] = *all;
  }
  if (!tool.strict) loosen_schema(value);
  value.get_object()["x-guidance"] = json_settings(!tool.strict, is_canonical);
  return "%json " + json::serialize(value);
}

void add_rule(std::string& rules, std::string_view name, std::string_view body) {
  append_format(rules, "{}: {}\n", name, body);
}

// Returns the rule body for the strings of an enum or const, each followed by the end of the value. Returns an empty text for other
// schemas.
std::string literals_of(const Property& property, const ArgumentTags& tags) {
  if (!property.schema->is_object()) return {};
  const json::object& schema = property.schema->get_object();
  json::array choices;
  if (const json::value* only = schema.if_contains("const"))
    choices = {*only};
  else if (const json::value* all = schema.if_contains("enum"); all != nullptr && all->is_array())
    choices = all->get_array();
  std::string literals;
  for (const json::value& choice : choices) {
    if (!choice.is_string()) return {};
    const std::string text = json_string(std::string(choice.get_string()) + tags.end_text);
    literals += (literals.empty() ? "" : " | ") + text + (tags.end_text.empty() ? " " + tags.end : "");
  }
  return literals;
}

// Adds a rule for any text up to the end of the value.
void add_text_rule(std::string& rules, std::string_view name, const ArgumentTags& tags) {
  add_rule(rules, fmt::format("{}{}", name, tags.end_text.empty() ? "" : "[lazy]"), "TEXT " + tags.end);
}

}  // namespace

std::size_t num_properties(const Tool& tool) {
  const json::value* fields = tool.parameters.is_object() ? tool.parameters.get_object().if_contains("properties") : nullptr;
  return fields != nullptr && fields->is_object() ? fields->get_object().size() : 0;
}

// Adds rules for arguments as key=value with commas between them: first all required arguments, then any of the optional ones in their
// order.
void python_arguments(std::string& rules, std::size_t index, const Tool& tool, bool is_canonical) {
  const std::vector<Property> properties = properties_of(tool);
  std::string all, optional_first;
  for (std::size_t k = 0; k < properties.size(); ++k) {
    if (rules.size() > kMaxRuleBytes) return;
    const Property& property = properties[k];
    const std::string rule = fmt::format("arg_{}_{}", index, k);
    std::string value = word_rule(property, false);
    if (value.empty()) {
      value = "value_" + rule;
      add_rule(rules, value, json_value_rule(property, tool, is_canonical));
      if (!is_canonical) value = fmt::format("({}{})", value, python_alternatives(*property.schema));
    }
    add_rule(rules, rule, json_string(property.name + "=") + " " + value);
    const bool is_first_kind = properties.front().is_required;
    if (property.is_required || is_first_kind)
      all += (all.empty() ? "" : " ") + (property.is_required ? (k == 0 ? rule : "\", \" " + rule) : "(\", \" " + rule + ")?");
  }
  if (properties.empty() || properties.front().is_required) {
    add_rule(rules, fmt::format("args_{}", index), all.empty() ? "\"\"" : all);
    return;
  }
  // No argument is required, so any optional argument may be the first one, which has no comma before it.
  for (std::size_t k = 0; k < properties.size(); ++k) {
    add_rule(rules, fmt::format("more_{}_{}", index, k), fmt::format("(\", \" arg_{0}_{1})? more_{0}_{2}", index, k, k + 1));
    optional_first += fmt::format("{0}arg_{1}_{2} more_{1}_{3}", k == 0 ? "" : " | ", index, k, k + 1);
  }
  add_rule(rules, fmt::format("more_{}_{}", index, properties.size()), "\"\"");
  add_rule(rules, fmt::format("args_{}", index), "(" + optional_first + ")?");
}

void tagged_arguments(std::string& rules, const ArgumentTags& tags, std::size_t index, const Tool& tool, bool is_canonical) {
  std::string all;
  const std::vector<Property> properties = properties_of(tool);
  for (std::size_t k = 0; k < properties.size(); ++k) {
    if (rules.size() > kMaxRuleBytes) return;
    const Property& property = properties[k];
    const std::string rule = fmt::format("arg_{}_{}", index, k);
    const std::string literals = literals_of(property, tags);
    const std::string words = is_canonical ? std::string() : word_rule(property, true);
    if (!words.empty()) {
      add_rule(rules, "value_" + rule, words + " " + tags.end);
    } else if (!literals.empty()) {
      add_rule(rules, "value_" + rule, literals);
    } else if (may_be_text(property.schema)) {
      add_text_rule(rules, "value_" + rule, tags);
    } else {
      add_rule(rules, "json_" + rule, json_value_rule(property, tool, is_canonical));
      add_rule(rules, "value_" + rule, "json_" + rule + " " + tags.end);
    }
    add_rule(rules, rule, tags.head(property.name) + " value_" + rule + " " + tags.separator);
    all += (all.empty() ? "" : " ") + (property.is_required ? rule : rule + "?");
  }
  add_rule(rules, fmt::format("args_{}", index), all.empty() ? "\"\"" : all);
}

void any_python_arguments(std::string& rules, bool is_canonical) {
  add_rule(rules, "any_value", "%json " + json::serialize(json::object{{"x-guidance", json_settings(false, is_canonical)}}));
  const std::string others = is_canonical ? std::string() : fmt::format(R"( | {} | "True" | "False" | "None")", kPythonText);
  add_rule(rules, "any_arg", fmt::format("/[a-zA-Z_][a-zA-Z0-9_]*=/ (any_value{})", others));
  add_rule(rules, "any_args", R"((any_arg (", " any_arg)*)?)");
}

void any_tagged_arguments(std::string& rules, const ArgumentTags& tags) {
  add_text_rule(rules, "any_value", tags);
  add_rule(rules, "any_args", fmt::format("({} any_value {})*", tags.any_head, tags.separator));
}

}  // namespace quire
