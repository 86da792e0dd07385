#pragma once
// Finds blocks for a waiting request, to admit it, to load into its blocks, or to swap it in. If blocks are missing, frees blocks of other
// requests (block_reclaimer.h).
#include <cstdint>

#include "core/schedule/loops/block_reclaimer.h"
#include "core/schedule/loops/pressure.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/shared_state.h"

namespace quire {

class AdmissionAllocator {
 public:
  AdmissionAllocator(const SharedState& base, BlockReclaimer& block_reclaimer, const Pressure& pressure, Swap& swap)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        block_reclaimer_(block_reclaimer),
        pressure_(pressure),
        swap_(swap) {}

  // The first tokens of the request. With `keeps_prefill_blocks`, several prompts are computed at the same time (PrefillLimits), and the
  // blocks that running prompts still need are not available to this request.
  struct FirstChunk {
    std::int32_t num_tokens = 0;
    bool keeps_prefill_blocks = false;
  };
  // Takes the blocks that the request needs, and frees blocks of other requests if necessary. Returns the number of blocks that are still
  // missing; 0 on success.
  std::uint32_t take(Request& request, const Computed& computed, const FirstChunk& chunk, const EncoderGrant& encoder);
  // Returns whether blocks for all tokens of the request are free, without freeing blocks of other requests.
  [[nodiscard]] bool has_blocks_for(Request& request, const Computed& computed);
  enum class Return : std::uint8_t {
    begun,    // the request has its blocks and waits for their content
    blocked,  // not possible at this time
    dropped,  // the blocks do not fit although no other request runs; the request is computed again
  };
  // Begins to swap in a request that is swapped out.
  Return swap_in(Request& request);
  // Frees the blocks of a session that waits for its input. Returns false if no such session holds blocks.
  bool reclaim_idle_session(const Request& beneficiary) { return block_reclaimer_.reclaim_idle_session(beneficiary); }
  [[nodiscard]] std::uint32_t block_size(std::uint32_t group) const { return kv_.block_size(group); }
  [[nodiscard]] std::uint32_t num_blocks() const { return kv_.pool().num_blocks() - 1; }
  void report_blocked(const Request& request, EventCause cause, std::uint32_t num_missing);

 private:
  [[nodiscard]] std::uint32_t num_reserved() const;  // for DecisionRules::loads_reserve_prefill_blocks
  // Returns how many blocks running prompts still need.
  [[nodiscard]] std::uint32_t num_prefill_blocks() const;
  [[nodiscard]] bool needs_lookahead(const Request& request, const Computed& computed) const;
  std::uint32_t try_take(Request& request, const Computed& computed, const FirstChunk& chunk, const EncoderGrant& encoder);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  BlockReclaimer& block_reclaimer_;
  const Pressure& pressure_;
  Swap& swap_;
};

}  // namespace quire
