#pragma once
// What is done once when a tier is opened: its header is judged, its files get their size.
#include <cstdint>
#include <optional>

#include "quire/base/error.h"
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

// Of the table's two header pages the newer good one; nullopt: a tier would begin empty. Errors: the table is of another version, or none.
Result<std::optional<TierHeader>> read_tier_header(TierFiles& files);

// Errors: see DiskStore::open. Nothing of a folder that is refused has changed, but for files that are missing in it.
Result<OpenedTier> open_tier(TierFiles& files, const TierShape& shape);

}  // namespace quire
