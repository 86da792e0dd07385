#pragma once
// Preemption before blocks lack (PressureOptions::pressure_preempts), at the beginning of a step: who gives way is who would if they
// lacked. One request goes on running, whatever the pressure, so that there is an end to it; the others are admitted again below the lower
// mark.
#include "core/schedule/loops/giving_way.h"
#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/pressure.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/plan_arena.h"

namespace quire {

class Relief {
 public:
  Relief(const Foundation& on, const Pressure& pressure, GivingWay& giving_way, Preemption& preemption)
      : on_(on), pressure_(pressure), giving_way_(giving_way), preemption_(preemption) {}

  // Before the plan schedules anybody.
  void give(PlanArena& arena) {
    if (on_.context.config.pressure.pressure_preempts) preempt_above_high(arena);
  }

 private:
  void preempt_above_high(PlanArena& arena);
  Foundation on_;
  const Pressure& pressure_;
  GivingWay& giving_way_;
  Preemption& preemption_;
};

}  // namespace quire
