#pragma once
// The byte format of a disk tier's table: two header pages, of which the newer valid one counts, then one entry per slot. Little-endian.
// Nothing that is read is trusted. An entry's checksum is bound to its slot, a payload's checksum to its offload key, and both to the
// header's identity and fingerprint. Data that is flipped, torn, swapped, stale or from another model therefore does not verify.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/offload.h"

namespace quire {

using Checksum = std::array<std::uint8_t, 16>;
// Identifies everything that a block's bits depend on and its key does not contain: weights, KV layout and dtype, numeric family, ...;
// opaque here.
using TierFingerprint = std::array<std::uint8_t, 32>;

struct TierHeader {
  std::uint64_t place_bytes = 0;  // of a slot in the blocks' file
  TierFingerprint fingerprint{};
  std::array<std::uint8_t, 16> identity{};  // drawn when the tier began empty
  std::uint64_t incarnation = 0;            // number of openings since then

  friend bool operator==(const TierHeader&, const TierHeader&) = default;
};

struct TierEntry {
  std::uint64_t sequence = 0;  // a greater number was stored later; 0: the slot is empty
  OffloadKey name;
  std::uint32_t bytes = 0;  // of the block, without the padding of its last page
  Checksum checksum{};      // of the payload

  friend bool operator==(const TierEntry&, const TierEntry&) = default;
};

inline constexpr std::uint32_t kTierVersion = 1;
inline constexpr std::uint64_t kTierPageBytes = 4096;  // of a header; payloads are padded to it, for direct I/O
inline constexpr std::uint64_t kMaxTierBlockBytes = std::uint64_t{1} << 30U;
inline constexpr std::uint64_t kEntryBytes = 128;  // lies in one sector

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
  foreign         // not a tier's header
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
