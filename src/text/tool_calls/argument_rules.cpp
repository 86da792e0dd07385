// Grammar rules for arguments that are not JSON (Python literals, tags), from the tools' schemas. Called by call_grammar.cpp when a request
// with tools comes in; pure functions. Schemas are clients': rules stop growing at kMaxRuleBytes, and what cannot be expressed becomes a
// wider rule unless the tool is strict.
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
#include "base/json_text.h"
#include "text/tool_calls/loose_schema.h"

namespace quire {

namespace json = boost::json;

namespace {

// In single quotes.
constexpr std::string_view kPythonText = R"(/'([^'\\]|\\['"\\nrt])*'/)";

// What ends a parameter between tags.
constexpr std::string_view kValueEnd = "\n</parameter>\n";

struct Property {
  std::string name;
  const json::value* schema;
  bool is_required;
};

// Required ones first, each kind in the order of the schema.
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

// Any string, with nothing said of it but for the model.
bool is_any_text(const Property& property) {
  static constexpr std::string_view kWords[] = {"type", "description", "title", "default", "examples"};
  return is_of_type(property, "string") && std::ranges::all_of(property.schema->get_object(), [](const json::key_value_pair& field) {
           return std::ranges::find(kWords, std::string_view(field.key())) != std::end(kWords);
         });
}

// Words of Python's, which models write as well.
std::string word_rule(const Property& property, bool also_json) {
  if (is_of_type(property, "boolean")) return also_json ? R"(("true" | "false" | "True" | "False"))" : R"(("True" | "False"))";
  if (is_of_type(property, "null")) return also_json ? R"(("null" | "None"))" : R"("None")";
  return {};
}

// A schema of its own, with the definitions that it may refer to.
std::string json_value_rule(const Property& property, const Tool& tool, bool one_spelling) {
  json::value value = property.schema->is_object() ? *property.schema : json::object();
  json::object& schema = value.get_object();
  for (const char* definitions : {"$defs", "definitions"}) {
    const json::value* all = tool.parameters.get_object().if_contains(definitions);
    if (all != nullptr && !schema.contains(definitions)) schema[definitions] = *all;
  }
  if (!tool.strict) loosen_schema(value);
  value.get_object()["x-guidance"] = json_spelling(!tool.strict, one_spelling);
  return "%json " + json::serialize(value);
}

void add_rule(std::string& rules, std::string_view name, std::string_view body) {
  append_format(rules, "{}: {}\n", name, body);
}

// The texts of an enum of strings as literals, or nothing.
std::string literals_of(const Property& property, std::string_view behind) {
  const json::value* choices = property.schema->is_object() ? property.schema->get_object().if_contains("enum") : nullptr;
  if (choices == nullptr || !choices->is_array()) return {};
  std::string all;
  for (const json::value& choice : choices->get_array()) {
    if (!choice.is_string()) return {};
    all += (all.empty() ? "" : " | ") + json_string(std::string(choice.get_string()) + std::string(behind));
  }
  return all;
}

}  // namespace

std::size_t num_properties(const Tool& tool) {
  const json::value* fields = tool.parameters.is_object() ? tool.parameters.get_object().if_contains("properties") : nullptr;
  return fields != nullptr && fields->is_object() ? fields->get_object().size() : 0;
}

// key=value with commas between: the required ones, then any of the others in their order.
void python_arguments(std::string& rules, std::size_t index, const Tool& tool, bool one_spelling) {
  const std::vector<Property> properties = properties_of(tool);
  std::string all, optional_first;
  for (std::size_t k = 0; k < properties.size(); ++k) {
    if (rules.size() > kMaxRuleBytes) return;
    const Property& property = properties[k];
    const std::string rule = fmt::format("arg_{}_{}", index, k);
    std::string value = word_rule(property, false);
    if (value.empty()) {
      value = "value_" + rule;
      add_rule(rules, value, json_value_rule(property, tool, one_spelling));
      if (is_any_text(property) && !one_spelling) value = fmt::format("({} | {})", value, kPythonText);
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
  // None is required: the first of those given has no comma before it.
  for (std::size_t k = 0; k < properties.size(); ++k) {
    add_rule(rules, fmt::format("more_{}_{}", index, k), fmt::format("(\", \" arg_{0}_{1})? more_{0}_{2}", index, k, k + 1));
    optional_first += fmt::format("{0}arg_{1}_{2} more_{1}_{3}", k == 0 ? "" : " | ", index, k, k + 1);
  }
  add_rule(rules, fmt::format("more_{}_{}", index, properties.size()), "\"\"");
  add_rule(rules, fmt::format("args_{}", index), "(" + optional_first + ")?");
}

void xml_arguments(std::string& rules, std::size_t index, const Tool& tool, bool one_spelling) {
  std::string all;
  const std::vector<Property> properties = properties_of(tool);
  for (std::size_t k = 0; k < properties.size(); ++k) {
    if (rules.size() > kMaxRuleBytes) return;
    const Property& property = properties[k];
    const std::string rule = fmt::format("arg_{}_{}", index, k);
    const bool is_free = !property.schema->is_object() || !property.schema->get_object().contains("type") || is_of_type(property, "string");
    const std::string literals = literals_of(property, kValueEnd);
    const std::string words = one_spelling ? std::string() : word_rule(property, true);
    if (!words.empty()) {
      add_rule(rules, "value_" + rule, words + " " + json_string(kValueEnd));
    } else if (!literals.empty()) {
      add_rule(rules, "value_" + rule, literals);
    } else if (is_free) {
      add_rule(rules, "value_" + rule + "[lazy]", "TEXT " + json_string(kValueEnd));
    } else {
      add_rule(rules, "json_" + rule, json_value_rule(property, tool, one_spelling));
      add_rule(rules, "value_" + rule, "json_" + rule + " " + json_string(kValueEnd));
    }
    add_rule(rules, rule, json_string("<parameter=" + property.name + ">\n") + " value_" + rule);
    all += (all.empty() ? "" : " ") + (property.is_required ? rule : rule + "?");
  }
  add_rule(rules, fmt::format("args_{}", index), all.empty() ? "\"\"" : all);
}

void any_python_arguments(std::string& rules, bool one_spelling) {
  add_rule(rules, "any_value", "%json " + json::serialize(json::object{{"x-guidance", json_spelling(false, one_spelling)}}));
  const std::string others = one_spelling ? std::string() : fmt::format(R"( | {} | "True" | "False" | "None")", kPythonText);
  add_rule(rules, "any_arg", fmt::format("/[a-zA-Z_][a-zA-Z0-9_]*=/ (any_value{})", others));
  add_rule(rules, "any_args", R"((any_arg (", " any_arg)*)?)");
}

void any_xml_arguments(std::string& rules) {
  add_rule(rules, "any_value[lazy]", "TEXT " + json_string(kValueEnd));
  add_rule(rules, "any_args", R"((/<parameter=[^<>\n]+>\n/ any_value)*)");
}

}  // namespace quire
