#pragma once
// Which block of the tier in host memory (dram_tier.h) lies where, for the thread that gives them to other servers: the tier's own ledger
// is the engine thread's.
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/remote/peer_shelf.h"
#include "runtime/tier/memory_transport.h"

namespace quire {

class DramShelf final : public PeerShelf {
 public:
  // `memory` outlives it; `group_bytes`: of a block, by cache group.
  DramShelf(MemoryTransport& memory, std::vector<std::uint64_t> group_bytes);

  // The engine's thread. A place is to hold this block, under the number that transfers carry; a block is not to be given any more.
  void put(std::uint32_t place, const OffloadKey& name, std::uint64_t number);
  void remove(const OffloadKey& name);

  [[nodiscard]] std::uint32_t block_bytes(std::uint32_t group) const override;
  [[nodiscard]] bool holds(const OffloadKey& name) const override;
  bool read(const OffloadKey& name, std::span<std::byte> bytes) override;

 private:
  struct NameHash {
    std::size_t operator()(const OffloadKey& name) const { return name.prefix() ^ name.group; }
  };

  [[nodiscard]] std::optional<std::uint64_t> find(const OffloadKey& name) const;

  MemoryTransport& memory_;
  const std::vector<std::uint64_t> group_bytes_;
  mutable std::mutex mutex_;
  // Guarded by mutex_; a name that is not at its place any more is not in numbers_.
  std::vector<OffloadKey> names_;                                    // by place
  std::unordered_map<OffloadKey, std::uint64_t, NameHash> numbers_;  // of a transfer
};

}  // namespace quire
