#pragma once
// The two ways to move blocks of a file.
#include <cstdint>
#include <memory>

#include "runtime/tier/tier_files.h"

namespace quire {

// pread and pwrite on a few threads. The descriptor stays the caller's.
// `depth`: blocks under way at most. Either way a queue is used by one thread, but for wake().
std::unique_ptr<BlockQueue> make_thread_queue(int descriptor, std::uint32_t depth);

// Null where the build has no liburing, or the kernel (or a container's seccomp filter) refuses.
std::unique_ptr<BlockQueue> make_uring_queue(int descriptor, std::uint32_t depth);

}  // namespace quire
