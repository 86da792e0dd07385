// Finds the number of draft tokens that produces tokens fastest. Called by the thread that leads a step once or twice per step.
//
// A step of n requests with k draft tokens each takes one pass over n (1 + k) rows and k passes of the draft model over n rows. If a draft
// token after accepted draft tokens is accepted with probability a, the step yields n (1 + a + a^2 + ... + a^k) tokens.
#include "runtime/worker/draft_length.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace quire {
namespace {

constexpr double kTimeWeight = 1.0 / 32.0;  // weight of the newest measurement
constexpr double kAcceptanceWeight = 1.0 / 32.0;
constexpr double kOutputsWeight = 1.0 / 16.0;
constexpr std::uint64_t kNumUnclampedSamples = 8;  // later measurements are limited to kMaxTimeRatio times the expected time
constexpr double kMaxTimeRatio = 4.0;
constexpr double kMinSpread = 0.1;                  // least spread of counts, relative to their mean, for which a slope is fitted
constexpr std::uint64_t kPlainStepInterval = 64;    // while draft tokens pay off, one step in this many has none, to measure its time
constexpr std::uint64_t kFirstPlainStep = 4;        // before step kPlainStepInterval: powers of two from this step on have none
constexpr std::uint32_t kProbeEvery = 64;           // least number of steps without draft tokens between probes
constexpr std::uint32_t kProbeSteps = 4;            // steps per probe
constexpr std::uint32_t kProbeDrafts = 2;           // draft tokens in each step of a probe
constexpr double kStepsPerProbe = 31.0;             // passes between probes take at least this many times the draft model's time in a probe
constexpr std::uint32_t kMaxRowsPerSampledRow = 4;  // most rows per sampled row in a pass that is fitted

}  // namespace

void LinearTimeModel::add(double count, double seconds) {
  if (num_added_ >= kNumUnclampedSamples) seconds = std::min(seconds, kMaxTimeRatio * at(count));
  const double weight = std::max(kTimeWeight, 1.0 / static_cast<double>(++num_added_));
  const double more = count - mean_count_, longer = seconds - mean_s_;
  mean_count_ += weight * more;
  mean_s_ += weight * longer;
  variance_ = (1.0 - weight) * (variance_ + weight * more * more);
  covariance_ = (1.0 - weight) * (covariance_ + weight * more * longer);
  // Equal counts carry no information about the slope, so the slope is kept.
  const double least = kMinSpread * mean_count_;
  if (variance_ > least * least) slope_s_ = covariance_ / variance_;
  slope_s_ = std::clamp(slope_s_, 0.0, mean_count_ > 0.0 ? mean_s_ / mean_count_ : 0.0);
}

double LinearTimeModel::at(double count) const {
  return mean_s_ + slope_s_ * (count - mean_count_);
}

void DraftLength::record_pass(std::uint32_t num_rows, std::uint32_t num_sampled_rows, double seconds) {
  time_since_probe_s_ += seconds;
  if (num_rows > 0 && num_rows <= kMaxRowsPerSampledRow * num_sampled_rows) pass_.add(num_rows, seconds);
}

void DraftLength::record_drafting(std::uint32_t num_requests, std::uint32_t num_passes, double seconds) {
  if (is_probing_) probe_s_ += seconds;
  if (num_passes > 0) draft_.add(num_requests, seconds / num_passes);
}

void DraftLength::record_catch_up(std::uint32_t num_rows, double seconds) {
  if (is_probing_) probe_s_ += seconds;
  if (num_rows == 0) return;
  const double row_s = seconds / num_rows;
  catch_up_row_s_ = catch_up_row_s_ == 0.0 ? row_s : catch_up_row_s_ + kTimeWeight * (row_s - catch_up_row_s_);
}

void DraftLength::record_verified(std::uint32_t num_drafts, std::uint32_t num_accepted) {
  for (std::uint32_t i = 0; i < num_accepted; ++i) acceptance_ += kAcceptanceWeight * (1.0 - acceptance_);
  if (num_accepted < num_drafts) acceptance_ -= kAcceptanceWeight * acceptance_;
}

void DraftLength::record_finished(std::uint32_t num_outputs) {
  outputs_per_request_ += kOutputsWeight * (num_outputs - outputs_per_request_);
}

double DraftLength::expected_tokens(std::uint32_t num_drafts) const {
  double tokens = 1.0, right = 1.0;
  for (std::uint32_t i = 0; i < num_drafts; ++i) tokens += right *= acceptance_;
  return tokens;
}

double DraftLength::step_s(std::uint32_t num_requests, std::uint32_t num_drafts) const {
  return pass_.at(static_cast<double>(num_requests) * (1.0 + num_drafts)) + num_drafts * draft_.at(num_requests);
}

DraftLength::Choice DraftLength::choose(std::uint32_t num_requests) {
  constexpr double kAny = std::numeric_limits<double>::infinity();
  ++num_choices_;
  if (num_requests == 0 || max_drafts_ == 0) return {};
  const bool is_plain = num_choices_ % kPlainStepInterval == 0 || (num_choices_ >= kFirstPlainStep && std::has_single_bit(num_choices_));
  if (always_draft_ || !pass_.is_known() || !draft_.is_known()) return {.num_drafts = max_drafts_, .max_missing = kAny};
  std::uint32_t best = 0;
  double best_s = step_s(num_requests, 0);  // seconds per token of each request
  const double plain_s = best_s;
  for (std::uint32_t k = 1; k <= max_drafts_; ++k) {
    const double token_s = step_s(num_requests, k) / expected_tokens(k);
    if (token_s >= best_s) continue;
    best = k;
    best_s = token_s;
  }
  if (best == 0) return probe();
  is_probing_ = false;
  num_steps_without_drafts_ = num_probes_left_ = 0;
  time_since_probe_s_ = probe_s_ = 0.0;
  if (is_plain) return {};
  const double saved_s = (plain_s - best_s) / num_requests * outputs_per_request_;
  return {.num_drafts = best, .max_missing = catch_up_row_s_ > 0.0 ? saved_s / catch_up_row_s_ : kAny};
}

DraftLength::Choice DraftLength::probe() {
  if (num_probes_left_ == 0) {
    is_probing_ = false;
    if (++num_steps_without_drafts_ < kProbeEvery || time_since_probe_s_ < kStepsPerProbe * probe_s_) return {};
    num_probes_left_ = kProbeSteps;
    num_steps_without_drafts_ = 0;
    time_since_probe_s_ = probe_s_ = 0.0;
    is_probing_ = true;
  }
  --num_probes_left_;
  return {.num_drafts = std::min(kProbeDrafts, max_drafts_), .max_missing = std::numeric_limits<double>::infinity(), .is_probe = true};
}

}  // namespace quire
