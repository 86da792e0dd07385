#include "core/schedule/loops/relief.h"

#include "base/check.h"

namespace quire {

void Relief::preempt_above_high(PlanArena& arena) {
  if (on_.queues.pause == PauseState::paused_all) return;
  QUIRE_CHECK(arena.requests().empty(), "who gives way before the step is in no plan of it");
  while (on_.queues.running.size() > 1 && pressure_.is_above_high()) {
    if (giving_way_.before_preempting(*on_.queues.running.front(), 1)) continue;
    std::size_t nobody_scheduled = 0;
    const Preemption::Victim victim = preemption_.take_victim(arena, nobody_scheduled);
    if (on_.context.events.wanted()) {
      on_.context.events.on_event({.what = EventKind::preempted,
                                   .cause = EventCause::above_high,
                                   .owner = victim.request.id,
                                   .beneficiary = on_.queues.running.front()->id});
    }
    preemption_.preempt(victim);
    arena.preempt(victim.request.id);
    ++on_.context.totals.num_pressure_preemptions;
  }
}

}  // namespace quire
