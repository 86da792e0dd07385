#include "core/schedule/requests/queues.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

Queues::Queues(const Context& context, Jobs& jobs_that_queue)
    : waiting(context.config.scheduler.policy, QueueName::waiting),
      skipped_waiting(context.config.scheduler.policy, QueueName::skipped),
      // vLLM 0.32.0 uses a plain list for skipped requests, under every policy.
      step_skipped(context.rules.block_holders_first ? SchedulingPolicy::fcfs : context.config.scheduler.policy, QueueName::step_skipped),
      policy_(context.config.scheduler.policy),
      block_holders_first_(context.rules.block_holders_first),
      jobs_(jobs_that_queue) {
  running.reserve(context.config.scheduler.max_num_seqs);
}

void Queues::enqueue(Request& request, double time) {
  const bool passed_over = block_holders_first_ ? holds_kv(request) : is_blocked(request);
  if (is_blocked(request)) defer(request);
  jobs_.note_entry(request, passed_over ? QueueName::skipped : QueueName::waiting, time);
  (passed_over ? skipped_waiting : waiting).add(request);
}

void Queues::requeue_skipped() {
  if (!block_holders_first_) {
    skipped_waiting.prepend_all(step_skipped);
    return;
  }
  while (!step_skipped.empty()) {
    Request& request = step_skipped.front();
    step_skipped.take(request);
    (holds_kv(request) ? skipped_waiting : waiting).prepend(request);
  }
}

void Queues::defer(Request& request) {
  num_deferred += block_holders_first_ && !request.deferred ? 1 : 0;
  request.deferred |= block_holders_first_;
}

void Queues::end_deferral(Request& request) {
  QUIRE_CHECK(!request.deferred || num_deferred > 0, "num_deferred counts the deferred requests");
  num_deferred -= request.deferred ? 1 : 0;
  request.deferred = false;
}

void Queues::next_waiting(std::size_t most, std::vector<Request*>& next) const {
  next.clear();
  skipped_waiting.append_first(most, next);
  waiting.append_first(most, next);
  if (policy_ == SchedulingPolicy::priority)
    std::ranges::sort(next, [](const Request* a, const Request* b) { return precedes_in_queue(*a, *b); });
  QUIRE_CHECK(next.size() <= 2 * most, "each queue returns at most the requested number");
  if (next.size() > most) next.resize(most);
}

std::size_t num_free_rows(const Context& context, const Queues& queues) {
  const std::size_t num_kept = context.rules.waiting_sessions_count_as_running ? queues.num_waiting_for_input : 0;
  const std::uint32_t limit = context.config.newer.max_num_active_seqs;
  const std::size_t most = limit > 0 ? limit : context.config.scheduler.max_num_seqs;
  return most - std::min(most, queues.running.size() + num_kept);
}

}  // namespace quire
