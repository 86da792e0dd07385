#include "core/schedule/queues.h"

namespace quire {

Queues::Queues(const Context& context, Jobs& jobs_that_queue)
    : waiting(context.config.scheduler.policy, QueueName::waiting),
      skipped_waiting(context.config.scheduler.policy, QueueName::skipped),
      step_skipped(context.config.scheduler.policy, QueueName::step_skipped),
      jobs_(jobs_that_queue) {
  running.reserve(context.config.scheduler.max_num_seqs);
}

void Queues::enqueue(Request& request, double time) {
  const bool passed_over = is_blocked(request);
  jobs_.note_entry(request, passed_over ? QueueName::skipped : QueueName::waiting, time);
  (passed_over ? skipped_waiting : waiting).add(request);
}

}  // namespace quire
