#pragma once
// Byte format of a disk tier's table: two header pages, then one entry per slot, little-endian. The newer valid header page is used. An
// entry's checksum covers its slot number; a payload's checksum covers its offload key. Both cover the header's identity and fingerprint.
// Data that is flipped, torn, swapped, stale or from another model therefore does not verify.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/offload.h"

namespace quire {

using Checksum = std::array<std::uint8_t, 16>;
// Identifies everything besides the key that determines a block's bits: weights, KV layout and dtype, numeric family, and so on. The table
// does not interpret these bytes.
using TierFingerprint = std::array<std::uint8_t, 32>;

struct TierHeader {
  std::uint64_t place_bytes = 0;  // of a slot in the blocks' file
  TierFingerprint fingerprint{};
  std::array<std::uint8_t, 16> identity{};  // random, drawn when the tier was created
  std::uint64_t incarnation = 0;            // number of openings since the tier was created

  friend bool operator==(const TierHeader&, const TierHeader&) = default;
};

struct TierEntry {
  std::uint64_t sequence = 0;  // increases with each store; 0: the slot is empty
  OffloadKey name;
  std::uint32_t bytes = 0;  // of the block, without the padding of its last page
  Checksum checksum{};      // of the payload

  friend bool operator==(const TierEntry&, const TierEntry&) = default;
};

inline constexpr std::uint32_t kTierVersion = 1;
inline constexpr std::uint64_t kTierPageBytes = 4096;  // of a header; payloads are padded to this size, for direct I/O
inline constexpr std::uint64_t kMaxTierBlockBytes = std::uint64_t{1} << 30U;
inline constexpr std::uint64_t kEntryBytes = 128;  // a divisor of the sector size, so an entry is in one sector

// Returns the offset of a slot's entry in the table.
constexpr std::uint64_t entry_offset(std::uint64_t place) {
  return 2 * kTierPageBytes + place * kEntryBytes;
}
constexpr std::uint64_t padded_to_page(std::uint64_t bytes) {
  return (bytes + kTierPageBytes - 1) / kTierPageBytes * kTierPageBytes;
}

enum class HeaderState : std::uint8_t {
  blank,          // all zeros
  good,           //
  damaged,        // a tier's header with a wrong checksum
  other_version,  // a tier's header of another version or with other checksums
  foreign         // not written by a tier
};
enum class EntryState : std::uint8_t { empty, good, damaged };

// `page` must have kTierPageBytes, `bytes` kEntryBytes. The decoded header or entry is valid only if the returned state is good.
HeaderState decode_header(std::span<const std::byte> page, TierHeader& header);
void encode_header(const TierHeader& header, std::span<std::byte> page);
EntryState decode_entry(std::span<const std::byte> bytes, const TierHeader& header, std::uint64_t place, TierEntry& entry);
void encode_entry(const TierEntry& entry, const TierHeader& header, std::uint64_t place, std::span<std::byte> bytes);

// Returns the checksum of a block, including the padding of its last page, bound to its key.
Checksum payload_checksum(const TierHeader& header, const OffloadKey& name, std::uint32_t bytes, std::span<const std::byte> payload);

}  // namespace quire
