#pragma once
// Writes log probabilities of tokens as JSON, in the format that several APIs share.
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "quire/base/sampling.h"
#include "quire/text/tokenizer.h"

namespace quire {

// Returns the names of tokens in log probabilities: the text or, with `return_tokens_as_token_ids`, "token_id:ID", as in vLLM. Several
// tokens may have the same text.
struct TokenNames {
  const Tokenizer& tokenizer;
  bool by_id = false;

  [[nodiscard]] std::string text(TokenId token) const;  // with U+FFFD in place of bytes that are not valid UTF-8
  [[nodiscard]] std::string name(TokenId token) const;
};

// Writes an array with one object per position. `bytes` always has the bytes of the token's text, also with "token_id:ID" names.
void write_token_logprobs(JsonWriter& json, const TokenNames& names, const std::vector<PositionLogprobs>& positions);

}  // namespace quire
