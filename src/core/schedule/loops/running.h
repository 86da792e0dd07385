#pragma once
// The running loop: schedules the tokens that each request in the batch needs, in order of admission, as far as the budget and the blocks
// allow.
//
// A request that cannot run a token now is skipped, and the loop continues with the next one. If too few blocks are free, blocks of other
// requests are freed or running requests are preempted (preemption.cpp). If the request itself is preempted, the loop ends.
#include <cstddef>
#include <cstdint>

#include "core/schedule/loops/block_reclaimer.h"
#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/shared_state.h"

namespace quire {

class RunningLoop {
 public:
  RunningLoop(const SharedState& base, BlockReclaimer& block_reclaimer, Forks& forks, EncoderScheduler& encoder, StepBudget& budget,
              Preemption& preemption)
      : context_(base.context),
        kv_(base.kv),
        requests_(base.requests),
        queues_(base.queues),
        block_reclaimer_(block_reclaimer),
        forks_(forks),
        encoder_(encoder),
        budget_(budget),
        preemption_(preemption) {}

  void schedule(PlanArena& arena);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    // The cursor is valid within one step.
    [[maybe_unused]] auto& [context, kv, requests, queues, block_reclaimer, forks, encoder, budget, preemption, cursor] = self;
  }

 private:
  bool schedule_one(Request& request, PlanArena& arena);  // returns false if the loop must end
  [[nodiscard]] static bool has_certainly_reached_max_tokens(const Request& request);
  [[nodiscard]] std::int32_t num_wanted_tokens(const Request& request) const;
  // Returns false if the request gets no blocks in this step.
  bool make_room(Request& request, std::int32_t num_new_tokens, PlanArena& arena);
  static void take_drafts(Request& request, std::int32_t num_new_tokens, PlanArena& arena);

  Context& context_;
  KvCacheManager& kv_;
  Requests& requests_;
  Queues& queues_;
  BlockReclaimer& block_reclaimer_;
  Forks& forks_;
  EncoderScheduler& encoder_;
  StepBudget& budget_;
  Preemption& preemption_;
  std::size_t cursor_ = 0;  // vLLM's req_index
};

}  // namespace quire
