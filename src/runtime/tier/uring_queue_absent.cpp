// Linked instead of uring_queue.cpp if liburing is not installed.
#include "runtime/tier/block_queues.h"

namespace quire {

std::unique_ptr<BlockQueue> make_uring_queue(int /*descriptor*/, std::uint32_t /*depth*/) {
  return nullptr;
}

}  // namespace quire
