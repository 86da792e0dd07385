#pragma once
// Placeholders for tokens in a journal without tokens. The core reads the values of tokens for three purposes:
// - Block hashes: the answers of the hash function are recorded.
// - Token ids that end a request: the token that ended it is recorded unchanged.
// - Repetitions: placeholders of outputs alternate between two numbers, and a request that detects repetitions looks for two equal numbers.
// Used by the recorder of calls and by checkpoints, on the core's thread, and by replays.
#include <cstdint>

#include "quire/base/ids.h"
#include "quire/base/kv_events.h"
#include "quire/base/request.h"
#include "quire/hash_function.h"

namespace quire {

// Returns a placeholder, which is neither a valid token nor -1 (a placeholder for a draft token). It depends on the position among the
// request's outputs; prompts and draft tokens use position 0.
constexpr TokenId left_out(std::uint64_t output = 0) {
  return output % 2 == 0 ? -2 : -3;
}

constexpr bool looks_for_repetition(const RepetitionDetection& detection) {
  return detection.max_pattern_tokens > 0 && detection.min_count >= 2;
}

constexpr RepetitionDetection left_out(const RepetitionDetection& detection) {
  if (!looks_for_repetition(detection)) return detection;
  return {.min_pattern_tokens = 1, .max_pattern_tokens = 1, .min_count = 2};
}

// Return the event without tokens and without digests of embeddings, for events that no caller has taken yet. With a key, the block hashes
// are replaced by pseudonyms.
BlockStored left_out(const BlockStored& stored, const PseudonymKey* key);
BlockRemoved left_out(const BlockRemoved& removed, const PseudonymKey* key);

}  // namespace quire
