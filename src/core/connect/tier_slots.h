#pragma once
// Interface of an offloading connector to a tier that outlives the connector and verifies the blocks that it returns.
#include <cstdint>

#include "quire/offload.h"

namespace quire {

// Tiers implement it with their transports. The numbers contain a generation, so that a load of the earlier content of a place is refused.
class TierSlots {
 public:
  virtual ~TierSlots() = default;
  // Assigns the place to this block and returns the new number of the place for Transfer::places. Earlier numbers of the place become
  // invalid. Called on the connector's thread, during a step.
  virtual std::uint64_t assign(std::uint64_t place, const OffloadKey& key) = 0;
  // Called when the block was evicted because another block needs its slot.
  virtual void left(const OffloadKey& /*key*/) {}
  // Called when content that was stored under this key must not be returned any more.
  virtual void dropped(const OffloadKey& /*key*/) {}
};

}  // namespace quire
