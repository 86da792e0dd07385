#include "runtime/worker/step_task.h"

#include <utility>

#include "base/check.h"

namespace quire {

StepTask::StepTask(ThreadPool& pool, std::uint32_t max_num_seqs, StepParts& parts, std::shared_ptr<const Clock> clock)
    : pool_(&pool), parts_(&parts), clock_(std::move(clock)) {
  for (StepResults& results : results_) {
    results.outcomes.reserve(max_num_seqs);
    results.requests.reserve(max_num_seqs);
  }
}

StepTask::~StepTask() {
  if (plan_ != nullptr) pool_->join();
}

// The other results are written now: the engine may still be reading those of the step before.
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
  begin_s_ = clock_->now_s();
  parts_->forward(*plan_);
  current_->timings.forward_s = clock_->now_s() - begin_s_;
  pool_->release_caller();
  // The masks have come while the pass ran. If not, finish() samples, on the caller's thread.
  if (has_masks_) sample();
}

void StepTask::sample() {
  const double sample_begin_s = clock_->now_s();
  parts_->sample(*plan_, masks_, *current_);
  const double end_s = clock_->now_s();
  current_->timings.sample_s = end_s - sample_begin_s;
  current_->timings.step_s = end_s - begin_s_;
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
  return {.step = {.step = std::exchange(plan_, nullptr)->step, .completions = current_->transfers.completions},
          .requests = current_->requests,
          .transfers = current_->transfers.totals,
          .expert_reads = current_->expert_reads,
          .timings = current_->timings};
}

}  // namespace quire
