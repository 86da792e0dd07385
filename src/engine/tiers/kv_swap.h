#pragma once
// Memory for the blocks of preempted requests: how many it holds, the transport to it, and what it costs to move them.
#include <cstdint>
#include <memory>
#include <string>

#include "engine/tiers/swap_transport.h"
#include "quire/base/kv_layout.h"
#include "quire/base/options.h"
#include "quire/core.h"
#include "quire/engine.h"
#include "quire/transport.h"
#include "runtime/tier/disk_store.h"
#include "runtime/tier/memory_transport.h"

namespace quire {

// Blocks of any group: in memory, and in files.
std::uint32_t num_near_swap_places(const KvSwapOptions& options, const KvLayout& layout);
std::uint32_t num_far_swap_places(const KvSwapOptions& options, const KvLayout& layout);
inline std::uint32_t num_swap_places(const KvSwapOptions& options, const KvLayout& layout) {
  return num_near_swap_places(options, layout) + num_far_swap_places(options, layout);
}

class KvSwap {
 public:
  // Moves some bytes there and back, to know what that costs. Errors name kv_swap or kv_swap_disk: what earlier processes have left in the
  // folder is removed, unless one of them still swaps there.
  static Result<std::shared_ptr<KvSwap>> create(const KvSwapOptions& options, const KvLayout& layout);

  // To this memory; `others`, if given, moves the transfers of all tiers besides.
  [[nodiscard]] std::shared_ptr<Transport> transport_beside(std::shared_ptr<Transport> others) const;
  // Any thread.
  [[nodiscard]] SwapCosts costs(double prefill_tokens_per_s) const;
  [[nodiscard]] KvSwapStats stats(const CoreCounters& counters) const;

 private:
  KvSwap(std::shared_ptr<MemoryTransport> memory, std::shared_ptr<DiskStore> store, std::string folder);

  // Removes the files when nobody uses them any more.
  struct Folder {
    std::string path;
    ~Folder();
  };
  Folder folder_;
  std::shared_ptr<MemoryTransport> memory_;   // null: no place is in memory
  std::shared_ptr<DiskStore> store_;          // null: none is in files
  std::shared_ptr<SwapTransport> transport_;  // where there are files
  SwapCosts measured_;                        // of files, by the trial
};

}  // namespace quire
