#pragma once
// What an answer must look like: before each token is drawn, those that nothing valid could follow are masked (llguidance does it).
// A value. It is compiled on a thread of the engine's; what is wrong in it ends its request with an error then.
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"

namespace quire {

struct StructuredOutput {
  enum class Kind : std::uint8_t {
    json_schema,  // `text` is a JSON schema, of drafts up to 2020-12; what of it cannot be held is refused by name
    regex,        // a regular expression in the syntax of Rust's crate `regex`, for the whole answer
    lark          // a grammar in llguidance's variant of Lark
  };
  Kind kind = Kind::json_schema;
  std::string text;
  // It begins behind these tokens, where an answer begins with something else, such as a reasoning part; empty: with the first token.
  std::vector<TokenId> begin_after = {};

  friend bool operator==(const StructuredOutput&, const StructuredOutput&) = default;
};

// Whether this build has llguidance; without it structured output is refused.
[[nodiscard]] QUIRE_API bool has_structured_output();

}  // namespace quire
