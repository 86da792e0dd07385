#pragma once
// Which request is preempted when too few blocks are free.
//
//   running -> preempted   its blocks are free, its progress and drafts are forgotten (its tokens and output placeholders stay), and it
//                          waits at the front of the queue; its progress stays where its blocks are kept elsewhere (swap.h)
#include <cstddef>

#include "core/schedule/loops/step_budget.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/slots.h"
#include "core/schedule/requests/step_fences.h"

namespace quire {

class Preemption {
 public:
  Preemption(const Foundation& base, Slots& slots, Policy& policy, EncoderScheduler& encoder, StepBudget& budget, Swap& swap,
             StepFences& fences)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        slots_(slots),
        policy_(policy),
        encoder_(encoder),
        budget_(budget),
        swap_(swap),
        fences_(fences) {}

  // Between take_victim() and preempt() it is in no queue and not in the plan, with its blocks still its own: events can tell of them.
  struct Victim {
    Request& request;
    bool was_planned;  // in this step, which it was taken out of
  };
  // Whether the blocks of the one that would be taken can be used in this step.
  [[nodiscard]] bool frees_at_once() const;
  // Takes one out of `running`, and out of this step; the running loop is at `cursor`. preempt() is to follow.
  Victim take_victim(PlanArena& arena, std::size_t& cursor);
  void preempt(const Victim& victim);
  // All of it is to be computed again. The caller took it out of `running`. `drops_stale`: what is in flight for it will not be taken
  // (DecisionRules::stale_outputs).
  void put_back(Request& victim, bool drops_stale = false);

 private:
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
};

}  // namespace quire
