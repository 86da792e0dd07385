// The waiting loop: requests enter the batch, first come first served; the first that does not fit ends the loop.
//
//   waiting, preempted -> running   here, with the blocks of its cached prefix and of its first chunk
#include <algorithm>

#include "core/schedule/state.h"

namespace quire {

void Scheduler::State::schedule_waiting(PlanArena& arena) {
  while (!waiting.empty() && budget > 0 && running.size() < config.scheduler.max_num_seqs) {
    if (!admit_front(arena)) {
      return;
    }
  }
}

bool Scheduler::State::admit_front(PlanArena& arena) {
  Request& request = *waiting.front();
  const PrefixHit hit = look_up(request);
  std::uint32_t num_tokens = request.num_tokens() - hit.num_tokens;
  if (const std::uint32_t threshold = config.scheduler.long_prefill_token_threshold; threshold > 0) {
    num_tokens = std::min(num_tokens, threshold);
  }
  if (!config.scheduler.enable_chunked_prefill && num_tokens > budget) {
    return false;
  }
  num_tokens = std::min(num_tokens, budget);

  std::uint32_t missing = config.scheduler.reserve_full_isl ? kv.missing_for_full_sequence(request.kv, hit, request.num_tokens()) : 0;
  if (missing == 0) {
    kv.reserve(request.kv, request.max_total_tokens);
    missing = kv.allocate(request.kv, hit, {0, num_tokens, request.num_tokens()});
  }
  if (missing > 0) {
    if (events != nullptr) {
      events->on_admission_blocked(request.id, missing);
    }
    return false;
  }
  enter(request, hit, num_tokens, arena);
  return true;
}

PrefixHit Scheduler::State::look_up(const Request& request) {
  const PrefixHit hit = kv.find_prefix(request.kv, request.num_tokens());
  if (!config.enable_prefix_caching) {
    return hit;
  }
  const bool first_time = request.num_preemptions == 0;
  (first_time ? totals.prefix_query_tokens : totals.preempted_prefix_query_tokens) += request.num_tokens();
  (first_time ? totals.prefix_hit_tokens : totals.preempted_prefix_hit_tokens) += hit.num_tokens;
  if (events != nullptr) {
    events->on_prefix_lookup(request.id, request.num_tokens(), hit.num_tokens);
  }
  return hit;
}

void Scheduler::State::enter(Request& request, const PrefixHit& hit, std::uint32_t num_tokens, PlanArena& arena) {
  waiting.remove(request);
  running.push_back(&request);
  request.state = RequestState::running;
  request.slot = free_slots.back();
  free_slots.pop_back();
  request.num_computed_tokens = hit.num_tokens;
  request.tokens.reserve(request.max_total_tokens);  // never moves while a plan shows it
  const bool first_time = !request.num_cached_tokens.has_value();
  if (first_time) {
    request.num_cached_tokens = hit.num_tokens;
  }
  arena.admit(request, first_time);
  arena.table_delta(request.slot, TableUpdate::replace_all, request.kv.blocks());
  commit(request, num_tokens, arena);
}

}  // namespace quire
