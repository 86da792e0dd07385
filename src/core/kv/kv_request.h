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

// A request as the manager sees it: views that are valid during the call.
struct KvRequest {
  KvBlocks& blocks;
  std::span<const BlockHash> hashes;  // one per full hash block of known tokens (with caching)
  std::uint32_t num_tokens = 0;       // prompt and outputs; later tokens are never cached
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_prompt_tokens = 0;       // for the choice of window blocks to cache
  std::uint32_t shared_prefix_boundary = 0;  // KvHit::shared_prefix_boundary of the look-up, for the same choice
  bool skip_reading_prefix_cache = false;
  bool was_preempted = false;  // at any time before; for the statistics
  // Content of events; needed only with enable_events.
  const RequestContent* content = nullptr;
  std::int64_t lora_id = 0;
};

// A cached prefix: one list per group, with null blocks where nothing is needed. A view, valid until the manager's next find_prefix().
// Empty `groups` are vLLM's shared empty object. A hit with empty lists is different: attaching it marks the sequence as met.
struct KvHit {
  std::span<const std::vector<BlockId>> groups;
  std::uint32_t num_tokens = 0;
  // End of a longer prefix that only some cache groups have; 0: there is no such prefix.
  std::uint32_t shared_prefix_boundary = 0;
};

// Demand of a request in one step, in tokens unless a member says blocks. The request's num_computed_tokens come before all of these.
struct SlotDemand {
  std::uint32_t num_new_tokens = 0;           // draft tokens included
  std::uint32_t num_new_computed_tokens = 0;  // tokens of the hit
  std::uint32_t num_lookahead_tokens = 0;
  std::uint32_t num_external_tokens = 0;   // computed elsewhere; the connector loads them
  std::uint32_t num_encoder_tokens = 0;    // for cross-attention
  bool delay_caching = false;              // a transfer fills the blocks
  std::uint32_t num_min_free_blocks = 0;   // blocks that must stay free if any block is taken
  std::uint32_t num_watermark_blocks = 0;  // blocks that must stay free even if no block is taken
  std::uint32_t num_reserved_blocks = 0;   // further such blocks, for allocate_slots() only
  std::uint32_t num_prefill_blocks = 0;    // further such blocks, for missing_for_full_sequence() only
  std::uint32_t num_unsure_tokens = 0;     // computed tokens that may prove wrong: windows keep the blocks that these need
};

// Room that a swapped-out sequence needs to continue, in addition to its taken blocks.
struct ReturnDemand {
  std::uint32_t num_tokens = 0;           // tokens that need slots
  std::uint32_t num_min_free_blocks = 0;  // blocks that must stay free
};

}  // namespace quire
