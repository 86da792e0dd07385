#pragma once
// Chooses and preempts a running request when too few blocks are free.
//
//   running -> preempted   The request's blocks are freed, and its computed tokens and draft tokens are reset to none. Its tokens
//                          stay, and without DecisionRules::stale_outputs its output placeholders. The request waits at the front of
//                          the queue. If its blocks are swapped out, the count of computed tokens stays (swap.h).
#include <cstddef>
#include <vector>

#include "core/schedule/loops/step_budget.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/shared_state.h"
#include "core/schedule/requests/slots.h"
#include "core/schedule/requests/step_fences.h"
#include "core/schedule/requests/tenant_turns.h"

namespace quire {

class Preemption {
 public:
  Preemption(const SharedState& base, Slots& slots, Policy& policy, EncoderScheduler& encoder, StepBudget& budget, Swap& swap,
             StepFences& fences, TenantScheduler& tenants)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        slots_(slots),
        policy_(policy),
        encoder_(encoder),
        budget_(budget),
        swap_(swap),
        fences_(fences),
        tenants_(tenants) {}

  // Between take_victim() and preempt(), the request is in no queue and not in the plan, but still holds its blocks, so that events can
  // report the blocks.
  struct Victim {
    Request& request;
    bool was_planned;  // this step had scheduled the request; take_victim() has removed it from the plan
  };
  // Returns whether this step could use the blocks of the request that would be preempted next.
  [[nodiscard]] bool frees_at_once() const;
  // Chooses a request and removes it from `running` and from this step. `cursor` is the position of the running loop. The caller must then
  // call preempt().
  Victim take_victim(PlanArena& arena, std::size_t& cursor) { return take_victim(arena, cursor, choose()); }
  // Removes the request at `chosen` in `running`.
  Victim take_victim(PlanArena& arena, std::size_t& cursor, std::vector<Request*>::iterator chosen);
  // Returns whether other requests can find blocks of this running request that only the step being planned will write.
  [[nodiscard]] bool has_unwritten_blocks(const Request& request) const;
  // Preempts the victim. The event reports the cause `why`.
  void preempt(const Victim& victim, EventCause why);
  // Preempts a request that must be computed again. The caller must have removed it from `running`. With `drops_stale`, the results of its
  // tokens in flight are dropped (DecisionRules::stale_outputs).
  void put_back(Request& victim, bool drops_stale = false);

 private:
  [[nodiscard]] std::vector<Request*>::iterator choose() const;
  void roll_back(Request& victim, PlanArena& arena);
  void stop(Request& victim, bool drops_stale);
  void forget_unwritten_blocks(const Request& victim);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  Slots& slots_;
  Policy& policy_;
  EncoderScheduler& encoder_;
  StepBudget& budget_;
  Swap& swap_;
  StepFences& fences_;
  TenantScheduler& tenants_;
};

}  // namespace quire
