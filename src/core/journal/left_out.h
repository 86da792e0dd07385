#pragma once
// What stands for tokens in a journal that leaves them out. The core looks at a token in three places: names of blocks (whose answers are
// recorded), ids that end a request (the one token that did is written as it is), and repetitions: outputs alternate between two numbers,
// and a request that looks for repetitions looks for two equal ones.
// Used by the recorder of calls and by checkpoints, on the core's thread.
#include <cstdint>

#include "quire/base/ids.h"
#include "quire/base/kv_events.h"
#include "quire/base/request.h"
#include "quire/hash_function.h"

namespace quire {

// No token of a model, and not what stands for a draft that the worker knows (-1). By the place among a request's outputs; of prompts and
// drafts the first one.
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

// Events that nobody has taken yet, without tokens and digests of embeddings; with a key blocks have other names in them.
BlockStored left_out(const BlockStored& stored, const NameKey* names);
BlockRemoved left_out(const BlockRemoved& removed, const NameKey* names);

}  // namespace quire
