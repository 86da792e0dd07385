// The running loop: every request in the batch gets the tokens it lacks, in order of admission, as far as budget and blocks go.
//
//   running -> preempted   here, when a request before it (or it itself) finds too few free blocks; the youngest goes first. Its blocks
//                          are freed, its progress is forgotten, and it waits at the front of the queue.
#include <algorithm>

#include "core/schedule/state.h"

namespace quire {

void Scheduler::State::schedule_running(PlanArena& arena) {
  for (std::size_t i = 0; i < running.size() && budget > 0; ++i) {
    Request& request = *running[i];
    const std::uint32_t num_tokens = num_new_tokens(request);
    if (num_tokens == 0) {
      continue;
    }
    const std::size_t num_held = request.kv.blocks().size();
    if (!make_room(request, num_tokens, arena)) {
      break;
    }
    if (request.kv.blocks().size() > num_held) {
      arena.table_delta(request.slot, TableUpdate::append, request.kv.blocks().subspan(num_held));
    }
    commit(request, num_tokens, arena);
  }
}

std::uint32_t Scheduler::State::num_new_tokens(const Request& request) const {
  std::uint32_t num_tokens = request.num_tokens() - request.num_computed_tokens;
  if (const std::uint32_t threshold = config.scheduler.long_prefill_token_threshold; threshold > 0) {
    num_tokens = std::min(num_tokens, threshold);
  }
  return std::min({num_tokens, budget, config.scheduler.max_model_len - 1 - request.num_computed_tokens});
}

// False: the request itself was preempted.
bool Scheduler::State::make_room(Request& request, std::uint32_t num_tokens, PlanArena& arena) {
  const KvDemand demand{request.num_computed_tokens, num_tokens, request.num_tokens()};
  while (const std::uint32_t missing = kv.allocate(request.kv, {}, demand)) {
    Request& victim = *running.back();
    if (events != nullptr) {
      events->on_preempted(victim.id, request.id, missing);
    }
    running.pop_back();
    preempt(victim, arena);
    if (&victim == &request) {
      return false;
    }
  }
  return true;
}

void Scheduler::State::preempt(Request& victim, PlanArena& arena) {
  kv.free(victim.kv);
  release_slot(victim);
  victim.state = RequestState::preempted;
  victim.num_computed_tokens = 0;
  ++victim.num_preemptions;
  ++totals.num_preemptions;
  waiting.push_front(victim);
  arena.preempt(victim.id);
}

}  // namespace quire
