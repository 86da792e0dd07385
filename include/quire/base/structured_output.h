#pragma once
// The form that an answer must have: before each token is sampled, all tokens that cannot lead to a valid answer are masked (by
// llguidance). A value. A thread of the engine compiles it; an error in it ends its request then.
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
    json_schema,  // `text` is a JSON schema, of drafts up to 2020-12; parts that cannot be enforced are refused by name
    regex,        // a regular expression in the syntax of Rust's crate `regex`, for the whole answer
    lark          // a grammar in llguidance's variant of Lark
  };
  Kind kind = Kind::json_schema;
  std::string text;
  // The grammar begins after these tokens, if an answer begins with something else, such as a reasoning part. Empty: with the first token.
  std::vector<TokenId> begin_after = {};

  friend bool operator==(const StructuredOutput&, const StructuredOutput&) = default;
};

// Returns true if this build has llguidance. Without it structured output is refused.
[[nodiscard]] QUIRE_API bool has_structured_output();

// Checks that an answer can be constrained to a JSON schema, as the engine does when it compiles the schema. This takes some milliseconds
// at most. `is_loose`: parts that cannot be enforced may be left out. Errors: `invalid_argument`, field "structured_output": the position
// in the schema and the problem there. Without llguidance no schema is an error.
[[nodiscard]] QUIRE_API Result<void> check_schema(const std::string& schema, bool is_loose);

}  // namespace quire
