#pragma once
// Builds prompts with a gap for models that were trained to fill it (fill-in-the-middle): `suffix` of /v1/completions.
#include <optional>
#include <vector>

#include "quire/base/ids.h"
#include "quire/text/tokenizer.h"

namespace quire {

// The special tokens of a prompt with a gap, which consists of: before_prefix, the text before the gap, before_suffix, the text after the
// gap, at_end. The answer fills the gap.
struct Infill {
  TokenId before_prefix = -1, before_suffix = -1, at_end = -1;
  std::vector<TokenId> ends{};  // tokens that end the answer, in addition to the usual ones
};

// Finds the special tokens by name, in this order: StarCoder, Refact and Granite; Qwen2.5-Coder and CodeGemma; DeepSeek-Coder; CodeLlama.
// Returns nullopt if the vocabulary has none of these sets. Sources: the model cards; for CodeLlama infilling_prompt_tokens() in
// llama/generation.py of facebookresearch/codellama, which builds "<PRE> {pre} <SUF>{suf} <MID>" and ends the answer with <EOT>.
[[nodiscard]] std::optional<Infill> find_infill(const Tokenizer& tokenizer);

// Returns the tokens of the prompt. If `prefix` begins with BOS, the prompt begins with BOS too.
[[nodiscard]] std::vector<TokenId> infill_prompt(const Infill& infill, const Tokenizer& tokenizer, std::vector<TokenId> prefix,
                                                 const std::vector<TokenId>& suffix);

}  // namespace quire
