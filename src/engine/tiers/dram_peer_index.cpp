#include "engine/tiers/dram_peer_index.h"

#include <utility>

namespace quire {

DramPeerIndex::DramPeerIndex(MemoryTransport& memory, std::vector<std::uint64_t> group_bytes)
    : memory_(memory), group_bytes_(std::move(group_bytes)), names_(memory.num_places()) {
  numbers_.reserve(names_.size());
}

void DramPeerIndex::put(std::uint32_t place, const OffloadKey& name, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  OffloadKey& at = names_.at(place);
  // Removes the entry of the slot's previous key now, because a failed store to this slot is not reported here.
  if (const auto before = numbers_.find(at); before != numbers_.end() && static_cast<std::uint32_t>(before->second) == place)
    numbers_.erase(before);
  at = name;
  numbers_.insert_or_assign(name, number);
}

void DramPeerIndex::remove(const OffloadKey& name) {
  const std::lock_guard lock(mutex_);
  numbers_.erase(name);
}

std::uint32_t DramPeerIndex::block_bytes(std::uint32_t group) const {
  return group < group_bytes_.size() ? static_cast<std::uint32_t>(group_bytes_[group]) : 0;
}

std::optional<std::uint64_t> DramPeerIndex::find(const OffloadKey& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

bool DramPeerIndex::holds(const OffloadKey& name) const {
  const std::optional<std::uint64_t> number = find(name);
  return number && memory_.holds(*number);
}

// Copies a block to `bytes`, which has the size of a block of the group. The number ensures that the slot still holds this key while its
// bytes are copied.
bool DramPeerIndex::read(const OffloadKey& name, std::span<std::byte> bytes) {
  const std::optional<std::uint64_t> number = find(name);
  return number && memory_.read(*number, bytes);
}

}  // namespace quire
