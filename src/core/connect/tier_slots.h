#pragma once
// Interface of an offloading connector to a tier that outlives it and verifies the blocks that it returns.
#include <cstdint>

#include "quire/offload.h"

namespace quire {

// Tiers implement it over their transports. The numbers carry a generation, so that a load of a place's earlier content is refused.
class TierSlots {
 public:
  virtual ~TierSlots() = default;
  // Returns the number that transfers carry for the place from now on. The place will hold this block, or was found to hold it. Earlier
  // numbers of the place become invalid. Called on the connector's thread, in the middle of a step.
  virtual std::uint64_t assign(std::uint64_t place, const OffloadKey& key) = 0;
  // The block was evicted, because another block needs its place.
  virtual void left(const OffloadKey& /*key*/) {}
  // Content that was stored under this key so far must not be returned any more.
  virtual void dropped(const OffloadKey& /*key*/) {}
};

}  // namespace quire
