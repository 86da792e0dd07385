#pragma once
// Two ways to read and write the blocks of a file.
#include <cstdint>
#include <memory>

#include "runtime/tier/tier_files.h"

namespace quire {

// Uses pread and pwrite on a few threads. The caller keeps the descriptor. `depth`: most blocks in flight. One thread uses a queue of
// either kind, except for wake().
std::unique_ptr<BlockQueue> make_thread_queue(int descriptor, std::uint32_t depth);

// Uses io_uring. Returns null if the build has no liburing, or if the kernel (or a container's seccomp filter) refuses it.
std::unique_ptr<BlockQueue> make_uring_queue(int descriptor, std::uint32_t depth);

}  // namespace quire
