#pragma once
// Text with a hole, for models that were trained to fill it: `suffix` of /v1/completions.
#include <optional>
#include <vector>

#include "quire/base/ids.h"
#include "quire/text/tokenizer.h"

namespace quire {

// The prompt is: before_prefix, the text before the hole, before_suffix, the text behind it, at_end; the answer fills the hole.
struct Infill {
  TokenId before_prefix = -1, before_suffix = -1, at_end = -1;
  std::vector<TokenId> ends{};  // with which such a model may end an answer, besides what ends any
};

// By the names of tokens: those of StarCoder, Refact and Granite, of Qwen2.5-Coder and CodeGemma, of DeepSeek-Coder, and of CodeLlama.
// nullopt: the vocabulary has none of them. Sources: the models' cards; of CodeLlama infilling_prompt_tokens() in llama/generation.py of
// facebookresearch/codellama, which is "<PRE> {pre} <SUF>{suf} <MID>" with an answer that ends with <EOT>.
[[nodiscard]] std::optional<Infill> find_infill(const Tokenizer& tokenizer);

// What a text begins with by rule (BOS) stays in front of `prefix`.
[[nodiscard]] std::vector<TokenId> infill_prompt(const Infill& infill, const Tokenizer& tokenizer, std::vector<TokenId> prefix,
                                                 const std::vector<TokenId>& suffix);

}  // namespace quire
