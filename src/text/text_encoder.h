#pragma once
// Converts plain text to token ids, by byte-level BPE or SentencePiece. Encoders are immutable after creation, except for a cache with a
// separate lock.
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
  // Appends the ids of `text`, which must be non-empty, valid UTF-8, without added tokens, normalized and with its space prefix. May stop
  // early when `out` has more than `max_size` ids. Calls `cancellation` (may be null) every few thousand merges or pieces.
  [[nodiscard]] virtual Result<void> encode(std::string_view text, std::size_t max_size, const CancellationPoint* cancellation,
                                            std::vector<TokenId>& out) const = 0;
};

// Create an encoder. `vocabulary` must outlive the encoder. Errors: `corrupt` (a merge does not consist of two tokens), `unsupported` (the
// pre-tokenizer).
Result<std::unique_ptr<const TextEncoder>> make_bpe_encoder(const TokenizerSpec& spec, const Vocabulary& vocabulary);
Result<std::unique_ptr<const TextEncoder>> make_sentencepiece_encoder(const TokenizerSpec& spec, const Vocabulary& vocabulary);

}  // namespace quire
