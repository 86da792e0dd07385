#pragma once
// Limits how much CPU time a background thread takes while other threads need the cores. On free cores the thread takes as much time as it
// needs. If it has to wait for a core, it is limited to a fixed share.
#include <chrono>
#include <cstdint>

namespace quire {

// A token bucket of CPU time: credit grows with time and is consumed by computing. Computing is charged only while threads wait for cores.
// Used by one thread.
class CpuShareLimit {
 public:
  // Allows the thread to use `share` (0 to 1) of the time of `num_cores` cores.
  CpuShareLimit(double share, std::uint32_t num_cores) : rate_(share * num_cores) {}

  // Returns false if the thread has used its share and other threads need the cores. The arguments are in seconds, each from an arbitrary
  // origin: the current time, the thread's computing time, and the time for which it waited for a core.
  bool may_continue(double now_s, double computed_s, double waited_s);
  // Returns true if the thread may also do work that can be delayed. Call it after may_continue() has returned true. While other threads
  // need the cores, half of the credit is reserved for work that cannot be delayed.
  [[nodiscard]] bool has_spare_credit() const { return credit_s_ >= 0.5 * kMaxCredit_s || !is_crowded_; }

 private:
  double rate_;  // seconds of computing per second
  double credit_s_ = kMaxCredit_s;
  double now_s_ = -1.0, computed_s_ = 0.0, waited_s_ = 0.0;  // values at the previous call; < 0: there was no previous call
  double lately_computed_s_ = 0.0, lately_waited_s_ = 0.0;
  bool is_crowded_ = false;

  static constexpr double kMaxCredit_s = 0.1;  // maximum credit after a pause, enough for the blocks of a few prompts
};

// Limits the calling thread by the system's clocks of that thread. If the system does not report how long threads wait, the thread may
// always continue.
class CpuShare {
 public:
  explicit CpuShare(double share);
  ~CpuShare();
  CpuShare(const CpuShare&) = delete;
  CpuShare& operator=(const CpuShare&) = delete;

  // Reads the thread's clocks and calls CpuShareLimit::may_continue() with them.
  bool may_continue();
  [[nodiscard]] bool has_spare_credit() const { return limit_.has_spare_credit(); }

 private:
  CpuShareLimit limit_;
  int waits_;  // descriptor of the thread's schedstat file; < 0: none
};

// Time to sleep after may_continue() has returned false. Each call of may_continue() itself uses some of the share.
inline constexpr std::chrono::milliseconds kCpuShareSleep(10);

// Share of CPU time for storing blocks outside the cache while all cores compute. It is small because stored blocks are useful only if
// their prompts come again.
inline constexpr double kStoringCpuShare = 0.005;

}  // namespace quire
