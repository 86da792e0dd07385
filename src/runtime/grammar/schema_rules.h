#pragma once
// Translates a JSON schema to rules of llguidance's Lark. The rules accept every spelling of an allowed value: all escapes of JSON, in
// names too, properties in any order, numbers with exponents, and white space within bounds. llguidance's own compiler accepts fewer
// spellings: a model that begins another spelling is forced to another value. llguidance still compiles schemas that have no rule here.
#include <boost/json/value.hpp>
#include <string>

#include "quire/base/error.h"

namespace quire {

// White space between tokens: up to 16 blanks, then up to two line feeds and the indentation of 20 levels. The bounds end the output of a
// model that repeats white space: after 16 blanks, the next white space must be a line feed.
inline constexpr const char* kFreeWhiteSpace = R"([ \t]{0,16}(?:(?:\r?\n){1,2}[ \t]{0,160})?)";
// Settings from the schema's "x-guidance". Only quire's grammars use this keyword; in a client's schema it is ignored.
struct SchemaSettings {
  bool is_loose = false;  // keywords that cannot be enforced are left out instead of refused
  // Regular expressions.
  std::string white_space;  // between tokens; may match the empty text
  std::string item_separator = ",", key_separator = ":";
};

// Returns whether llguidance must compile a schema with these settings, because they allow fewer spellings.
[[nodiscard]] bool needs_library_compiler(const boost::json::value& schema);

// Returns a grammar whose first rule is `start`. Errors: `invalid_argument` on field "structured_output": the position in the schema
// ("#/properties/a") and the keyword that cannot be enforced, or a schema that no value satisfies.
[[nodiscard]] Result<std::string> grammar_of_schema(const boost::json::value& schema);

// Returns a Lark grammar in which each `%json {...}` is replaced by rules.
[[nodiscard]] Result<std::string> with_schema_rules(const std::string& lark);

}  // namespace quire
