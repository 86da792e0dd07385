#pragma once
// Memory and files for the blocks of preempted requests: the number of slots, the transport to them, and the cost of moving blocks.
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

// Return the number of swap slots in memory and in files. A slot holds a block of any cache group.
std::uint32_t num_memory_swap_slots(const KvSwapOptions& options, const KvLayout& layout);
std::uint32_t num_disk_swap_slots(const KvSwapOptions& options, const KvLayout& layout);
inline std::uint32_t num_swap_slots(const KvSwapOptions& options, const KvLayout& layout) {
  return num_memory_swap_slots(options, layout) + num_disk_swap_slots(options, layout);
}

class KvSwap {
 public:
  // Makes the slots, and moves some bytes there and back to measure the cost. Removes the files that earlier processes left in the folder,
  // unless one of these processes still runs. Errors name `kv_swap` or `kv_swap_disk`.
  static Result<std::shared_ptr<KvSwap>> create(const KvSwapOptions& options, const KvLayout& layout);

  // Returns a transport that moves swap transfers to these slots. `others`, if given, moves the transfers of all other tiers.
  [[nodiscard]] std::shared_ptr<Transport> transport_with(std::shared_ptr<Transport> others) const;
  // May be called on any thread.
  [[nodiscard]] SwapCosts costs(double prefill_tokens_per_s) const;
  [[nodiscard]] KvSwapStats stats(const CoreCounters& counters) const;

 private:
  KvSwap(std::shared_ptr<MemoryTransport> memory, std::shared_ptr<DiskStore> store, std::string folder);

  // Removes the swap files when it is destroyed, unless they are still open.
  struct Folder {
    std::string path;
    ~Folder();
  };
  Folder folder_;
  std::shared_ptr<MemoryTransport> memory_;   // null: there are no slots in memory
  std::shared_ptr<DiskStore> store_;          // null: there are no slots in files
  std::shared_ptr<SwapTransport> transport_;  // null: there are no slots in files
  SwapCosts measured_;                        // the rates of the files, from the trial at creation
};

}  // namespace quire
