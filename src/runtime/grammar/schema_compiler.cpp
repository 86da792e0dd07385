// Compiles the parts of a schema that do not depend on its type: references, combinations, constants, and parts that llguidance compiles.
// Called on the engine's grammar thread and when the server checks tools; pure functions.
#include "runtime/grammar/schema_compiler.h"

#include <fmt/ranges.h>

#include <array>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <cmath>

#include "runtime/grammar/json_numbers.h"
#include "runtime/grammar/schema_merge.h"

namespace quire {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxRuleBytes = std::size_t{4} << 20;
constexpr std::size_t kMaxMerges = 500;
constexpr int kMaxLevels = 200;

// White space in the form that llguidance needs. llguidance skips one match; a match must not be empty.
constexpr const char* kSomeWhiteSpace = R"([ \t]{1,16}|[ \t]{0,16}(?:\r?\n){1,2}[ \t]{0,160})";
constexpr const char* kShortEscapes = R"(nrbtf\")";

constexpr std::array<std::string_view, 27> kSupportedKeywords{"anyOf",
                                                              "oneOf",
                                                              "allOf",
                                                              "$ref",
                                                              "const",
                                                              "enum",
                                                              "type",
                                                              "items",
                                                              "additionalItems",
                                                              "prefixItems",
                                                              "minItems",
                                                              "maxItems",
                                                              "properties",
                                                              "additionalProperties",
                                                              "patternProperties",
                                                              "required",
                                                              "minProperties",
                                                              "maxProperties",
                                                              "minLength",
                                                              "maxLength",
                                                              "pattern",
                                                              "format",
                                                              "minimum",
                                                              "maximum",
                                                              "exclusiveMinimum",
                                                              "exclusiveMaximum",
                                                              "multipleOf"};
constexpr std::array<std::string_view, 17> kUnsupportedKeywords{"not",
                                                                "if",
                                                                "then",
                                                                "else",
                                                                "contains",
                                                                "minContains",
                                                                "maxContains",
                                                                "dependentRequired",
                                                                "dependentSchemas",
                                                                "dependencies",
                                                                "propertyNames",
                                                                "uniqueItems",
                                                                "unevaluatedItems",
                                                                "unevaluatedProperties",
                                                                "$dynamicRef",
                                                                "$recursiveRef",
                                                                "$recursiveAnchor"};

bool refers(const json::value& value, std::string_view keyword) {
  if (const json::array* items = value.if_array())
    return std::ranges::any_of(*items, [&](const json::value& item) { return refers(item, keyword); });
  const json::object* object = value.if_object();
  return object != nullptr && std::ranges::any_of(*object, [&](const json::key_value_pair& field) {
           return (field.key() == keyword && field.value().is_string()) || refers(field.value(), keyword);
         });
}

// Rewrites counts such as 2.0 as integers. 2.0 is an integer in JSON Schema, but llguidance requires the form 2.
void write_counts(json::value& value) {
  static constexpr std::string_view kCounts[] = {"minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"};
  if (value.is_array()) std::ranges::for_each(value.get_array(), write_counts);
  if (!value.is_object()) return;
  for (auto& [key, inner] : value.get_object()) {
    const std::string_view name(key.data(), key.size());
    if (name == "const" || name == "enum" || name == "default" || name == "examples") continue;
    const double* number = inner.if_double();
    if (number == nullptr || !contains_word(kCounts, name))
      write_counts(inner);
    else if (*number >= 0 && *number <= kMaxSchemaCount && std::trunc(*number) == *number)
      inner = static_cast<std::uint64_t>(*number);
  }
}

bool has_too_many_properties(const json::value& value) {
  if (const json::array* items = value.if_array()) return std::ranges::any_of(*items, has_too_many_properties);
  const json::object* object = value.if_object();
  if (object == nullptr) return false;
  const json::value* properties = object->if_contains("properties");
  if (properties != nullptr && properties->is_object() && properties->get_object().size() > kMaxSchemaProperties) return true;
  return std::ranges::any_of(*object, [](const json::key_value_pair& field) { return has_too_many_properties(field.value()); });
}

// Returns whether each $ref in the value names one of the definitions. Definitions are copied into a part of a schema that llguidance
// compiles.
bool refers_to_definitions(const json::value& value) {
  if (const json::array* items = value.if_array()) return std::ranges::all_of(*items, refers_to_definitions);
  const json::object* object = value.if_object();
  return object == nullptr || std::ranges::all_of(*object, [](const json::key_value_pair& field) {
           if (field.key() != "$ref" || !field.value().is_string()) return refers_to_definitions(field.value());
           const std::string_view target = field.value().get_string();
           return target.starts_with("#/$defs/") || target.starts_with("#/definitions/");
         });
}

}  // namespace

Result<std::string> SchemaCompiler::make() {
  // References inside a subschema with $id are relative to that $id.
  bool has_bases = false;
  if (root_.is_object())
    for (const auto& field : root_.get_object()) has_bases |= refers(field.value(), "$id") || refers(field.value(), "$dynamicRef");
  Rule start = has_bases && refers(root_, "$ref") ? needs_library() : rule_of(root_, "#");
  while (start && !pending_.empty()) {
    const auto [rule, target, at] = std::move(pending_.back());
    pending_.pop_back();
    const Rule body = rule_of(*target, at);
    if (!body)
      start = std::unexpected(body.error());
    else
      add(rule, *body);
  }
  if (!start && start.error().kind == Problem::Kind::needs_library) {
    rules_.clear();
    start = delegate_to_library(root_, "#");
  }
  if (start && rules_.size() > kMaxRuleBytes) start = refused("#", "produces a grammar larger than 4 MiB");
  if (!start)
    return fail(ErrorCode::invalid_argument, "structured_output", start.error().at + ": " + start.error().message, "change the schema");
  return fmt::format("start: {}\n{}", *start, rules_);
}

std::string SchemaCompiler::add_rule(std::string_view body) {
  const std::string name = fmt::format("r{}", num_rules_++);
  add(name, body);
  return name;
}

std::string SchemaCompiler::terminal(const std::string& body) {
  const auto [found, is_new] = terminals_.try_emplace(body, fmt::format("T{}", terminals_.size()));
  if (is_new) add(found->second, body);
  return found->second;
}

std::string SchemaCompiler::any_of(const std::vector<std::string>& parts) {
  return parts.size() == 1 ? parts.front() : add_rule(fmt::format("{}", fmt::join(parts, " | ")));
}

std::string SchemaCompiler::any_value() {
  if (!any_.empty()) return any_;
  any_ = fmt::format("r{}", num_rules_++);
  const std::vector<std::string> kinds{
      any_object(), any_array(), any_string(), *number(json::object(), "", false), terminal(R"("true" | "false")"), terminal("\"null\"")};
  add(any_, fmt::format("{}", fmt::join(kinds, " | ")));
  return any_;
}

Rule SchemaCompiler::rule_of(const json::value& schema, const std::string& at) {
  if (rules_.size() > kMaxRuleBytes) return refused(at, "produces a grammar larger than 4 MiB");
  if (schema.is_bool()) return schema.get_bool() ? Rule(any_value()) : unsatisfiable(at, "is false, which no value satisfies");
  if (!schema.is_object()) return refused(at, "is neither an object nor a boolean");
  if (levels_ == kMaxLevels) return needs_library();
  ++levels_;
  const auto kept = without_annotations(schema.get_object(), at);
  Rule rule = kept ? compile_supported(*kept, at) : Rule(std::unexpected(kept.error()));
  --levels_;
  if (!rule && rule.error().kind == Problem::Kind::needs_library) return delegate_to_library(schema, at);
  return rule;
}

bool SchemaCompiler::has_no_effect(const json::object& schema, std::string_view word, const json::value& value) {
  if (word == "uniqueItems") return value == json::value(false);
  if (word == "unevaluatedItems" || word == "unevaluatedProperties") return value == json::value(true);
  if (word == "then" || word == "else") return !schema.contains("if");
  if (word == "if") return !schema.contains("then") && !schema.contains("else");
  if (word == "minContains" || word == "maxContains") return !schema.contains("contains");
  if (word == "propertyNames") return value == json::value(true) || value == json::value(json::object{{"type", "string"}});
  const bool is_empty = value.is_object() && value.get_object().empty();
  return is_empty && word != "not" && word != "contains";
}

std::expected<json::object, Problem> SchemaCompiler::without_annotations(const json::object& schema, const std::string& at) const {
  json::object kept;
  for (const auto& [word, value] : schema)
    if (contains_word(kSupportedKeywords, word))
      kept.emplace(word, value);
    else if (contains_word(kUnsupportedKeywords, word) && !settings_.is_loose && !has_no_effect(schema, word, value))
      return refused(at, fmt::format("'{}' is not supported. Leave it out", std::string_view(word)));
  return kept;
}

Rule SchemaCompiler::compile_supported(const json::object& schema, const std::string& at) {
  if (schema.empty()) return any_value();
  if (schema.contains("$ref")) return reference(schema, at);
  if (schema.contains("allOf")) return all_of(schema, at);
  for (const char* const word : {"anyOf", "oneOf"})
    if (schema.contains(word)) return choice(schema, word, at);
  if (schema.contains("const") || schema.contains("enum")) return constants(schema, at);
  return by_type(schema, at);
}

json::object SchemaCompiler::without(const json::object& schema, std::string_view word) {
  json::object rest;
  for (const auto& [name, value] : schema)
    if (name != word) rest.emplace(name, value);
  return rest;
}

std::expected<json::object, Problem> SchemaCompiler::resolved_part(const json::value& part, const std::string& at) {
  if (!part.is_object()) return refused(at, "is neither an object nor a boolean");
  auto kept = without_annotations(part.get_object(), at);
  if (!kept || !kept->contains("$ref")) return kept;
  if (++num_merges_ > kMaxMerges) return needs_library();
  const auto target = target_of(kept->at("$ref"), at);
  if (!target) return std::unexpected(target.error());
  if ((*target)->is_bool() && (*target)->get_bool()) return without(*kept, "$ref");
  if (++levels_ > kMaxLevels) return needs_library();
  auto there = resolved_part(**target, at);
  --levels_;
  if (!there) return there;
  const auto both = merged(*there, without(*kept, "$ref"));
  return both ? std::expected<json::object, Problem>(*both) : needs_library();
}

std::expected<const json::value*, Problem> SchemaCompiler::target_of(const json::value& reference, const std::string& at) const {
  if (!reference.is_string()) return refused(at, "'$ref' must be a string");
  const std::string_view text = reference.get_string();
  if (text == "#" || text == "#/") return &root_;
  boost::system::error_code failed;
  const json::value* target = text.starts_with("#/") ? root_.find_pointer(unescaped(text.substr(1)), failed) : nullptr;
  if (target == nullptr)
    return refused(at, fmt::format("'$ref' is '{}', which is not in this schema. Add it to the schema", text.substr(0, 200)));
  return target;
}

std::string SchemaCompiler::unescaped(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(&text[i + 1], &text[i + 1] + 2, value, 16).ptr == &text[i + 1] + 2) {
      plain += static_cast<char>(value);
      i += 2;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

Rule SchemaCompiler::reference(const json::object& schema, const std::string& at) {
  if (schema.size() > 1) {
    const auto part = resolved_part(schema, at);
    return part ? compile_supported(*part, at) : Rule(std::unexpected(part.error()));
  }
  const json::value* target = nullptr;
  const json::value* next = &schema.at("$ref");
  for (int steps = 0; next != nullptr; ++steps) {
    const auto found = target_of(*next, at);
    if (!found) return std::unexpected(found.error());
    if (steps == 32) return refused(at, "'$ref' refers to itself");
    target = *found;
    next = target->is_object() && target->get_object().size() == 1 ? target->get_object().if_contains("$ref") : nullptr;
  }
  const auto [known, is_new] = references_.try_emplace(target, fmt::format("r{}", num_rules_));
  if (is_new) {
    ++num_rules_;
    pending_.push_back({known->second, target, fmt::format("{}", std::string_view(schema.at("$ref").get_string()))});
  }
  return known->second;
}

Rule SchemaCompiler::all_of(const json::object& schema, const std::string& at) {
  const json::value& parts = schema.at("allOf");
  if (!parts.is_array()) return refused(at, "'allOf' must be an array");
  json::object all = without(schema, "allOf");
  if (all.empty() && parts.get_array().size() == 1) return rule_of(parts.get_array().front(), at + "/allOf/0");
  for (std::size_t i = 0; i < parts.get_array().size(); ++i) {
    const json::value& part = parts.get_array()[i];
    const std::string place = fmt::format("{}/allOf/{}", at, i);
    if (part == json::value(true)) continue;
    if (part == json::value(false)) return unsatisfiable(place, "is false, which no value satisfies");
    if (++num_merges_ > kMaxMerges) return needs_library();
    const auto kept = resolved_part(part, place);
    if (!kept) return std::unexpected(kept.error());
    auto both = merged(all, *kept);
    if (!both) return needs_library();
    all = *std::move(both);
  }
  return compile_supported(all, at);
}

Rule SchemaCompiler::choice(const json::object& schema, std::string_view word, const std::string& at) {
  const json::value& parts = schema.at(word);
  if (!parts.is_array()) return refused(at, fmt::format("'{}' must be an array", word));
  const json::object rest = without(schema, word);
  std::vector<std::string> rules;
  std::vector<json::object> branches;
  for (std::size_t i = 0; i < parts.get_array().size(); ++i) {
    const json::value& part = parts.get_array()[i];
    const std::string place = fmt::format("{}/{}/{}", at, word, i);
    if (part == json::value(false)) continue;
    const Rule rule = rest.empty() ? rule_of(part, place) : branch(rest, part, place);
    if (is_unsatisfiable(rule)) continue;
    if (!rule) return rule;
    rules.push_back(*rule);
    if (word == "oneOf" && !settings_.is_loose) {
      auto kept = part.is_bool() ? json::object() : resolved_part(part, place);
      if (!kept) return std::unexpected(kept.error());
      branches.push_back(*std::move(kept));
    }
  }
  if (rules.empty()) return unsatisfiable(at, fmt::format("no alternative of '{}' can be satisfied", word));
  for (std::size_t i = 0; i < branches.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      if (!are_disjoint(branches[i], branches[k]))
        return refused(at, fmt::format("'oneOf' has alternatives that can both match ({} and {}), which is not supported. Use 'anyOf', or "
                                       "make them differ by type or by a required property with a 'const'",
                                       k, i));
  return any_of(rules);
}

Rule SchemaCompiler::branch(const json::object& rest, const json::value& part, const std::string& at) {
  if (part.is_bool()) return compile_supported(rest, at);
  if (++num_merges_ > kMaxMerges) return needs_library();
  const auto kept = resolved_part(part, at);
  if (!kept) return std::unexpected(kept.error());
  const auto both = merged(rest, *kept);
  return both ? compile_supported(*both, at) : needs_library();
}

Rule SchemaCompiler::constants(const json::object& schema, const std::string& at) {
  json::array values;
  const json::value* constant = schema.if_contains("const");
  const json::value* listed = schema.if_contains("enum");
  if (listed != nullptr && !listed->is_array()) return refused(at, "'enum' must be an array");
  if (listed != nullptr) values = listed->get_array();
  if (constant != nullptr) {
    if (listed != nullptr && std::ranges::find(values, *constant) == values.end()) values.clear();
    if (listed == nullptr || !values.empty()) values = json::array{*constant};
  }
  for (const auto& [word, value] : schema)
    if (word != "const" && word != "enum" && word != "type") return needs_library();
  std::vector<std::string> rules, scalars;
  for (const json::value& value : values) {
    if (!has_type_of(schema, value)) continue;
    const auto scalar = scalar_terminal(value);
    if (scalar)
      scalars.push_back("(" + *scalar + ")");
    else if (const Rule rule = constant_rule(value, at))
      rules.push_back(*rule);
    else
      return rule;
  }
  if (!scalars.empty()) rules.push_back(terminal(fmt::format("{}", fmt::join(scalars, " | "))));
  if (rules.empty()) return unsatisfiable(at, "no value of 'const' or 'enum' matches 'type'");
  return any_of(rules);
}

std::optional<std::string> SchemaCompiler::scalar_terminal(const json::value& value) {
  if (value.is_string()) return fmt::format("/\"{}\"/", text_regex(value.get_string()));
  if (value.is_null() || value.is_bool()) return "\"" + json::serialize(value) + "\"";
  if (value.is_number()) return constant_number(value);
  return std::nullopt;
}

Rule SchemaCompiler::constant_rule(const json::value& value, const std::string& at) {
  json::object schema;
  if (value.is_array()) {
    json::array items;
    for (const json::value& item : value.get_array()) items.push_back(json::object{{"const", item}});
    schema = {{"type", "array"}, {"prefixItems", items}, {"items", false}, {"minItems", items.size()}};
  } else {
    json::object properties;
    json::array required;
    for (const auto& [name, item] : value.get_object()) {
      properties[name] = json::object{{"const", item}};
      required.emplace_back(name);
    }
    schema = {{"type", "object"}, {"properties", properties}, {"required", required}, {"additionalProperties", false}};
  }
  return rule_of(schema, at);
}

std::string SchemaCompiler::text_regex(std::string_view text) {
  num_regex_bytes_ += text.size();
  return num_regex_bytes_ > kMaxRegexBytes ? shortest_regex(text) : regex_of(text);
}

Rule SchemaCompiler::by_type(const json::object& schema, const std::string& at) {
  std::vector<std::string> rules;
  std::optional<Problem> last;
  const auto add_kind = [&](Rule rule) -> std::optional<Problem> {
    if (rule)
      rules.push_back(*std::move(rule));
    else if (rule.error().kind == Problem::Kind::unsatisfiable)
      last = std::move(rule.error());
    else
      return rule.error();
    return std::nullopt;
  };
  std::optional<Problem> problem;
  if (const json::value* type = schema.if_contains("type"); type != nullptr && !type->is_string() && !type->is_array())
    return refused(at, "'type' must be a string or an array of strings");
  if (allows_type(schema, "object")) problem = add_kind(object(schema, at));
  if (!problem && allows_type(schema, "array")) problem = add_kind(array(schema, at));
  if (!problem && allows_type(schema, "string")) problem = add_kind(string(schema, at));
  const bool any_number = allows_type(schema, "number");
  if (!problem && (any_number || allows_type(schema, "integer"))) problem = add_kind(number(schema, at, !any_number));
  if (problem) return std::unexpected(*std::move(problem));
  if (allows_type(schema, "boolean")) rules.push_back(terminal(R"("true" | "false")"));
  if (allows_type(schema, "null")) rules.push_back(terminal("\"null\""));
  if (rules.empty()) return last ? Rule(std::unexpected(*last)) : unknown_type(schema, at);
  return any_of(rules);
}

Rule SchemaCompiler::unknown_type(const json::object& schema, const std::string& at) {
  const std::string type = json::serialize(schema.at("type"));
  if (type == "[]") return unsatisfiable(at, "'type' allows no value");
  return refused(at, fmt::format("'type' is {}. Use object, array, string, number, integer, boolean or null", type.substr(0, 200)));
}

Rule SchemaCompiler::delegate_to_library(const json::value& schema, const std::string& at) {
  json::value part = schema;
  if (!part.is_object()) return needs_library();
  if (has_too_many_properties(part))
    return refused(at, fmt::format("'properties' has more than {} entries. Send a smaller schema", kMaxSchemaProperties));
  write_counts(part);
  const bool is_root = &schema == &root_;
  for (const char* const definitions : {"$defs", "definitions"}) {
    const json::value* all = root_.is_object() ? root_.get_object().if_contains(definitions) : nullptr;
    if (!is_root && all != nullptr && !part.get_object().contains(definitions) && refers(part, "$ref"))
      part.get_object()[definitions] = *all;
  }
  if (!is_root && !refers_to_definitions(part)) return needs_library();
  json::object options{
      {"item_separator", settings_.item_separator}, {"key_separator", settings_.key_separator}, {"json_allowed_escapes", kShortEscapes}};
  if (settings_.white_space.empty())
    options["whitespace_flexible"] = false;
  else
    options["whitespace_pattern"] = settings_.white_space == kFreeWhiteSpace ? kSomeWhiteSpace : settings_.white_space;
  if (settings_.is_loose) options["lenient"] = true;
  part.get_object()["x-guidance"] = std::move(options);
  if (rules_.size() > kMaxRuleBytes) return refused(at, "produces a grammar larger than 4 MiB");
  return add_rule("%json " + json::serialize(part));
}

}  // namespace quire
