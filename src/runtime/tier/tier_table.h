#pragma once
// The table of a disk tier as bytes: two header pages, of which the newer good one counts, then an entry per place. Little-endian. Nothing
// that is read is trusted: a checksum of each entry is bound to its place, one of each payload to its name, and both to the header's
// identity and fingerprint, so what is flipped, torn, swapped, left over or another model's does not verify.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/offload.h"

namespace quire {

using Checksum = std::array<std::uint8_t, 16>;
// All that the bits of a block depend on and its name does not say: weights, KV layout and dtype, numeric family, ...; opaque here.
using TierFingerprint = std::array<std::uint8_t, 32>;

struct TierHeader {
  std::uint64_t place_bytes = 0;  // of a place in the blocks' file
  TierFingerprint fingerprint{};
  std::array<std::uint8_t, 16> identity{};  // drawn when the tier began empty
  std::uint64_t incarnation = 0;            // how often it was opened since

  friend bool operator==(const TierHeader&, const TierHeader&) = default;
};

struct TierEntry {
  std::uint64_t sequence = 0;  // greater: stored later; 0: the place is empty
  OffloadKey name;
  std::uint32_t bytes = 0;  // of the block, without what fills its last page
  Checksum checksum{};      // of the payload

  friend bool operator==(const TierEntry&, const TierEntry&) = default;
};

inline constexpr std::uint32_t kTierVersion = 1;
inline constexpr std::uint64_t kTierPageBytes = 4096;  // of a header; payloads are padded to it, for direct I/O
inline constexpr std::uint64_t kMostTierBlockBytes = std::uint64_t{1} << 30U;
inline constexpr std::uint64_t kEntryBytes = 128;  // lies in one sector

// Where the entry of a place begins.
constexpr std::uint64_t entry_offset(std::uint64_t place) {
  return 2 * kTierPageBytes + place * kEntryBytes;
}
constexpr std::uint64_t padded_to_page(std::uint64_t bytes) {
  return (bytes + kTierPageBytes - 1) / kTierPageBytes * kTierPageBytes;
}

enum class HeaderState : std::uint8_t {
  blank,          // zeros
  good,           //
  damaged,        // ours, and its checksum is wrong
  other_version,  // ours, of another version or with other checksums
  foreign         // not ours
};
enum class EntryState : std::uint8_t { empty, good, damaged };

// `page` has kTierPageBytes, `entry` kEntryBytes. What is returned beside a state other than good means nothing.
HeaderState decode_header(std::span<const std::byte> page, TierHeader& header);
void encode_header(const TierHeader& header, std::span<std::byte> page);
EntryState decode_entry(std::span<const std::byte> bytes, const TierHeader& header, std::uint64_t place, TierEntry& entry);
void encode_entry(const TierEntry& entry, const TierHeader& header, std::uint64_t place, std::span<std::byte> bytes);

// Of a block with what fills its last page, under its name.
Checksum payload_checksum(const TierHeader& header, const OffloadKey& name, std::uint32_t bytes, std::span<const std::byte> payload);

}  // namespace quire
