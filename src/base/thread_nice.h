#pragma once
// Less of the processors for a thread that must not keep computing ones from their work.
#include <sys/resource.h>
#include <unistd.h>

namespace quire {

// Beside computing threads on all cores about a tenth of a core.
inline constexpr int kNiceBeside = 10;

// Of the calling thread; where the system refuses, it stays as it is.
inline void set_thread_nice(int nice) {
  setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), nice);
}

}  // namespace quire
