#pragma once
// Compiles one schema to rules; other files use schema_rules.h. Each part of a schema gets one of these results:
//   a rule or terminal   the part is enforced here, in all spellings
//   unsatisfiable        no value satisfies the part: it is left out if it may be missing
//   needs_library        llguidance compiles the part, or the part around it: keywords that cannot be merged into one schema
//   refused              the result is an error that names the position in the schema
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <expected>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/append_format.h"
#include "quire/base/error.h"
#include "runtime/grammar/json_escapes.h"
#include "runtime/grammar/schema_rules.h"

namespace quire {

inline constexpr std::size_t kMaxSchemaProperties = 3000;  // per object: compile time is quadratic, half a second for 3,000
inline constexpr double kMaxSchemaCount = 1e9;             // characters, items or properties
// Limit in bytes for all names and constants. Above this limit, each name and constant has only one spelling: each further spelling costs
// the lexer ten times the size.
inline constexpr std::size_t kMaxRegexBytes = std::size_t{32} << 10;

template <class Words>
bool contains_word(const Words& words, std::string_view word) {
  return std::ranges::find(words, word) != std::ranges::end(words);
}

struct Problem {
  enum class Kind : std::uint8_t { unsatisfiable, needs_library, refused };
  Kind kind;
  std::string at, message;
};
// Name of a rule or terminal.
using Rule = std::expected<std::string, Problem>;

inline std::unexpected<Problem> refused(std::string at, std::string message) {
  return std::unexpected(Problem{Problem::Kind::refused, std::move(at), std::move(message)});
}
inline std::unexpected<Problem> unsatisfiable(std::string at, std::string message) {
  return std::unexpected(Problem{Problem::Kind::unsatisfiable, std::move(at), std::move(message)});
}
inline std::unexpected<Problem> needs_library() {
  return std::unexpected(Problem{Problem::Kind::needs_library, {}, {}});
}
inline bool is_unsatisfiable(const Rule& rule) {
  return !rule && rule.error().kind == Problem::Kind::unsatisfiable;
}

// Reads the settings in the schema's "x-guidance".
[[nodiscard]] SchemaSettings settings_of(const boost::json::value& schema);

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const boost::json::value& root) : root_(root), settings_(settings_of(root)) {}

  Result<std::string> make();

 private:
  void add(std::string_view name, std::string_view body) { append_format(rules_, "{}: {}\n", name, body); }
  std::string add_rule(std::string_view body);
  // Returns the name of the terminal with this body; adds a new terminal if needed.
  std::string terminal(const std::string& body);
  std::string any_string() { return terminal(fmt::format(R"(/"{}*"/)", any_character_regex())); }
  std::string comma() { return terminal(fmt::format("/{0}{1}{0}/", settings_.white_space, settings_.item_separator)); }
  std::string colon() { return terminal(fmt::format("/{0}{1}{0}/", settings_.white_space, settings_.key_separator)); }
  std::string opening(char c) { return terminal(fmt::format(R"(/\{}{}/)", c, settings_.white_space)); }
  std::string closing(char c) { return terminal(fmt::format(R"(/{}\{}/)", settings_.white_space, c)); }

  // Returns the only element of `parts`, or a new rule that chooses one of them.
  std::string any_of(const std::vector<std::string>& parts);

  std::string any_value();
  std::string any_array() { return *array(boost::json::object(), ""); }
  std::string any_object() { return *object(boost::json::object(), ""); }

  Rule rule_of(const boost::json::value& schema, const std::string& at);

  // Returns whether a keyword has no effect.
  static bool has_no_effect(const boost::json::object& schema, std::string_view word, const boost::json::value& value);
  // Returns the schema without annotations and, if `is_loose`, without keywords that cannot be enforced.
  std::expected<boost::json::object, Problem> without_annotations(const boost::json::object& schema, const std::string& at) const;

  // Compiles a schema that has only keywords of `kSupportedKeywords`.
  Rule compile_supported(const boost::json::object& schema, const std::string& at);

  static boost::json::object without(const boost::json::object& schema, std::string_view word);
  // Returns the keywords of a part, including the keywords of the schema that its $ref names.
  std::expected<boost::json::object, Problem> resolved_part(const boost::json::value& part, const std::string& at);

  std::expected<const boost::json::value*, Problem> target_of(const boost::json::value& reference, const std::string& at) const;
  // Decodes percent escapes of a URI, such as %25.
  static std::string unescaped(std::string_view text);

  Rule reference(const boost::json::object& schema, const std::string& at);

  Rule all_of(const boost::json::object& schema, const std::string& at);

  Rule choice(const boost::json::object& schema, std::string_view word, const std::string& at);
  Rule branch(const boost::json::object& rest, const boost::json::value& part, const std::string& at);

  Rule constants(const boost::json::object& schema, const std::string& at);
  std::optional<std::string> scalar_terminal(const boost::json::value& value);
  Rule constant_rule(const boost::json::value& value, const std::string& at);
  // Returns a regular expression for a name or a constant, without quotes.
  std::string text_regex(std::string_view text);

  Rule by_type(const boost::json::object& schema, const std::string& at);
  static Rule unknown_type(const boost::json::object& schema, const std::string& at);

  // Returns the value of a keyword that is a count, for example maxItems. 2.0 is a valid count.
  std::expected<std::optional<std::uint64_t>, Problem> count(const boost::json::object& schema, std::string_view word,
                                                             const std::string& at) const;
  // Returns the Lark repetition {least,most}; nullopt if no repetition is allowed.
  static std::optional<std::string> times(std::uint64_t least, std::optional<std::uint64_t> most);

  Rule string(const boost::json::object& schema, const std::string& at);

  Rule number(const boost::json::object& schema, const std::string& at, bool is_integer);

  Rule array(const boost::json::object& schema, const std::string& at);
  // Returns the rule body of an array. `tail` is the rule of each item after `items`; empty: no such item is allowed.
  std::string array_body(const std::vector<std::string>& items, const std::string& tail, std::uint64_t min,
                         std::optional<std::uint64_t> max);

  struct Member {
    std::string key, value;  // terminal, rule
    bool is_required;
  };
  struct Members {
    std::vector<Member> named;       // required members first
    std::vector<std::string> taken;  // terminals of the names of the named properties
    std::string other_key, other;    // terminal and rule of properties that are not named; empty: not allowed
    std::uint64_t min = 0;
    std::optional<std::uint64_t> max{};
  };

  std::expected<std::vector<std::string>, Problem> required_names(const boost::json::object& schema, const std::string& at) const;

  std::optional<Problem> add_member(Members& members, std::string_view name, Rule value, bool is_required);
  std::optional<Problem> add_others(Members& members, const boost::json::object& schema, const std::string& at);

  Rule object(const boost::json::object& schema, const std::string& at);

  Rule object_rule(const Members& members, std::uint64_t num_required, const std::string& at);
  std::string map_body(const Members& members);
  // Returns a rule for named properties in any order. One bit per property records whether it was written.
  std::string free_order(const Members& members, std::uint64_t num_required);
  // Returns a rule for named properties in the order of `named`; other properties come last.
  std::string ordered(const Members& members);

  // Returns a rule that llguidance compiles from the schema. Strings may have only short escapes, so that a model cannot begin an escape
  // sequence that it may not complete.
  Rule delegate_to_library(const boost::json::value& schema, const std::string& at);

  struct Pending {
    std::string rule;
    const boost::json::value* target;
    std::string at;
  };
  const boost::json::value& root_;
  SchemaSettings settings_;
  std::string rules_, any_;
  std::size_t num_rules_ = 0, num_regex_bytes_ = 0, num_merges_ = 0;
  int levels_ = 0;
  std::unordered_map<std::string, std::string> terminals_;
  std::map<const boost::json::value*, std::string> references_;
  std::vector<Pending> pending_;
};

}  // namespace quire
