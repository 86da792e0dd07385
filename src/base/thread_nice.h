#pragma once
// Reduces the CPU time of threads that must not slow down computing threads.
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace quire {

// While all cores compute, a thread with this value gets about a tenth of a core.
inline constexpr int kBackgroundNice = 10;

// Sets the nice value of the calling thread. If the system refuses, the value stays as it is.
inline void set_thread_nice(int nice) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice);
}

// Prevents wake-ups of the calling thread from interrupting other threads, and shortens its time slice so that no thread waits long for the
// core. (A step is as slow as its slowest thread.) Kernels before 6.12 ignore the time slice.
inline void set_thread_batch_policy(int nice) {
  struct {  // argument of sched_setattr(2), for which glibc has no function
    std::uint32_t size = sizeof(*this), policy = SCHED_BATCH;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t turn_ns = 100'000, deadline_ns = 0, period_ns = 0;
  } wanted;
  wanted.nice = nice;
  if (syscall(SYS_sched_setattr, 0, &wanted, 0) != 0) set_thread_nice(nice);
}

}  // namespace quire
