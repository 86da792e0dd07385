#pragma once
// Log probabilities of tokens as JSON, in the form that several APIs have.
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/sampling.h"
#include "quire/text/tokenizer.h"

namespace quire {

// How a token is called beside its log probability: by its text or, with `return_tokens_as_token_ids`, "token_id:ID", as in vLLM. Several
// tokens may have one text.
struct TokenNames {
  const Tokenizer& tokenizer;
  bool by_id = false;

  [[nodiscard]] std::string text(TokenId token) const;  // with U+FFFD for bytes that are no UTF-8
  [[nodiscard]] std::string name(TokenId token) const;
};

// An array with one object per position; `bytes` are the token's own, however it is called.
void append_token_logprobs(std::string& out, const TokenNames& names, const std::vector<PositionLogprobs>& positions);

}  // namespace quire
