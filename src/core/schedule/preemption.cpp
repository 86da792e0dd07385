// Which request is preempted when too few blocks are free.
//
//   running -> preempted   its blocks are free, its progress and drafts are forgotten (its tokens and output placeholders stay), and it
//                          waits at the front of the queue
#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

// The victim may stand before the cursor. If this step has scheduled it, it is removed from the plan, its tokens return to the budget, and
// the cursor moves back with the requests behind it. If it was skipped, the cursor stays although they move: the loop then misses one
// request, as in vLLM. (The fork that CONTINUUM comes from leaves the victim in the plan, with blocks that are free.)
Request& Core::State::take_victim(PlanArena& arena) {
  const auto chosen = find_victim();
  Request& victim = **chosen;
  running.erase(chosen);
  if (arena.schedules(victim)) {
    roll_back(victim, arena);
    QUIRE_CHECK(cursor > 0, "what was scheduled lies before the cursor");
    --cursor;
  }
  return victim;
}

void Core::State::roll_back(Request& victim, PlanArena& arena) {
  token_budget += static_cast<std::int32_t>(arena.num_tokens(victim));
  for (const std::uint32_t input : arena.encoder_inputs(victim)) encoder_budget += victim.features[input].position.num_embeds();
  QUIRE_CHECK(token_budget <= static_cast<std::int32_t>(config.scheduler.max_num_batched_tokens), "no more comes back than was given");
  arena.unschedule(victim);
  if (config.cures.forget_unwritten_blocks) forget_unwritten_blocks(victim);
}

// Those that the tokens it was given in this step would have filled.
void Core::State::forget_unwritten_blocks(const Request& victim) {
  for (std::uint32_t group = 0; group < num_groups; ++group) {
    const auto num_written = static_cast<std::uint32_t>(victim.num_computed_tokens) / kv.block_size(group);
    const std::uint32_t num_cached = victim.blocks.num_cached_blocks(group).value_or(0);
    if (num_cached > num_written) kv.evict_blocks(victim.blocks.blocks(group).subspan(num_written, num_cached - num_written));
  }
}

// The caller took it out of `running`.
void Core::State::preempt(Request& victim) {
  QUIRE_CHECK(victim.status == RequestStatus::running, "only what runs is preempted");
  kv.free(victim.blocks);
  encoder_cache.release_all(encoder_inputs(victim));
  victim.status = RequestStatus::preempted;
  victim.num_computed_tokens = 0;
  victim.draft_tokens.clear();
  ++victim.num_preemptions;
  ++totals.num_preemptions;
  record(victim, RequestEventKind::preempted, now);
  release_slot(victim);
  waiting.prepend(victim);
}

}  // namespace quire
