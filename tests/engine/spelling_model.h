#pragma once
// A simulated model whose tokens are bytes, as far as there are ids, so that grammars can constrain its answers. The last token ends an
// answer.
#include <memory>
#include <string>
#include <utility>

#include "engine/simulated_engine.h"
#include "text/vocabulary.h"

namespace quire {

inline ModelInfo spelling_model() {
  ModelInfo model = simulated_model();
  TokenizerSpec spec;
  spec.algorithm = TokenizerSpec::Algorithm::bpe_bytes;
  spec.pre = "gpt-2";
  for (unsigned byte = 0; byte < kEos; ++byte) spec.tokens.push_back(to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  spec.types.assign(kEos, TokenizerSpec::TokenType::normal);
  spec.tokens.emplace_back("<|end|>");
  spec.types.push_back(TokenizerSpec::TokenType::control);
  spec.eos = kEos;
  spec.eog = {kEos};
  model.tokenizer = std::make_shared<const TokenizerSpec>(std::move(spec));
  return model;
}

}  // namespace quire
