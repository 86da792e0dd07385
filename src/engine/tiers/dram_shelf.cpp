#include "engine/tiers/dram_shelf.h"

#include <utility>

namespace quire {

DramShelf::DramShelf(MemoryTransport& memory, std::vector<std::uint64_t> group_bytes)
    : memory_(memory), group_bytes_(std::move(group_bytes)), names_(memory.num_places()) {
  numbers_.reserve(names_.size());
}

void DramShelf::put(std::uint32_t place, const OffloadKey& name, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  OffloadKey& at = names_.at(place);
  // What was to be stored there, and was not, is told by nobody else.
  if (const auto before = numbers_.find(at); before != numbers_.end() && static_cast<std::uint32_t>(before->second) == place)
    numbers_.erase(before);
  at = name;
  numbers_.insert_or_assign(name, number);
}

void DramShelf::remove(const OffloadKey& name) {
  const std::lock_guard lock(mutex_);
  numbers_.erase(name);
}

std::uint32_t DramShelf::block_bytes(std::uint32_t group) const {
  return group < group_bytes_.size() ? static_cast<std::uint32_t>(group_bytes_[group]) : 0;
}

std::optional<std::uint64_t> DramShelf::find(const OffloadKey& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = numbers_.find(name);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

bool DramShelf::holds(const OffloadKey& name) const {
  const std::optional<std::uint64_t> number = find(name);
  return number && memory_.holds(*number);
}

// What is asked for has the size that the group's blocks have; the number says that the bytes are still the name's when they are copied.
bool DramShelf::read(const OffloadKey& name, std::span<std::byte> bytes) {
  const std::optional<std::uint64_t> number = find(name);
  return number && memory_.read(*number, bytes);
}

}  // namespace quire
