#pragma once
// Finds blocks for waiting requests: to admit one, to let one wait for its load, or to swap one in. Frees what other requests may give up
// (block_reclaimer.h).
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

  // The tokens that the request runs first. `keeps_prefill_blocks`: prompts are computed side by side (PrefillLimits), so the blocks that
  // running ones still need are not free for this request.
  struct FirstChunk {
    std::int32_t num_tokens = 0;
    bool keeps_prefill_blocks = false;
  };
  // Takes the blocks that the request needs. Returns the number of blocks that are missing after other requests gave up what they can; 0:
  // success.
  std::uint32_t take(Request& request, const Computed& computed, const FirstChunk& chunk, const EncoderGrant& encoder);
  // Returns whether take() would find the blocks for all of the request's tokens without taking any from other requests.
  [[nodiscard]] bool has_blocks_for(Request& request, const Computed& computed);
  enum class Return : std::uint8_t {
    begun,    // it has blocks, and waits for their content
    blocked,  // not possible now
    dropped,  // its blocks do not fit even while no other request runs: it is computed again
  };
  // Swaps in a request that was swapped out.
  Return swap_in(Request& request);
  // Frees the blocks of a session that waits for its input. False: there is no such session.
  bool reclaim_idle_session(const Request& beneficiary) { return block_reclaimer_.reclaim_idle_session(beneficiary); }
  [[nodiscard]] std::uint32_t block_size(std::uint32_t group) const { return kv_.block_size(group); }
  [[nodiscard]] std::uint32_t num_blocks() const { return kv_.pool().num_blocks() - 1; }
  void report_blocked(const Request& request, EventCause cause, std::uint32_t num_missing);

 private:
  [[nodiscard]] std::uint32_t num_reserved() const;  // for DecisionRules::loads_reserve_prefill_blocks
  // Returns the blocks that running prompts still need.
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
