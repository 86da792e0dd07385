// The number of drafts that makes tokens fastest. Called once or twice a step by the thread that leads it.
//
// A step of n requests with k drafts each takes one pass over n (1 + k) rows and k passes of the draft model over n, and yields
// n (1 + a + a^2 + ... + a^k) tokens where each draft behind right ones is accepted with probability a.
#include "runtime/worker/draft_length.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace quire {
namespace {

constexpr double kTimeWeight = 1.0 / 32.0;  // of the newest measurement
constexpr double kAcceptanceWeight = 1.0 / 32.0;
constexpr double kOutputsWeight = 1.0 / 16.0;
constexpr std::uint64_t kFirstTimes = 8;  // after these one measurement counts as four times what was expected, at most
constexpr double kLongestTime = 4.0;
constexpr double kLeastSpread = 0.1;         // of counts, as a share of their mean, for a slope to be seen
constexpr std::uint64_t kPlainEvery = 64;    // while drafts pay, one step in so many is without: what it costs is known
constexpr std::uint64_t kFirstPlain = 4;     // and before that those of the powers of two
constexpr std::uint32_t kProbeEvery = 64;    // steps without drafts between probes, at least
constexpr std::uint32_t kProbeSteps = 4;     // of one
constexpr std::uint32_t kProbeDrafts = 2;    // in each of them
constexpr double kStepsPerProbe = 31.0;      // the draft model's time is at most one part of the time beside so many of passes
constexpr std::uint32_t kMostlyPrompts = 4;  // rows per row that is sampled from

}  // namespace

void TimeLine::add(double count, double seconds) {
  if (num_added_ >= kFirstTimes) seconds = std::min(seconds, kLongestTime * at(count));
  const double weight = std::max(kTimeWeight, 1.0 / static_cast<double>(++num_added_));
  const double more = count - mean_count_, longer = seconds - mean_s_;
  mean_count_ += weight * more;
  mean_s_ += weight * longer;
  variance_ = (1.0 - weight) * (variance_ + weight * more * more);
  covariance_ = (1.0 - weight) * (covariance_ + weight * more * longer);
  // Of equal counts nothing is learnt about others: the slope stays.
  const double least = kLeastSpread * mean_count_;
  if (variance_ > least * least) slope_s_ = covariance_ / variance_;
  slope_s_ = std::clamp(slope_s_, 0.0, mean_count_ > 0.0 ? mean_s_ / mean_count_ : 0.0);
}

double TimeLine::at(double count) const {
  return mean_s_ + slope_s_ * (count - mean_count_);
}

void DraftLength::saw_pass(std::uint32_t num_rows, std::uint32_t num_sampled_rows, double seconds) {
  without_s_ += seconds;
  if (num_rows > 0 && num_rows <= kMostlyPrompts * num_sampled_rows) pass_.add(num_rows, seconds);
}

void DraftLength::saw_drafting(std::uint32_t num_requests, std::uint32_t num_passes, double seconds) {
  if (is_probing_) probe_s_ += seconds;
  if (num_passes > 0) draft_.add(num_requests, seconds / num_passes);
}

void DraftLength::saw_feeding(std::uint32_t num_rows, double seconds) {
  if (is_probing_) probe_s_ += seconds;
  if (num_rows == 0) return;
  const double row_s = seconds / num_rows;
  feed_row_s_ = feed_row_s_ == 0.0 ? row_s : feed_row_s_ + kTimeWeight * (row_s - feed_row_s_);
}

void DraftLength::saw_verified(std::uint32_t num_drafts, std::uint32_t num_right) {
  for (std::uint32_t i = 0; i < num_right; ++i) acceptance_ += kAcceptanceWeight * (1.0 - acceptance_);
  if (num_right < num_drafts) acceptance_ -= kAcceptanceWeight * acceptance_;
}

void DraftLength::saw_ended(std::uint32_t num_outputs) {
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
  const bool is_plain = num_choices_ % kPlainEvery == 0 || (num_choices_ >= kFirstPlain && std::has_single_bit(num_choices_));
  if (whatever_they_cost_ || !pass_.is_known() || !draft_.is_known()) return {.num_drafts = max_drafts_, .max_missing = kAny};
  std::uint32_t best = 0;
  double best_s = step_s(num_requests, 0);  // per token of each request
  const double plain_s = best_s;
  for (std::uint32_t k = 1; k <= max_drafts_; ++k) {
    const double token_s = step_s(num_requests, k) / expected_tokens(k);
    if (token_s >= best_s) continue;
    best = k;
    best_s = token_s;
  }
  if (best == 0) return probe();
  is_probing_ = false;
  num_steps_without_ = num_probes_left_ = 0;
  without_s_ = probe_s_ = 0.0;
  if (is_plain) return {};
  const double saved_s = (plain_s - best_s) / num_requests * outputs_per_request_;
  return {.num_drafts = best, .max_missing = feed_row_s_ > 0.0 ? saved_s / feed_row_s_ : kAny};
}

DraftLength::Choice DraftLength::probe() {
  if (num_probes_left_ == 0) {
    is_probing_ = false;
    if (++num_steps_without_ < kProbeEvery || without_s_ < kStepsPerProbe * probe_s_) return {};
    num_probes_left_ = kProbeSteps;
    num_steps_without_ = 0;
    without_s_ = probe_s_ = 0.0;
    is_probing_ = true;
  }
  --num_probes_left_;
  return {.num_drafts = std::min(kProbeDrafts, max_drafts_), .max_missing = std::numeric_limits<double>::infinity(), .is_probe = true};
}

}  // namespace quire
