#pragma once
// Log probabilities of tokens as JSON, in the form that several APIs share.
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"
#include "quire/base/sampling.h"
#include "quire/text/tokenizer.h"

namespace quire {

// Names tokens in log probabilities: by their text or, with `return_tokens_as_token_ids`, as "token_id:ID", as in vLLM. Several tokens may
// have the same text.
struct TokenNames {
  const Tokenizer& tokenizer;
  bool by_id = false;

  [[nodiscard]] std::string text(TokenId token) const;  // with U+FFFD in place of bytes that are not valid UTF-8
  [[nodiscard]] std::string name(TokenId token) const;
};

// Writes an array with one object per position. `bytes` are always the bytes of the token, however it is named.
void write_token_logprobs(JsonWriter& json, const TokenNames& names, const std::vector<PositionLogprobs>& positions);

}  // namespace quire
