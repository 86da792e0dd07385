#pragma once
// Limits how much of the cores' time a background thread takes while other threads need them. On free cores it takes as much as it needs.
// If it has to wait for a core, it takes a fixed share.
#include <chrono>
#include <cstdint>

namespace quire {

// A bucket of credit that fills with time and is emptied by computing. Computing is charged only while threads wait for the cores. Used by
// one thread.
class CpuShareLimit {
 public:
  // The thread may use `share` (0 to 1) of the time of `num_cores` cores.
  CpuShareLimit(double share, std::uint32_t num_cores) : rate_(share * num_cores) {}

  // Takes seconds, each from any zero: the time now, the thread's time of computing, and its time of waiting for a core. Returns false if
  // the thread has used its share and other threads need the cores.
  bool may_continue(double now_s, double computed_s, double waited_s);
  // Called after may_continue() has returned true. Returns true if work that can be delayed may be done, too. While other threads need the
  // cores, half of the credit is kept for work that cannot be delayed.
  [[nodiscard]] bool has_spare_credit() const { return credit_s_ >= 0.5 * kMaxCredit_s || !is_crowded_; }

 private:
  double rate_;  // seconds of computing per second
  double credit_s_ = kMaxCredit_s;
  double now_s_ = -1.0, computed_s_ = 0.0, waited_s_ = 0.0;  // at the previous call; < 0: there was none
  double lately_computed_s_ = 0.0, lately_waited_s_ = 0.0;
  bool is_crowded_ = false;

  static constexpr double kMaxCredit_s = 0.1;  // most credit after a pause: the blocks of a few prompts
};

// Limits the calling thread by its clocks. If the system does not report how long threads wait, the thread may always continue.
class CpuShare {
 public:
  explicit CpuShare(double share);
  ~CpuShare();
  CpuShare(const CpuShare&) = delete;
  CpuShare& operator=(const CpuShare&) = delete;

  // Reads the thread's clocks and returns the result of CpuShareLimit::may_continue().
  bool may_continue();
  [[nodiscard]] bool has_spare_credit() const { return limit_.has_spare_credit(); }

 private:
  CpuShareLimit limit_;
  int waits_;  // descriptor of the thread's schedstat file; < 0: none
};

// How long to rest after may_continue() returns false. Each call costs some of the share.
inline constexpr std::chrono::milliseconds kCpuShareSleep(10);

// The share for storing blocks outside the cache while all cores compute. Storing is a bet that prompts come again.
inline constexpr double kStoringCpuShare = 0.005;

}  // namespace quire
