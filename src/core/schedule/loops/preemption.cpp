#include "core/schedule/loops/preemption.h"

#include "base/check.h"

namespace quire {

bool Preemption::frees_at_once() const {
  return fences_.may_free(**choose());
}

std::vector<Request*>::iterator Preemption::choose() const {
  const auto of_largest_share = tenants_.find_victim_of_largest_share(queues_.running);
  return of_largest_share != queues_.running.end() ? of_largest_share : policy_.find_victim(queues_.running);
}

// Removes the victim from `running`. The victim may come before the cursor:
// - If this step has scheduled it, it is removed from the plan, its tokens return to the budget, and the cursor moves back by one.
// - If this step has skipped it, the cursor stays, so the loop misses one request, as in vLLM (unless `victims_move_cursor`).
// The CONTINUUM fork of vLLM, in contrast, leaves the victim in the plan, with freed blocks.
Preemption::Victim Preemption::take_victim(PlanArena& arena, std::size_t& cursor, std::vector<Request*>::iterator chosen) {
  Request& victim = **chosen;
  QUIRE_CHECK(victim.slot != kNoSlot, "a preempted request has a slot");
  const auto index = static_cast<std::size_t>(chosen - queues_.running.begin());
  queues_.running.erase(chosen);
  tenants_.note_preempted(victim);
  const bool was_planned = arena.schedules(victim);
  if (was_planned) {
    roll_back(victim, arena);
    QUIRE_CHECK(cursor > 0, "a scheduled request lies before the cursor");
  }
  if (context_.rules.victims_move_cursor ? index < cursor : was_planned) --cursor;
  return {victim, was_planned};
}

void Preemption::roll_back(Request& victim, PlanArena& arena) {
  budget_.take_back(victim, arena);
  encoder_.take_back(victim, arena);
  arena.unschedule(victim);
  if (context_.rules.forget_unwritten_blocks || context_.config.scheduler.tenant_turns) forget_unwritten_blocks(victim);
}

bool Preemption::has_unwritten_blocks(const Request& request) const {
  for (std::uint32_t group = 0; group < context_.num_groups; ++group)
    if (request.blocks.num_cached_blocks(group).value_or(0) >
        static_cast<std::uint32_t>(request.num_computed_tokens) / kv_.block_size(group))
      return true;
  return false;
}

// Removes the hashes of the blocks that the victim's tokens of this step would have filled.
void Preemption::forget_unwritten_blocks(const Request& victim) {
  QUIRE_CHECK(victim.num_computed_tokens >= 0, "the number of computed tokens is not negative");
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    const auto num_written = static_cast<std::uint32_t>(victim.num_computed_tokens) / kv_.block_size(group);
    const std::uint32_t num_cached = victim.blocks.num_cached_blocks(group).value_or(0);
    if (num_cached > num_written) kv_.evict_blocks(victim.blocks.blocks(group).subspan(num_written, num_cached - num_written));
  }
}

void Preemption::preempt(const Victim& victim, EventCause why) {
  if (!swap_.swap_out(victim.request, victim.was_planned, why)) return put_back(victim.request);
  stop(victim.request, false);
}

void Preemption::put_back(Request& victim, bool drops_stale) {
  QUIRE_CHECK(victim.swapped == nullptr, "a request that is computed again is not swapped out");
  fences_.free(victim);
  victim.num_computed_tokens = 0;
  stop(victim, drops_stale);
}

void Preemption::stop(Request& victim, bool drops_stale) {
  QUIRE_CHECK(victim.status == RequestStatus::running, "only a running request is preempted");
  encoder_.release_all(victim);
  victim.status = RequestStatus::preempted;
  victim.draft_tokens.clear();
  victim.is_prefilling = false;
  if (context_.rules.stale_outputs) {
    // If stale tokens in flight were already going to be dropped, they are still dropped, because other tokens have replaced them.
    victim.in_flight.drops_stale_tokens = drops_stale || context_.config.newer.drop_undelivered ||
                                          (victim.in_flight.drops_stale_tokens && victim.in_flight.num_stale_tokens > 0);
    victim.in_flight.num_stale_tokens = victim.in_flight.num_tokens;
    victim.num_output_placeholders = 0;
  }
  ++victim.num_preemptions;
  ++context_.totals.num_preemptions;
  requests_.record(victim, RequestEventKind::preempted, context_.now);
  slots_.release(victim);
  // prepend() puts the request first, because it was admitted before all waiting requests; under PRIORITY, according to its priority.
  queues_.waiting.prepend(victim);
}

}  // namespace quire
