#pragma once
// What the KV manager is given of a request, and what it answers.
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/hash/hash_input.h"
#include "core/kv/kv_blocks.h"
#include "quire/base/ids.h"
#include "quire/hash_function.h"

namespace quire {

// A request as the manager sees it: views, valid during the call.
struct KvRequest {
  KvBlocks& blocks;
  std::span<const BlockHash> hashes;  // one per full hash block of known tokens (with caching)
  std::uint32_t num_tokens = 0;       // prompt and outputs; more are never cached
  std::uint32_t num_computed_tokens = 0;
  std::uint32_t num_prompt_tokens = 0;       // for what of a window is found again,
  std::uint32_t shared_prefix_boundary = 0;  // and KvHit::shared_prefix_boundary of its look-up
  bool skip_reading_prefix_cache = false;
  bool was_preempted = false;  // ever; for the statistics
  // What events carry besides blocks; needed with enable_events only.
  const RequestContent* content = nullptr;
  std::int64_t lora_id = 0;
};

// A cached prefix: one list per group, null blocks where nothing is needed. A view, valid until the manager's next find_prefix().
// `groups` empty is vLLM's shared empty object; a hit with empty lists is not the same: attaching it marks the sequence as met.
struct KvHit {
  std::span<const std::vector<BlockId>> groups;
  std::uint32_t num_tokens = 0;
  // Where a longer prefix ends that some cache groups have and others lack; 0: there is none.
  std::uint32_t shared_prefix_boundary = 0;
};

// What a request needs of one step, all in tokens; num_computed_tokens of the request lie before all of these.
struct SlotDemand {
  std::uint32_t num_new_tokens = 0;           // drafts included
  std::uint32_t num_new_computed_tokens = 0;  // of the hit
  std::uint32_t num_lookahead_tokens = 0;
  std::uint32_t num_external_tokens = 0;   // computed elsewhere; the connector writes them
  std::uint32_t num_encoder_tokens = 0;    // for cross-attention
  bool delay_caching = false;              // the blocks are filled by a transfer
  std::uint32_t num_left_free = 0;         // blocks that must be free afterwards, where any is taken
  std::uint32_t num_watermark_blocks = 0;  // the same, asked also where none is taken,
  std::uint32_t num_reserved_blocks = 0;   // and these of allocate_slots() alone
  std::uint32_t num_unsure_tokens = 0;     // so many of the computed ones may prove wrong: windows keep what these need
};

// What a sequence needs beside the blocks that it gave away, to go on.
struct ReturnDemand {
  std::uint32_t num_tokens = 0;     // have room for
  std::uint32_t num_left_free = 0;  // blocks that must be free afterwards
};

}  // namespace quire
