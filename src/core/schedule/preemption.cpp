// Who gives way when blocks lack.
//
//   running -> preempted   its blocks are free, its progress and drafts are forgotten (its tokens and output placeholders stay), and it
//                          waits at the front of the queue
#include <algorithm>

#include "core/schedule/state.h"

namespace quire {

// The youngest; or, by priority, the first of those that go last. The latter may have been scheduled in this step already: then it is
// taken out of the plan and what it was given comes back. The cursor follows only in that case, as in vLLM: a victim before the cursor
// that was passed over in this step makes the loop skip one request.
Request& Core::State::take_victim(PlanArena& arena) {
  if (config.scheduler.policy == SchedulingPolicy::fcfs) {
    Request& victim = *running.back();
    running.pop_back();
    return victim;
  }
  const auto last = std::ranges::max_element(running, [](const Request* a, const Request* b) {
    return a->priority != b->priority ? a->priority < b->priority : a->arrival_time < b->arrival_time;
  });
  Request& victim = **last;
  running.erase(last);
  if (arena.schedules(victim)) {
    roll_back(victim, arena);
    --cursor;
  }
  return victim;
}

void Core::State::roll_back(Request& victim, PlanArena& arena) {
  token_budget += static_cast<std::int32_t>(arena.num_tokens(victim));
  for (const std::uint32_t input : arena.encoder_inputs(victim)) encoder_budget += victim.features[input].position.num_embeds();
  arena.unschedule(victim);
  if (config.forget_unwritten_blocks) forget_unwritten_blocks(victim);
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
