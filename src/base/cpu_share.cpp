#include "base/cpu_share.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <string_view>

#include "base/usable_cores.h"

namespace quire {
namespace {

constexpr double kDecay = 0.9;        // factor by which both sums decay per call
constexpr double kCrowdedWait = 0.2;  // the cores are crowded if waiting time exceeds this fraction of computing time

double computed_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

bool CpuShareLimit::may_continue(double now_s, double computed_s, double waited_s) {
  if (now_s_ >= 0.0) {
    const double computed = computed_s - computed_s_;
    credit_s_ = std::min(kMaxCredit_s, credit_s_ + rate_ * (now_s - now_s_) - computed);
    lately_computed_s_ = kDecay * lately_computed_s_ + computed;
    lately_waited_s_ = kDecay * lately_waited_s_ + waited_s - waited_s_;
  }
  now_s_ = now_s;
  computed_s_ = computed_s;
  waited_s_ = waited_s;
  is_crowded_ = lately_waited_s_ > kCrowdedWait * lately_computed_s_;
  if (is_crowded_) return credit_s_ > 0.0;
  credit_s_ = std::max(credit_s_, 0.0);  // computing on free cores is not charged
  return true;
}

CpuShare::CpuShare(double share) : limit_(share, usable_cores()), waits_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {}

CpuShare::~CpuShare() {
  if (waits_ >= 0) close(waits_);
}

// Reads the thread's schedstat file: nanoseconds of computing (as of the last tick), nanoseconds of waiting, and the number of time slices.
bool CpuShare::may_continue() {
  std::array<char, 128> text{};
  const ssize_t size = waits_ < 0 ? -1 : pread(waits_, text.data(), text.size(), 0);
  if (size <= 0) return true;
  const std::string_view fields(text.data(), static_cast<std::size_t>(size));
  const std::size_t at = std::min(fields.find(' '), fields.size() - 1) + 1;
  std::uint64_t waited_ns = 0;
  if (std::from_chars(fields.data() + at, fields.data() + fields.size(), waited_ns).ec != std::errc()) return true;
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  return limit_.may_continue(now.count(), computed_s(), 1e-9 * static_cast<double>(waited_ns));
}

}  // namespace quire
