#pragma once
// An index of the blocks in the DRAM tier (dram_tier.h), for the thread that sends them to other servers. That thread cannot use the tier's
// ledger, which belongs to the engine thread.
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "runtime/remote/peer_block_source.h"
#include "runtime/tier/memory_transport.h"

namespace quire {

class DramPeerIndex final : public PeerBlockSource {
 public:
  // Creates an empty index. `memory` must outlive the index. `group_bytes` are the bytes of a block, by cache group.
  DramPeerIndex(MemoryTransport& memory, std::vector<std::uint64_t> group_bytes);

  // Called on the engine thread. put() records that the slot will hold this block, and `number`, the slot's number in transfers. remove()
  // records that the block must not be sent any more.
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
  // Guarded by `mutex_`. A key that is no longer in its slot has no entry in `numbers_`.
  std::vector<OffloadKey> names_;                                    // by slot
  std::unordered_map<OffloadKey, std::uint64_t, NameHash> numbers_;  // number of the key's slot in transfers
};

}  // namespace quire
