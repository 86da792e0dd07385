#include "runtime/worker/step_task.h"

#include <utility>

#include "base/check.h"

namespace quire {

StepTask::StepTask(ThreadPool& pool, std::uint32_t max_num_seqs, StepStages& stages, std::shared_ptr<const Clock> clock)
    : pool_(&pool), stages_(&stages), clock_(std::move(clock)) {
  for (StepResults& results : results_) {
    results.outcomes.reserve(max_num_seqs);
    results.requests.reserve(max_num_seqs);
  }
}

StepTask::~StepTask() {
  if (plan_ != nullptr) pool_->join();
}

// Uses the other StepResults, because the engine may still read the results of the previous step.
void StepTask::start(const StepPlan& plan) {
  QUIRE_CHECK(plan_ == nullptr, "one step runs at a time");
  plan_ = &plan;
  current_ = current_ == &results_[0] ? &results_[1] : &results_[0];
  masks_ = {};
  has_masks_ = !plan.has_structured_output;
  has_sampled_ = false;
  pool_->start([](void* context) { static_cast<StepTask*>(context)->run(); }, this);
}

void StepTask::provide(std::span<const TokenMask> masks) {
  QUIRE_CHECK(plan_ != nullptr && !has_masks_, "masks are provided once per step, and only if the plan needs them");
  masks_ = masks;
  has_masks_ = true;
}

// Runs the step on the thread that leads it.
void StepTask::run() {
  begin_s_ = clock_->now_s();
  stages_->forward(*plan_);
  current_->timings.forward_s = clock_->now_s() - begin_s_;
  pool_->release_caller();
  // If the masks arrived during the pass, sampling follows here. Otherwise finish() samples on the caller's thread.
  if (has_masks_) sample();
}

void StepTask::sample() {
  const double sample_begin_s = clock_->now_s();
  stages_->sample(*plan_, masks_, *current_);
  const double end_s = clock_->now_s();
  current_->timings.sample_s = end_s - sample_begin_s;
  current_->timings.step_s = end_s - begin_s_;
  has_sampled_ = true;
}

void StepTask::assist() {
  if (plan_ != nullptr) pool_->assist();
}

WorkerResult StepTask::finish() {
  QUIRE_CHECK(plan_ != nullptr, "a step has been started");
  pool_->join();
  QUIRE_CHECK(has_masks_, "masks were provided for a plan with structured output");
  if (!has_sampled_) sample();
  return {.step = {.step = std::exchange(plan_, nullptr)->step, .completions = current_->transfers.completions},
          .requests = current_->requests,
          .transfers = current_->transfers.totals,
          .expert_reads = current_->expert_reads,
          .timings = current_->timings};
}

}  // namespace quire
