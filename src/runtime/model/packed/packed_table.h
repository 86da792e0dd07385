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

inline constexpr std::uint64_t kPackedAlignment = 4096;  // alignment of matrices; the first one comes after the header

// XXH3 if this build has it; else the first half of a SHA-256.
using WeightDigest = Xxh128Digest;

// All of a matrix except its bytes, and the position of these bytes.
struct PackedEntry {
  PackedMatrix shape;  // without storage
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  WeightDigest digest{};
};

std::vector<std::byte> encode_table(const std::vector<PackedEntry>& entries);
// Returns nothing unless the bytes are a table of `count` matrices that a packer can have made and that end before data_end.
std::optional<std::vector<PackedEntry>> decode_table(std::span<const std::byte> table, std::uint64_t count, std::uint64_t data_end);

}  // namespace quire
