#pragma once
// Opens a disk tier: checks its header and sets the sizes of its files.
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

// Returns the newer valid header of the table's two header pages; nullopt if a tier would begin empty. Errors: the table has another
// version or checksum algorithm, or belongs to another program.
Result<std::optional<TierHeader>> read_tier_header(TierFiles& files);

// Checks the folder, sets the sizes of its files and writes a new header. Errors: see DiskStore::open(). A folder that is refused because
// of its content stays unchanged, except that missing files were created.
Result<OpenedTier> open_tier(TierFiles& files, const TierShape& shape);

}  // namespace quire
