#pragma once
// The waiting loop: requests are admitted to the batch in the order of the queues. One that must wait for a reason of its own (its grammar,
// its transfer, its adapter) is skipped, and goes before those skipped earlier; one that lacks blocks or tokens ends the loop. Those
// behind, where tokens or slots were what lacked, may begin to load (early_loads.h).
//
//   waiting, preempted -> running          admit: with the blocks of its cached prefix and of its first chunk
//   waiting, preempted -> waiting_for_remote_kv   with the blocks that the connector fills
//   preempted -> waiting_for_remote_kv            with blocks for those that lie outside of the pool (swap.h)
#include <cstdint>

#include "core/kv/kv_cache_manager.h"
#include "core/schedule/context.h"
#include "core/schedule/early_loads.h"
#include "core/schedule/encoder_inputs.h"
#include "core/schedule/forks.h"
#include "core/schedule/giving_way.h"
#include "core/schedule/look_up.h"
#include "core/schedule/plan_arena.h"
#include "core/schedule/pressure.h"
#include "core/schedule/queues.h"
#include "core/schedule/request.h"
#include "core/schedule/requests.h"
#include "core/schedule/slots.h"
#include "core/schedule/step_budget.h"
#include "core/schedule/swap.h"

namespace quire {

class WaitingLoop {
 public:
  WaitingLoop(Context& context, KvCacheManager& kv, Requests& requests, Queues& queues, Slots& slots, GivingWay& giving_way, Forks& forks,
              EncoderScheduler& encoder, StepBudget& budget, LookUp& look_up, Pressure& pressure, Swap& swap, EarlyLoads& early_loads)
      : context_(context),
        kv_(kv),
        requests_(requests),
        queues_(queues),
        slots_(slots),
        giving_way_(giving_way),
        forks_(forks),
        encoder_(encoder),
        budget_(budget),
        look_up_(look_up),
        pressure_(pressure),
        swap_(swap),
        early_loads_(early_loads) {}

  void schedule(PlanArena& arena);

 private:
  enum class Admission : std::uint8_t { admitted, skipped, lacks_tokens, blocked };

  // Whether somebody is left for whom there was no slot, or too few tokens.
  bool admit_waiting(PlanArena& arena);
  RequestQueue& queue_to_take_from();  // one at least is not empty
  Admission try_admit(Request& request, RequestQueue& queue, PlanArena& arena);
  // One whose blocks lie outside of the pool waits for them from now on.
  Admission try_bring_back(Request& request, RequestQueue& queue);
  Admission blocked(const Request& request, EventCause cause, std::uint32_t num_missing);
  // 0: without chunked prefill, it does not fit into what is left of the step.
  [[nodiscard]] std::int32_t num_tokens_to_admit(const Request& request, std::int32_t num_computed_tokens) const;
  // The number of blocks that lack; 0: it has them.
  std::uint32_t take_blocks(Request& request, const Computed& computed, std::int32_t num_new_tokens, const EncoderGrant& encoder);
  void admit(Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens, PlanArena& arena);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  Slots& slots_;
  GivingWay& giving_way_;
  Forks& forks_;
  EncoderScheduler& encoder_;
  StepBudget& budget_;
  LookUp& look_up_;
  Pressure& pressure_;
  Swap& swap_;
  EarlyLoads& early_loads_;
};

}  // namespace quire
