#include <algorithm>

#include "quire/engine.h"
#include "runtime/kernel/kernel.h"
#include "runtime/tier/block_queues.h"

namespace quire {

HostFeatures host_features() {
  HostFeatures features;
  const auto fastest = std::ranges::find_if(kFastIsas, [](KernelIsa isa) { return find_kernels(isa).has_value(); });
  if (fastest != kFastIsas.end()) features.isa = *fastest;
  features.has_io_uring = make_uring_queue(-1, 1) != nullptr;
  return features;
}

}  // namespace quire
