#pragma once
// Decides whether a tier is used in one direction (loads or stores), from its latest successes and failures.
//
//   used      -> disabled   kMaxFailures in a row
//   disabled  -> on trial   begin_trial(), after the pause
//   on trial  -> used       a success: the next pause is the shortest again
//   on trial  -> disabled   a failure: the next pause is twice as long
//   any       -> disabled   set_gone(true); a trial is due after set_gone(false)
#include <cstdint>

namespace quire {

class TierHealth {
 public:
  static constexpr std::uint32_t kMaxFailures = 3;
  static constexpr double kFirstPause_s = 1.0, kLongestPause_s = 60.0;

  // Updates the state from the total numbers of successes and failures at `now_s`. If there were more failures than successes since the
  // last call, the failures count as consecutive; otherwise a success resets the count.
  void note(std::uint64_t num_done, std::uint64_t num_failed, double now_s);
  void set_gone(bool gone, double now_s);

  [[nodiscard]] bool is_enabled() const { return state_ == State::used; }
  [[nodiscard]] bool is_disabled() const { return state_ == State::disabled; }
  // Returns whether the direction is disabled and its pause is over.
  [[nodiscard]] bool is_trial_due(double now_s) const { return is_disabled() && !gone_ && now_s >= trial_due_s_; }
  void begin_trial();

  [[nodiscard]] std::uint64_t num_times_disabled() const { return num_times_disabled_; }

 private:
  enum class State : std::uint8_t { used, disabled, on_trial };
  void disable(double now_s);

  State state_ = State::used;
  bool gone_ = false;
  std::uint64_t num_done_ = 0, num_failed_ = 0, num_consecutive_failures_ = 0;
  double pause_s_ = kFirstPause_s;
  double trial_due_s_ = 0.0;
  std::uint64_t num_times_disabled_ = 0;
};

}  // namespace quire
