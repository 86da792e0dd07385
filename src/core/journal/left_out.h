#pragma once
// Replacements for tokens in a journal that leaves them out. The core examines tokens in three places. Block hashes: their answers are
// recorded. Ids that end a request: the one token that ended it is written unchanged. Repetitions: outputs alternate between two numbers,
// and a request that looks for repetitions looks for two equal numbers. Used by the recorder of calls and by checkpoints, on the core's
// thread.
#include <cstdint>

#include "quire/base/ids.h"
#include "quire/base/kv_events.h"
#include "quire/base/request.h"
#include "quire/hash_function.h"

namespace quire {

// Returns a number that is neither a token of a model nor -1, which stands for a draft token that the worker knows. It depends on the
// position among a request's outputs; prompts and draft tokens use the first one.
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

// Return the event without tokens and digests of embeddings. Used for events that no caller has taken yet. With a key, the block hashes are
// replaced under it.
BlockStored left_out(const BlockStored& stored, const PseudonymKey* key);
BlockRemoved left_out(const BlockRemoved& removed, const PseudonymKey* key);

}  // namespace quire
