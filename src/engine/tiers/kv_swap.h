#pragma once
// Memory for the blocks of preempted requests: how many it holds, the transport to it, and what it costs to move them.
#include <cstdint>
#include <memory>

#include "quire/core.h"
#include "quire/engine.h"
#include "quire/kv_layout.h"
#include "quire/options.h"
#include "quire/transport.h"
#include "runtime/tier/memory_transport.h"

namespace quire {

// Blocks of any group.
std::uint32_t num_swap_places(const KvSwapOptions& options, const KvLayout& layout);

class KvSwap {
 public:
  // Moves some bytes there and back, to know what that costs. Errors name kv_swap.
  static Result<std::shared_ptr<KvSwap>> create(const KvSwapOptions& options, const KvLayout& layout);

  // To this memory; `others`, if given, moves the transfers of all tiers besides.
  [[nodiscard]] std::shared_ptr<Transport> transport_beside(std::shared_ptr<Transport> others) const;
  // Any thread.
  [[nodiscard]] SwapCosts costs(double prefill_tokens_per_s) const;
  [[nodiscard]] KvSwapStats stats(const CoreCounters& counters) const;

 private:
  explicit KvSwap(std::shared_ptr<MemoryTransport> transport) : transport_(std::move(transport)) {}
  void calibrate();

  // Shared with the worker's transport, which may outlive this.
  std::shared_ptr<MemoryTransport> transport_;
};

}  // namespace quire
