#pragma once
// What is done once when a tier is opened: its header is judged, its files get their size.
#include <cstdint>

#include "quire/error.h"
#include "runtime/tier/tier_files.h"
#include "runtime/tier/tier_table.h"

namespace quire {

struct TierShape {
  std::uint64_t budget_bytes = 0;
  std::uint64_t place_bytes = 0;
  TierFingerprint fingerprint{};
};

struct OpenedTier {
  TierHeader header;
  std::uint32_t num_places = 0;
};

// Errors: see DiskStore::open. Nothing of a folder that is refused has changed, but for files that are missing in it.
Result<OpenedTier> open_tier(TierFiles& files, const TierShape& shape);

}  // namespace quire
