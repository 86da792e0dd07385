#include "core/schedule/requests/queues.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

Queues::Queues(const Context& context, Jobs& jobs_that_queue)
    : waiting(context.config.scheduler.policy, QueueName::waiting),
      skipped_waiting(context.config.scheduler.policy, QueueName::skipped),
      step_skipped(context.config.scheduler.policy, QueueName::step_skipped),
      policy_(context.config.scheduler.policy),
      jobs_(jobs_that_queue) {
  running.reserve(context.config.scheduler.max_num_seqs);
}

void Queues::enqueue(Request& request, double time) {
  const bool passed_over = is_blocked(request);
  jobs_.note_entry(request, passed_over ? QueueName::skipped : QueueName::waiting, time);
  (passed_over ? skipped_waiting : waiting).add(request);
}

void Queues::next_waiting(std::size_t most, std::vector<Request*>& next) const {
  next.clear();
  skipped_waiting.append_first(most, next);
  waiting.append_first(most, next);
  if (policy_ == SchedulingPolicy::priority)
    std::ranges::sort(next, [](const Request* a, const Request* b) { return goes_before(*a, *b); });
  QUIRE_CHECK(next.size() <= 2 * most, "each queue gives no more than it was asked for");
  if (next.size() > most) next.resize(most);
}

}  // namespace quire
