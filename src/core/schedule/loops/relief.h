#pragma once
// Preempts requests at the beginning of a step, before blocks run out (PressureOptions::pressure_preempts). Chooses victims in the same way
// as when blocks are missing. One request always continues to run, so that the pressure ends. The preempted requests are admitted again
// when usage is below the lower threshold.
#include "core/schedule/loops/block_reclaimer.h"
#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/pressure.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/shared_state.h"

namespace quire {

class BlockRelief {
 public:
  BlockRelief(const SharedState& base, const Pressure& pressure, BlockReclaimer& block_reclaimer, Preemption& preemption)
      : shared_(base), pressure_(pressure), block_reclaimer_(block_reclaimer), preemption_(preemption) {}

  // Called before the plan schedules any request.
  void relieve(PlanArena& arena) {
    if (shared_.context.config.pressure.pressure_preempts) preempt_above_high(arena);
  }

 private:
  void preempt_above_high(PlanArena& arena);
  SharedState shared_;
  const Pressure& pressure_;
  BlockReclaimer& block_reclaimer_;
  Preemption& preemption_;
};

}  // namespace quire
