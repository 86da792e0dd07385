#pragma once
// Whether a tier is used in one direction, by what it did lately.
//
//   used      -> left out   kMostFailures in a row
//   left out  -> on trial   begin_trial(), when its pause is over
//   on trial  -> used       something was done: the next pause is the shortest again
//   on trial  -> left out   a failure: the next pause is twice as long
//   any       -> left out   it is gone; it is on trial when it is there again
#include <cstdint>

namespace quire {

class TierHealth {
 public:
  static constexpr std::uint32_t kMostFailures = 3;
  static constexpr double kFirstPause_s = 1.0, kLongestPause_s = 60.0;

  // What was done and what failed, from the start, as of `now_s`. Where more failed than was done since the last time, all failures since
  // count as a row.
  void note(std::uint64_t num_done, std::uint64_t num_failed, double now_s);
  void set_gone(bool gone, double now_s);

  [[nodiscard]] bool is_used() const { return state_ == State::used; }
  [[nodiscard]] bool is_left_out() const { return state_ == State::left_out; }
  // Left out, and its pause is over.
  [[nodiscard]] bool is_trial_due(double now_s) const { return is_left_out() && !gone_ && now_s >= trial_due_s_; }
  void begin_trial();

  [[nodiscard]] std::uint64_t num_times_left_out() const { return num_times_left_out_; }

 private:
  enum class State : std::uint8_t { used, left_out, on_trial };
  void leave_out(double now_s);

  State state_ = State::used;
  bool gone_ = false;
  std::uint64_t num_done_ = 0, num_failed_ = 0, num_in_row_ = 0;
  double pause_s_ = kFirstPause_s;
  double trial_due_s_ = 0.0;
  std::uint64_t num_times_left_out_ = 0;
};

}  // namespace quire
