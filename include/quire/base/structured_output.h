#pragma once
// Constraint on the form of an answer: before each token is sampled, all tokens that cannot lead to a valid answer are masked (by
// llguidance). A value. A thread of the engine compiles it; if it does not compile, its request ends.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"

namespace quire {

// The grammar of one answer.
struct StructuredOutput {
  enum class Kind : std::uint8_t {
    json_schema,  // `text` is a JSON schema, of drafts up to 2020-12; parts that cannot be enforced are rejected by name
    regex,        // a regular expression in the syntax of Rust's crate `regex`, for the whole answer
    lark          // a grammar in llguidance's variant of Lark
  };
  Kind kind = Kind::json_schema;
  std::string text;
  // If an answer begins with other text, such as a reasoning part: the tokens after which the grammar begins. Empty: the grammar begins
  // with the first token.
  std::vector<TokenId> begin_after = {};

  friend bool operator==(const StructuredOutput&, const StructuredOutput&) = default;
};

// Returns true if this build contains llguidance. Without it, requests with structured output are rejected.
[[nodiscard]] QUIRE_API bool has_structured_output();

// Checks that an answer can be constrained to a JSON schema, as the engine does when it compiles the schema. Takes some milliseconds at
// most. `is_loose`: parts that cannot be enforced are ignored instead of rejected. Error: `invalid_argument`, field "structured_output",
// with the position in the schema and the problem. In a build without llguidance, every schema passes.
[[nodiscard]] QUIRE_API Result<void> check_schema(const std::string& schema, bool is_loose);

}  // namespace quire
