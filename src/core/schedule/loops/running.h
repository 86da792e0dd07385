#pragma once
// The running loop: every request in the batch gets the tokens it lacks, in order of admission, as far as budget and blocks go.
//
// A request that can have no token now is passed over, and later ones go on; one that finds too few free blocks makes others give way
// (preemption.cpp), and if it has to give way itself, the loop ends.
#include <cstddef>
#include <cstdint>

#include "core/schedule/loops/giving_way.h"
#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"

namespace quire {

class RunningLoop {
 public:
  RunningLoop(const Foundation& base, GivingWay& giving_way, Forks& forks, EncoderScheduler& encoder, StepBudget& budget,
              Preemption& preemption)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        giving_way_(giving_way),
        forks_(forks),
        encoder_(encoder),
        budget_(budget),
        preemption_(preemption) {}

  void schedule(PlanArena& arena);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    // The cursor is a step's.
    [[maybe_unused]] auto& [context, kv, requests, queues, giving_way, forks, encoder, budget, preemption, cursor] = self;
  }

 private:
  bool schedule_one(Request& request, PlanArena& arena);  // false: the request gave way itself
  [[nodiscard]] static bool surely_reached_max_tokens(const Request& request);
  [[nodiscard]] std::int32_t num_wanted_tokens(const Request& request) const;
  bool make_room(Request& request, std::int32_t num_new_tokens, PlanArena& arena);  // false: the request itself was preempted
  static void take_drafts(Request& request, std::int32_t num_new_tokens, PlanArena& arena);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  GivingWay& giving_way_;
  Forks& forks_;
  EncoderScheduler& encoder_;
  StepBudget& budget_;
  Preemption& preemption_;
  std::size_t cursor_ = 0;  // vLLM's req_index
};

}  // namespace quire
