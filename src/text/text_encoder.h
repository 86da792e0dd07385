#pragma once
// The two ways from plain text to ids: byte-level BPE and SentencePiece. Immutable after create but for a cache under its own lock.
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "text/vocabulary.h"

namespace quire {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Appends the ids of `text`: valid UTF-8 without added tokens, normalized and prefixed, not empty. Once `out` holds more than `max_size`
  // ids, it may stop early.
  [[nodiscard]] virtual Result<void> encode(std::string_view text, std::size_t max_size, std::vector<TokenId>& out) const = 0;
};

// `vocabulary` must outlive what is returned. Errors: `corrupt` (a merge that names no tokens), `unsupported` (a pre-tokenizer).
Result<std::unique_ptr<const TextEncoder>> make_bpe_encoder(const TokenizerSpec& spec, const Vocabulary& vocabulary);
Result<std::unique_ptr<const TextEncoder>> make_sentencepiece_encoder(const TokenizerSpec& spec, const Vocabulary& vocabulary);

}  // namespace quire
