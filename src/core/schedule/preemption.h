#pragma once
// Which request is preempted when too few blocks are free.
//
//   running -> preempted   its blocks are free, its progress and drafts are forgotten (its tokens and output placeholders stay), and it
//                          waits at the front of the queue
#include <cstddef>

#include "core/kv/kv_cache_manager.h"
#include "core/schedule/context.h"
#include "core/schedule/encoder_inputs.h"
#include "core/schedule/plan_arena.h"
#include "core/schedule/policy.h"
#include "core/schedule/queues.h"
#include "core/schedule/request.h"
#include "core/schedule/requests.h"
#include "core/schedule/slots.h"
#include "core/schedule/step_budget.h"

namespace quire {

class Preemption {
 public:
  Preemption(Context& context, KvCacheManager& kv, Requests& requests, Queues& queues, Slots& slots, Policy& policy,
             EncoderScheduler& encoder, StepBudget& budget)
      : context_(context),
        kv_(kv),
        requests_(requests),
        queues_(queues),
        slots_(slots),
        policy_(policy),
        encoder_(encoder),
        budget_(budget) {}

  // Takes one out of `running`, and out of this step; the running loop is at `cursor`. preempt() is to follow.
  Request& take_victim(PlanArena& arena, std::size_t& cursor);
  // The caller took it out of `running`.
  void preempt(Request& victim);

 private:
  void roll_back(Request& victim, PlanArena& arena);
  void forget_unwritten_blocks(const Request& victim);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  Slots& slots_;
  Policy& policy_;
  EncoderScheduler& encoder_;
  StepBudget& budget_;
};

}  // namespace quire
