#pragma once
// Inputs and results of the KV cache manager for one request.
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/hash/hash_input.h"
#include "core/kv/kv_blocks.h"
#include "quire/base/ids.h"
#include "quire/hash_function.h"

namespace quire {

// A request as the manager sees it. Its views must be valid during the call.
struct KvRequest {
  KvBlocks& blocks;
  std::span<const BlockHash> hashes;  // one per full hash block of known tokens (only with caching)
  std::uint32_t num_tokens = 0;       // prompt and output tokens; tokens beyond them are never cached
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_prompt_tokens = 0;       // decides which window blocks are cached
  std::uint32_t shared_prefix_boundary = 0;  // KvHit::shared_prefix_boundary of the look-up; also decides which window blocks are cached
  bool skip_reading_prefix_cache = false;
  bool was_preempted = false;  // at any earlier time; for the statistics
  // Content for events; required only with enable_events.
  const RequestContent* content = nullptr;
  std::int64_t lora_id = 0;
};

// A cached prefix: one block list per group, with null blocks where the group needs no block. A view, valid until the manager's next
// find_prefix(). Empty `groups` correspond to vLLM's shared empty object. Attaching a hit with empty lists, in contrast, marks the sequence
// as tracked.
struct KvHit {
  std::span<const std::vector<BlockId>> groups;
  std::uint32_t num_tokens = 0;
  // End of a longer prefix that only some cache groups have; 0 if no such prefix exists.
  std::uint32_t shared_prefix_boundary = 0;
};

// The slots that a request needs in one step, in tokens unless a member says blocks. All tokens come after the request's
// num_computed_tokens.
struct SlotDemand {
  std::uint32_t num_new_tokens = 0;           // draft tokens included
  std::uint32_t num_new_computed_tokens = 0;  // tokens of the hit
  std::uint32_t num_lookahead_tokens = 0;
  std::uint32_t num_external_tokens = 0;   // computed elsewhere; the connector loads them
  std::uint32_t num_encoder_tokens = 0;    // for cross-attention
  bool delay_caching = false;              // a transfer fills the blocks
  std::uint32_t num_min_free_blocks = 0;   // blocks that must stay free if any block is taken
  std::uint32_t num_watermark_blocks = 0;  // blocks that must stay free even if no block is taken
  std::uint32_t num_reserved_blocks = 0;   // more blocks that must stay free even if no block is taken; for allocate_slots() only
  // More blocks that must stay free even if no block is taken; for missing_for_full_sequence() only.
  std::uint32_t num_prefill_blocks = 0;
  std::uint32_t num_unsure_tokens = 0;  // computed tokens that may be rejected: windows keep the blocks that are needed if they are
};

// Blocks that a swapped-out sequence needs to continue, in addition to its swapped-out blocks.
struct ReturnDemand {
  std::uint32_t num_tokens = 0;           // tokens that need slots
  std::uint32_t num_min_free_blocks = 0;  // blocks that must stay free
};

}  // namespace quire
