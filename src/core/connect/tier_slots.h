#pragma once
// Interface of an offloading connector to a tier that outlives the connector and verifies the blocks that it returns.
#include <cstdint>

#include "quire/offload.h"

namespace quire {

// Implemented by tiers, with their transports. The number of a slot contains a generation, so that a load with an earlier number of the
// slot is refused.
class TierSlots {
 public:
  virtual ~TierSlots() = default;
  // Assigns the slot `place` to this block and returns the new number of the slot for Transfer::places. Earlier numbers of the slot become
  // invalid. Called on the connector's thread, during a step.
  virtual std::uint64_t assign(std::uint64_t place, const OffloadKey& key) = 0;
  // Called when the block was evicted because another block needs its slot.
  virtual void left(const OffloadKey& /*key*/) {}
  // Called when content that was stored under this key must not be returned any more.
  virtual void dropped(const OffloadKey& /*key*/) {}
};

}  // namespace quire
