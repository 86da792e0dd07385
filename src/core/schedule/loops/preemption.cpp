#include "core/schedule/loops/preemption.h"

#include "base/check.h"

namespace quire {

// The victim may stand before the cursor. If this step has scheduled it, it is removed from the plan, its tokens return to the budget, and
// the cursor moves back with the requests behind it. If it was skipped, the cursor stays although they move: the loop then misses one
// request, as in vLLM. (The fork that CONTINUUM comes from leaves the victim in the plan, with blocks that are free.)
bool Preemption::frees_at_once() const {
  return fences_.may_free(**policy_.find_victim(queues_.running));
}

Preemption::Victim Preemption::take_victim(PlanArena& arena, std::size_t& cursor) {
  const auto chosen = policy_.find_victim(queues_.running);
  Request& victim = **chosen;
  QUIRE_CHECK(victim.slot != kNoSlot, "who runs has a row of the batch");
  const auto index = static_cast<std::size_t>(chosen - queues_.running.begin());
  queues_.running.erase(chosen);
  const bool was_planned = arena.schedules(victim);
  if (was_planned) {
    roll_back(victim, arena);
    QUIRE_CHECK(cursor > 0, "what was scheduled lies before the cursor");
  }
  if (context_.rules.victims_move_cursor ? index < cursor : was_planned) --cursor;
  return {victim, was_planned};
}

void Preemption::roll_back(Request& victim, PlanArena& arena) {
  budget_.take_back(victim, arena);
  encoder_.take_back(victim, arena);
  arena.unschedule(victim);
  if (context_.config.cures.forget_unwritten_blocks) forget_unwritten_blocks(victim);
}

// Those that the tokens it was given in this step would have filled.
void Preemption::forget_unwritten_blocks(const Request& victim) {
  QUIRE_CHECK(victim.num_computed_tokens >= 0, "blocks are written from the first token on");
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    const auto num_written = static_cast<std::uint32_t>(victim.num_computed_tokens) / kv_.block_size(group);
    const std::uint32_t num_cached = victim.blocks.num_cached_blocks(group).value_or(0);
    if (num_cached > num_written) kv_.evict_blocks(victim.blocks.blocks(group).subspan(num_written, num_cached - num_written));
  }
}

void Preemption::preempt(const Victim& victim) {
  if (!swap_.take_out(victim.request, victim.was_planned)) return put_back(victim.request);
  stop(victim.request, false);
}

void Preemption::put_back(Request& victim, bool drops_stale) {
  QUIRE_CHECK(victim.swapped == nullptr, "what is computed again is not swapped out");
  fences_.free(victim);
  victim.num_computed_tokens = 0;
  stop(victim, drops_stale);
}

void Preemption::stop(Request& victim, bool drops_stale) {
  QUIRE_CHECK(victim.status == RequestStatus::running, "only what runs is preempted");
  encoder_.release_all(victim);
  victim.status = RequestStatus::preempted;
  victim.draft_tokens.clear();
  victim.is_prefilling = false;
  if (context_.rules.stale_outputs) {
    // What was to be dropped before is dropped still: other tokens have taken its place.
    victim.drops_stale = drops_stale || context_.config.newer.drop_undelivered || (victim.drops_stale && victim.num_stale_tokens > 0);
    victim.num_stale_tokens = victim.num_tokens_in_flight;
    victim.num_output_placeholders = 0;
  }
  ++victim.num_preemptions;
  ++context_.totals.num_preemptions;
  requests_.record(victim, RequestEventKind::preempted, context_.now);
  slots_.release(victim);
  // In front, since it was admitted before all who wait; by priority, where it belongs.
  queues_.waiting.prepend(victim);
}

}  // namespace quire
