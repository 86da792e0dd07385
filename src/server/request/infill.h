#pragma once
// Text with a gap, for models that were trained to fill it: `suffix` of /v1/completions.
#include <optional>
#include <vector>

#include "quire/base/ids.h"
#include "quire/text/tokenizer.h"

namespace quire {

// The prompt is: before_prefix, the text before the gap, before_suffix, the text after it, at_end. The answer fills the gap.
struct Infill {
  TokenId before_prefix = -1, before_suffix = -1, at_end = -1;
  std::vector<TokenId> ends{};  // tokens that may end such an answer, in addition to the usual ones
};

// Finds the tokens by name, in this order: StarCoder, Refact and Granite; Qwen2.5-Coder and CodeGemma; DeepSeek-Coder; CodeLlama. nullopt:
// the vocabulary does not have them. Sources: the model cards; for CodeLlama infilling_prompt_tokens() in llama/generation.py of
// facebookresearch/codellama, which is "<PRE> {pre} <SUF>{suf} <MID>" with an answer that ends with <EOT>.
[[nodiscard]] std::optional<Infill> find_infill(const Tokenizer& tokenizer);

// Returns the tokens of the prompt. A BOS token at the beginning of `prefix` stays first.
[[nodiscard]] std::vector<TokenId> infill_prompt(const Infill& infill, const Tokenizer& tokenizer, std::vector<TokenId> prefix,
                                                 const std::vector<TokenId>& suffix);

}  // namespace quire
