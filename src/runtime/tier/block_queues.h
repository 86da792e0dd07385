#pragma once
// Two implementations of `BlockQueue` (tier_files.h): blocking calls on threads, and io_uring.
#include <cstdint>
#include <memory>

#include "runtime/tier/tier_files.h"

namespace quire {

// Returns a queue that calls pread and pwrite on up to four threads. The caller closes the descriptor. `depth`: maximum number of blocks in
// flight. A queue of either kind is used by one thread, except for wake().
std::unique_ptr<BlockQueue> make_thread_queue(int descriptor, std::uint32_t depth);

// Returns a queue that uses io_uring, or null if the build has no liburing or the kernel (or a container's seccomp filter) refuses
// io_uring.
std::unique_ptr<BlockQueue> make_uring_queue(int descriptor, std::uint32_t depth);

}  // namespace quire
