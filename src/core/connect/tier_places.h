#pragma once
// What an offloading connector asks of a tier that outlives it, and verifies what it gives back.
#include <cstdint>

#include "quire/offload.h"

namespace quire {

// Implemented by the tiers over their transports: the numbers carry a generation, so that a load of what a place held before is refused.
class TierPlaces {
 public:
  virtual ~TierPlaces() = default;
  // What transfers carry for a place from now on, which is to hold this block, or was found to: what they carried before means nothing any
  // more. Called by the connector's thread, in the middle of a step.
  virtual std::uint64_t assign(std::uint64_t place, const OffloadKey& key) = 0;
  // The block has gone, for others need its place.
  virtual void left(const OffloadKey& /*key*/) {}
  // Nobody is to be given what was stored under this name so far.
  virtual void dropped(const OffloadKey& /*key*/) {}
};

}  // namespace quire
