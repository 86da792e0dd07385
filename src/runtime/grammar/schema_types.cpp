// Compiles a schema's rules for strings, numbers, arrays and objects.
#include <fmt/ranges.h>

#include <boost/json/serialize.hpp>
#include <cmath>
#include <limits>

#include "runtime/grammar/json_numbers.h"
#include "runtime/grammar/json_patterns.h"
#include "runtime/grammar/schema_compiler.h"

namespace quire {
namespace {

namespace json = boost::json;

// Maximum number of named properties that may come in any order: llguidance's rules have a 64-bit parameter, with one bit per property.
constexpr std::size_t kMaxFreeOrder = 64;
}  // namespace

std::expected<std::optional<std::uint64_t>, Problem> SchemaCompiler::count(const json::object& schema, std::string_view word,
                                                                           const std::string& at) const {
  const json::value* value = schema.if_contains(word);
  if (value == nullptr) return std::optional<std::uint64_t>();
  const double number = value->is_number() ? value->to_number<double>() : -1;
  if (number < 0 || std::floor(number) != number || number > kMaxSchemaCount)
    return refused(at, fmt::format("'{}' must be a whole number from 0 to {}", word, kMaxSchemaCount));
  return std::optional(static_cast<std::uint64_t>(number));
}

std::optional<std::string> SchemaCompiler::times(std::uint64_t least, std::optional<std::uint64_t> most) {
  if (most && *most == 0) return std::nullopt;
  return most ? fmt::format("{{{},{}}}", least, *most) : least == 0 ? "*" : fmt::format("{{{},}}", least);
}

Rule SchemaCompiler::string(const json::object& schema, const std::string& at) {
  const auto least = count(schema, "minLength", at), most = count(schema, "maxLength", at);
  if (!least || !most) return std::unexpected(!least ? least.error() : most.error());
  if (*most && **most < least->value_or(0)) return unsatisfiable(at, "'minLength' is more than 'maxLength'");
  std::vector<std::string> demands;
  if (const json::value* pattern = schema.if_contains("pattern")) {
    if (!pattern->is_string()) return refused(at, "'pattern' must be a string");
    const auto spelled = pattern_regex(pattern->get_string());
    if (!spelled && !settings_.is_loose) return refused(at, fmt::format("'pattern' {}", spelled.error().message));
    if (spelled && !*spelled) return needs_library();
    if (spelled) demands.push_back(fmt::format("/\"{}\"/", **spelled));
  }
  if (const json::value* format = schema.if_contains("format")) {
    const auto spelled = format->is_string() ? format_regex(format->get_string()) : std::nullopt;
    if (!spelled && !settings_.is_loose)
      return refused(at, fmt::format("'format' is {}, which is not supported", json::serialize(*format).substr(0, 200)));
    if (spelled) demands.push_back(fmt::format("/\"{}\"/", *spelled));
  }
  if (*least || *most) {
    const auto repeated = times(least->value_or(0), *most);
    demands.push_back(repeated ? fmt::format(R"(/"/ {}{} /"/)", terminal("/" + any_character_regex() + "/"), *repeated) : R"("\"\"")");
  }
  return demands.empty() ? any_string() : terminal(fmt::format("{}", fmt::join(demands, " & ")));
}

Rule SchemaCompiler::number(const json::object& schema, const std::string& at, bool is_integer) {
  // Only llguidance can check divisibility.
  if (schema.contains("multipleOf")) return needs_library();
  NumberBounds bounds{.is_integer = is_integer};
  const auto read = [&](const char* word, const char* exclusive_word, bool is_max,
                        std::optional<NumberBound>& bound) -> std::optional<Problem> {
    const json::value *value = schema.if_contains(word), *exclusive = schema.if_contains(exclusive_word);
    for (const json::value* one : {value, exclusive}) {
      const bool is_flag = one == exclusive && one != nullptr && one->is_bool();  // the form of draft 4
      if (one == nullptr || is_flag) continue;
      if (!one->is_number() || !std::isfinite(one->to_number<double>()))
        return Problem{Problem::Kind::refused, at, fmt::format("'{}' must be a number", one == value ? word : exclusive_word)};
    }
    if (value != nullptr) bound = NumberBound{*value, exclusive != nullptr && *exclusive == json::value(true)};
    if (exclusive == nullptr || !exclusive->is_number()) return std::nullopt;
    const double mine = exclusive->to_number<double>(), other = bound ? bound->value.to_number<double>() : mine;
    if (is_max ? mine <= other : mine >= other) bound = NumberBound{*exclusive, true};
    return std::nullopt;
  };
  if (auto problem = read("minimum", "exclusiveMinimum", false, bounds.min)) return std::unexpected(*std::move(problem));
  if (auto problem = read("maximum", "exclusiveMaximum", true, bounds.max)) return std::unexpected(*std::move(problem));
  const auto body = number_terminal(bounds);
  return body ? Rule(terminal(*body)) : unsatisfiable(at, "no number satisfies its bounds");
}

Rule SchemaCompiler::array(const json::object& schema, const std::string& at) {
  const auto least = count(schema, "minItems", at), most = count(schema, "maxItems", at);
  if (!least || !most) return std::unexpected(!least ? least.error() : most.error());
  const std::uint64_t min = least->value_or(0);
  std::optional<std::uint64_t> max = *most;
  const json::value *first = schema.if_contains("prefixItems"), *rest = schema.if_contains("items");
  // Drafts before 2020-12 have the first items in `items`, and the rest in `additionalItems`.
  if (rest != nullptr && rest->is_array()) first = std::exchange(rest, schema.if_contains("additionalItems"));
  if (first != nullptr && !first->is_array()) return refused(at, "'prefixItems' must be an array");
  std::vector<std::string> items;
  const std::size_t num_first = first == nullptr ? 0 : first->get_array().size();
  for (std::size_t i = 0; i < num_first && (!max || i < *max); ++i) {
    const Rule item = rule_of(first->get_array()[i], fmt::format("{}/prefixItems/{}", at, i));
    if (!item && !is_unsatisfiable(item)) return item;
    if (!item) max = i;
    if (item) items.push_back(*item);
  }
  std::string tail;
  if (!max || *max > items.size()) {
    const Rule others = rest == nullptr ? Rule(any_value()) : rule_of(*rest, at + "/items");
    if (!others && !is_unsatisfiable(others)) return others;
    if (!others) max = items.size();
    if (others) tail = *others;
  }
  if (max && *max < min) return unsatisfiable(at, "'minItems' is more than the largest possible number of items");
  return add_rule(array_body(items, tail, min, max));
}

std::string SchemaCompiler::array_body(const std::vector<std::string>& items, const std::string& tail, std::uint64_t min,
                                       std::optional<std::uint64_t> max) {
  std::string next;  // rule for the items from i on, with a comma before each
  if (!tail.empty()) {
    const std::uint64_t size = items.size();
    const auto repeated = times(min > size ? min - size : 0, max ? std::optional(*max - size) : max);
    if (repeated) next = add_rule(fmt::format("({} {}){}", comma(), tail, *repeated));
  }
  for (std::size_t i = items.size(); i-- > 1;) {
    const std::string one = fmt::format("{} {} {}", comma(), items[i], next);
    next = add_rule(i < min ? one : fmt::format("({})?", one));
  }
  std::string inner;
  if (!items.empty())
    inner = items.front() + " " + next;
  else if (const auto repeated = times(min > 0 ? min - 1 : 0, max ? std::optional(*max == 0 ? 0 : *max - 1) : max);
           !tail.empty() && max != 0U)
    inner = repeated ? fmt::format("{} ({} {}){}", tail, comma(), tail, *repeated) : tail;
  if (inner.empty()) return opening('[') + " " + closing(']');
  return fmt::format("{} {} {}", opening('['), min == 0 ? "(" + inner + ")?" : inner, closing(']'));
}

std::expected<std::vector<std::string>, Problem> SchemaCompiler::required_names(const json::object& schema, const std::string& at) const {
  std::vector<std::string> names;
  const json::value* required = schema.if_contains("required");
  if (required == nullptr) return names;
  if (!required->is_array()) return refused(at, "'required' must be an array");
  for (const json::value& name : required->get_array()) {
    if (!name.is_string()) return refused(at, "'required' must contain strings");
    if (!contains_word(names, std::string_view(name.get_string()))) names.emplace_back(name.get_string());
  }
  return names;
}

std::optional<Problem> SchemaCompiler::add_member(Members& members, std::string_view name, Rule value, bool is_required) {
  const std::string key = terminal(fmt::format("/\"{}\"/", text_regex(name)));
  members.taken.push_back(key);
  if (value)
    members.named.push_back({key, *std::move(value), is_required});
  else if (!is_unsatisfiable(value) || is_required)
    return value.error();
  return std::nullopt;
}

std::optional<Problem> SchemaCompiler::add_others(Members& members, const json::object& schema, const std::string& at) {
  const json::value* patterns = schema.if_contains("patternProperties");
  const json::value* rest = schema.if_contains("additionalProperties");
  if (patterns != nullptr && !patterns->is_object()) return Problem{Problem::Kind::refused, at, "'patternProperties' must be an object"};
  const Rule others = rest == nullptr ? Rule(any_value()) : rule_of(*rest, at + "/additionalProperties");
  if (!others && !is_unsatisfiable(others)) return others.error();
  if (others) members.other = *others;
  // Names with escapes count as the same names.
  const bool is_plain = num_regex_bytes_ > kMaxRegexBytes;
  members.other_key = is_plain                ? terminal(R"(/"(?:[^"\\\x00-\x1F]|\\["\\bfnrt])*"/)")
                      : members.taken.empty() ? any_string()
                                              : terminal(fmt::format(R"(/"{}*"/)", any_name_regex()));
  if (!members.taken.empty()) {
    // Each excluded name makes the terminal more expensive to compile.
    members.other_key = terminal(fmt::format("{} & ~({})", members.other_key, fmt::join(members.taken, " | ")));
  }
  return std::nullopt;
}

Rule SchemaCompiler::object(const json::object& schema, const std::string& at) {
  const auto least = count(schema, "minProperties", at), most = count(schema, "maxProperties", at);
  const auto required = required_names(schema, at);
  if (!least || !most) return std::unexpected(!least ? least.error() : most.error());
  if (!required) return std::unexpected(required.error());
  Members members;
  members.min = least->value_or(0);
  members.max = *most;
  const json::value* properties = schema.if_contains("properties");
  if (properties != nullptr && !properties->is_object()) return refused(at, "'properties' must be an object");
  if (const json::value* patterns = schema.if_contains("patternProperties"))
    if (!patterns->is_object() || !patterns->get_object().empty()) return needs_library();
  const json::object named = properties == nullptr ? json::object() : properties->get_object();
  if (named.size() > kMaxSchemaProperties)
    return refused(at, fmt::format("'properties' has more than {} entries. Send a smaller schema", kMaxSchemaProperties));
  const auto add_named = [&](bool are_required) -> std::optional<Problem> {
    for (const auto& [name, value] : named) {
      if (contains_word(*required, std::string_view(name)) != are_required) continue;
      Rule rule = rule_of(value, fmt::format("{}/properties/{}", at, std::string_view(name)));
      if (auto problem = add_member(members, name, std::move(rule), are_required)) return problem;
    }
    return std::nullopt;
  };
  if (auto problem = add_named(true)) return std::unexpected(*std::move(problem));
  const json::value* rest = schema.if_contains("additionalProperties");
  for (const std::string& name : *required) {
    if (named.contains(name)) continue;
    Rule value = rest == nullptr ? Rule(any_value()) : rule_of(*rest, at + "/additionalProperties");
    if (auto problem = add_member(members, name, std::move(value), true)) return std::unexpected(*std::move(problem));
  }
  if (auto problem = add_named(false)) return std::unexpected(*std::move(problem));
  if (auto problem = add_others(members, schema, at)) return std::unexpected(*std::move(problem));
  return object_rule(members, required->size(), at);
}

Rule SchemaCompiler::object_rule(const Members& members, std::uint64_t num_required, const std::string& at) {
  const std::uint64_t most = members.other.empty() ? members.named.size() : std::numeric_limits<std::uint64_t>::max();
  if (members.min > most || (members.max && (*members.max < num_required || *members.max < members.min)))
    return unsatisfiable(at, "no object satisfies its bounds on the number of properties");
  const bool counts = members.min > num_required || (members.max && *members.max < most);
  if (members.named.empty()) return add_rule(map_body(members));
  // Unnamed properties set no bit, so they cannot be counted.
  if (counts && (!members.other.empty() || members.named.size() > kMaxFreeOrder)) return needs_library();
  if (members.named.size() > kMaxFreeOrder) return ordered(members);
  return free_order(members, num_required);
}

std::string SchemaCompiler::map_body(const Members& members) {
  const std::string pair = members.other.empty() ? "" : fmt::format("{} {} {}", members.other_key, colon(), members.other);
  if (pair.empty() || members.max == 0U) return R"("{}")";
  const auto repeated = times(members.min > 0 ? members.min - 1 : 0, members.max ? std::optional(*members.max - 1) : members.max);
  const std::string inner = repeated ? fmt::format("{0} ({1} {0}){2}", pair, comma(), *repeated) : pair;
  return fmt::format("{} {} {}", opening('{'), members.min == 0 ? "(" + inner + ")?" : inner, closing('}'));
}

std::string SchemaCompiler::free_order(const Members& members, std::uint64_t num_required) {
  const std::string pair = fmt::format("p{}", num_rules_++), next = fmt::format("q{}", num_rules_++);
  const std::string brace = closing('}'), more = members.max ? fmt::format("bit_count_lt(_, {})", *members.max) : "";
  std::vector<std::string> pairs;
  for (std::size_t i = 0; i < members.named.size(); ++i) {
    const Member& member = members.named[i];
    const std::string is_new = fmt::format("bit_clear({})", i);
    pairs.push_back(fmt::format("{} {} {} {}::set_bit({}) %if {}", member.key, colon(), member.value, next, i,
                                more.empty() ? is_new : fmt::format("and({}, {})", is_new, more)));
  }
  if (!members.other.empty()) pairs.push_back(fmt::format("{} {} {} {}::_", members.other_key, colon(), members.other, next));
  std::string is_complete = num_required == 0 ? "" : fmt::format("is_ones([0:{}])", num_required);
  if (members.min > num_required) {
    const std::string counted = fmt::format("bit_count_ge(_, {})", members.min);
    is_complete = is_complete.empty() ? counted : fmt::format("and({}, {})", is_complete, counted);
  }
  add(pair + "::_", fmt::format("{}", fmt::join(pairs, " | ")));
  // Allows no comma after the last allowed property, because a model that writes a comma could not continue.
  const std::uint64_t most = std::min<std::uint64_t>(members.named.size(), members.max.value_or(members.named.size()));
  const std::string has_more = members.other.empty() ? fmt::format(" %if bit_count_lt(_, {})", most) : "";
  add(next + "::_", fmt::format("{}{} | {} {}::_{}", brace, is_complete.empty() ? "" : " %if " + is_complete, comma(), pair, has_more));
  const bool may_be_empty = num_required == 0 && members.min == 0;
  const std::string inner = fmt::format("{} {}::0x0", opening('{'), pair);
  return add_rule(may_be_empty ? fmt::format("{} {} | {}", opening('{'), brace, inner) : inner);
}

std::string SchemaCompiler::ordered(const Members& members) {
  std::string first = closing('}'), behind = first;  // rules after no property, and after a property
  if (!members.other.empty()) {
    const std::string pair = fmt::format("{} {} {}", members.other_key, colon(), members.other);
    behind = add_rule(fmt::format("({} {})* {}", comma(), pair, closing('}')));
    first = add_rule(fmt::format("{} {} | {}", pair, behind, closing('}')));
  }
  for (std::size_t i = members.named.size(); i-- > 0;) {
    const Member& member = members.named[i];
    const std::string pair = fmt::format("{} {} {} {}", member.key, colon(), member.value, behind);
    first = add_rule(member.is_required ? pair : fmt::format("{} | {}", pair, first));
    behind = add_rule(fmt::format("{} {}{}", comma(), pair, member.is_required ? "" : " | " + behind));
  }
  return add_rule(opening('{') + " " + first);
}

}  // namespace quire
