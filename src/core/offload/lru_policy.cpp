#include "core/offload/lru_policy.h"

#include "base/check.h"

namespace quire {

bool LruPolicy::evict(std::uint32_t count, std::span<const OffloadKey> /*incoming*/, std::vector<std::uint32_t>& slots) {
  if (count > order_.num_evictable()) return false;
  for (; count > 0; --count) {
    QUIRE_CHECK(order_.oldest_evictable() != kNoIndex, "there is an evictable slot");
    slots.push_back(order_.oldest_evictable());
    order_.remove(slots.back());
  }
  return true;
}

PolicySnapshot LruPolicy::snapshot() const {
  PolicySnapshot snapshot;
  auto& keys = snapshot.lists.emplace_back();
  order_.all().for_each([&](std::uint32_t slot) { keys.push_back(keys_.key_of(slot)); });
  return snapshot;
}

}  // namespace quire
