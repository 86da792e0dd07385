#pragma once
// Less of the processors for a thread that must not keep computing ones from their work.
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace quire {

// Beside computing threads on all cores about a tenth of a core.
inline constexpr int kNiceBeside = 10;

// Of the calling thread; where the system refuses, it stays as it is.
inline void set_thread_nice(int nice) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice);
}

// What wakes the calling thread interrupts nobody from now on, and nobody waits long for its core: a step is as slow as the slowest of its
// threads. Kernels before 6.12 have no turns of their own length.
inline void set_thread_patient(int nice) {
  struct {  // sched_setattr(2), which has no wrapper
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
