#include "runtime/worker/step_task.h"

#include <utility>

#include "base/check.h"

namespace quire {

StepTask::StepTask(ThreadPool& pool, std::uint32_t max_num_seqs, Body body) : pool_(&pool), body_(std::move(body)) {
  for (StepResults& results : results_) {
    results.outcomes.reserve(max_num_seqs);
    results.sampled.reserve(max_num_seqs);
  }
}

StepTask::~StepTask() {
  if (plan_ != nullptr) pool_->join();
}

void StepTask::start(const StepPlan& plan) {
  QUIRE_CHECK(plan_ == nullptr, "one step at a time");
  plan_ = &plan;
  current_ = current_ == &results_[0] ? &results_[1] : &results_[0];
  pool_->start(
      [](void* context) {
        const auto* self = static_cast<const StepTask*>(context);
        self->body_(*self->plan_, *self->current_);
      },
      this);
}

void StepTask::assist() {
  if (plan_ != nullptr) pool_->assist();
}

WorkerResult StepTask::finish() {
  QUIRE_CHECK(plan_ != nullptr, "no step has been started");
  pool_->join();
  return {
      .step = {.step = std::exchange(plan_, nullptr)->step, .sampled = current_->sampled, .completions = current_->transfers.completions},
      .outcomes = current_->outcomes,
      .transfers = current_->transfers.totals};
}

}  // namespace quire
