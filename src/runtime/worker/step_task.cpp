#include "runtime/worker/step_task.h"

#include <utility>

#include "base/check.h"

namespace quire {

StepTask::StepTask(ThreadPool& pool, std::uint32_t max_num_seqs, StepParts& parts) : pool_(&pool), parts_(&parts) {
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
  masks_ = {};
  has_masks_ = !plan.has_structured_output;
  has_sampled_ = false;
  pool_->start([](void* context) { static_cast<StepTask*>(context)->run(); }, this);
}

void StepTask::provide(std::span<const TokenMask> masks) {
  QUIRE_CHECK(plan_ != nullptr && !has_masks_, "masks once per step, where the plan asks for them");
  masks_ = masks;
  has_masks_ = true;
}

// By the thread that leads the step.
void StepTask::run() {
  parts_->forward(*plan_);
  pool_->release_caller();
  if (has_masks_) sample();
}

void StepTask::sample() {
  parts_->sample(*plan_, masks_, *current_);
  has_sampled_ = true;
}

void StepTask::assist() {
  if (plan_ != nullptr) pool_->assist();
}

WorkerResult StepTask::finish() {
  QUIRE_CHECK(plan_ != nullptr, "no step has been started");
  pool_->join();
  QUIRE_CHECK(has_masks_, "the plan has structured output, and nobody provided masks");
  if (!has_sampled_) sample();
  return {
      .step = {.step = std::exchange(plan_, nullptr)->step, .sampled = current_->sampled, .completions = current_->transfers.completions},
      .outcomes = current_->outcomes,
      .transfers = current_->transfers.totals};
}

}  // namespace quire
