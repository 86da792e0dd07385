#include "core/schedule/loops/relief.h"

#include "base/check.h"

namespace quire {

void BlockRelief::preempt_above_high(PlanArena& arena) {
  if (shared_.queues.pause == PauseState::paused_all) return;
  QUIRE_CHECK(arena.requests().empty(), "no request is scheduled yet in this step");
  while (shared_.queues.running.size() > 1 && pressure_.is_above_high()) {
    if (block_reclaimer_.reclaim_before_preempting(*shared_.queues.running.front(), 1)) continue;
    std::size_t nobody_scheduled = 0;
    const Preemption::Victim victim = preemption_.take_victim(arena, nobody_scheduled);
    if (shared_.context.events.wanted()) {
      shared_.context.events.on_event({.what = EventKind::preempted,
                                       .cause = EventCause::above_high,
                                       .owner = victim.request.id,
                                       .beneficiary = shared_.queues.running.front()->id});
    }
    preemption_.preempt(victim, EventCause::above_high);
    arena.preempt(victim.request.id);
    ++shared_.context.totals.num_pressure_preemptions;
  }
}

}  // namespace quire
