#pragma once
// Admits a waiting request that has its blocks: assigns its batch row and schedules its first tokens of this step.
//
//   waiting, preempted -> running   admit
#include <cstdint>

#include "core/schedule/loops/step_budget.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/shared_state.h"
#include "core/schedule/requests/slots.h"

namespace quire {

class RequestAdmitter {
 public:
  RequestAdmitter(const SharedState& base, Slots& slots, Forks& forks, StepBudget& budget)
      : context_(base.context), requests_(base.requests), queues_(base.queues), slots_(slots), forks_(forks), budget_(budget) {}

  // The caller must have removed the request from its queue. With `is_padded`, all new tokens but one are placeholders for draft tokens.
  void admit(Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens, bool is_padded, PlanArena& arena);

 private:
  Context& context_;
  Requests& requests_;
  Queues& queues_;
  Slots& slots_;
  Forks& forks_;
  StepBudget& budget_;
};

}  // namespace quire
