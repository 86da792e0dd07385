#pragma once
// Converts plain text to ids, by byte-level BPE or SentencePiece. Encoders are immutable after creation, except for a cache with its own
// lock.
#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "quire/base/cancellation_point.h"
#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "text/vocabulary.h"

namespace quire {

class TextEncoder {
 public:
  virtual ~TextEncoder() = default;
  // Appends the ids of `text`: not empty, valid UTF-8, without added tokens, normalized and with its space prefix. May stop early when
  // `out` holds more than `max_size` ids. Checks `cancellation` (may be null) every few thousand merges or pieces.
  [[nodiscard]] virtual Result<void> encode(std::string_view text, std::size_t max_size, const CancellationPoint* cancellation,
                                            std::vector<TokenId>& out) const = 0;
};

// Create an encoder. `vocabulary` must outlive it. Errors: `corrupt` (a merge that is not two tokens), `unsupported` (the pre-tokenizer).
Result<std::unique_ptr<const TextEncoder>> make_bpe_encoder(const TokenizerSpec& spec, const Vocabulary& vocabulary);
Result<std::unique_ptr<const TextEncoder>> make_sentencepiece_encoder(const TokenizerSpec& spec, const Vocabulary& vocabulary);

}  // namespace quire
