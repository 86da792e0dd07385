#pragma once
// The table of a file of packed matrices (packed_file.h).
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/xxhash.h"
#include "runtime/kernel/pack.h"

namespace quire {

inline constexpr std::uint64_t kPackedAlignment = 4096;  // alignment of matrices; the first matrix comes after the header

// XXH3 if this build has xxhash; else the first half of a SHA-256.
using WeightDigest = Xxh128Digest;

// The members of a matrix except its bytes, and the position of these bytes in the file.
struct PackedEntry {
  PackedMatrix shape;  // without storage
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  WeightDigest digest{};
};

std::vector<std::byte> encode_table(const std::vector<PackedEntry>& entries);
// Returns the entries; nullopt unless the bytes are a table of `count` valid matrices that end before data_end.
std::optional<std::vector<PackedEntry>> decode_table(std::span<const std::byte> table, std::uint64_t count, std::uint64_t data_end);

}  // namespace quire
