#include "runtime/tier/tier_health.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

void TierHealth::note(std::uint64_t num_done, std::uint64_t num_failed, double now_s) {
  const std::uint64_t done = num_done - std::exchange(num_done_, num_done);
  const std::uint64_t failed = num_failed - std::exchange(num_failed_, num_failed);
  if (failed > done)
    num_consecutive_failures_ += failed;
  else if (done > 0)
    num_consecutive_failures_ = 0;
  if (is_disabled()) return;  // operations that began before the pause
  const bool is_on_trial = state_ == State::on_trial;
  if (num_consecutive_failures_ >= (is_on_trial ? 1 : kMaxFailures)) {
    disable(now_s);
  } else if (is_on_trial && done > 0) {
    state_ = State::used;
    pause_s_ = kFirstPause_s;
  }
}

void TierHealth::set_gone(bool gone, double now_s) {
  if (std::exchange(gone_, gone) == gone) return;
  if (gone && !is_disabled()) disable(now_s);
  trial_due_s_ = now_s;
}

void TierHealth::begin_trial() {
  QUIRE_CHECK(is_disabled() && !gone_, "a trial begins only for a direction that is disabled and not gone");
  state_ = State::on_trial;
  num_consecutive_failures_ = 0;
}

void TierHealth::disable(double now_s) {
  state_ = State::disabled;
  trial_due_s_ = now_s + pause_s_;
  pause_s_ = std::min(2.0 * pause_s_, kLongestPause_s);
  ++num_times_disabled_;
}

}  // namespace quire
