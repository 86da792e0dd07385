#pragma once
// Memory and files for the blocks of preempted requests: the number of slots, the transport to the slots, and the costs of moving blocks.
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
  // Creates the slots, and moves some bytes to the slots and back to measure the costs. Removes the files that earlier processes left in
  // the folder, except the files of processes that still run. Errors name `kv_swap` or `kv_swap_disk`.
  static Result<std::shared_ptr<KvSwap>> create(const KvSwapOptions& options, const KvLayout& layout);

  // Returns a transport that moves the blocks of swap transfers to and from these slots. `others`, if not null, carries out the transfers
  // of all other tiers.
  [[nodiscard]] std::shared_ptr<Transport> transport_with(std::shared_ptr<Transport> others) const;
  // Return the costs of swapping, and the statistics. May be called on any thread.
  [[nodiscard]] SwapCosts costs(double prefill_tokens_per_s) const;
  [[nodiscard]] KvSwapStats stats(const CoreCounters& counters) const;

 private:
  KvSwap(std::shared_ptr<MemoryTransport> memory, std::shared_ptr<DiskStore> store, std::string folder);

  // Removes the swap files on destruction, unless they are still open.
  struct Folder {
    std::string path;
    ~Folder();
  };
  Folder folder_;
  std::shared_ptr<MemoryTransport> memory_;   // null: there are no slots in memory
  std::shared_ptr<DiskStore> store_;          // null: there are no slots in files
  std::shared_ptr<SwapTransport> transport_;  // null: there are no slots in files
  SwapCosts measured_;                        // rates of the files, measured at creation
};

}  // namespace quire
