// Encodes and decodes the header, entries and checksums of a disk tier. All functions are pure. Bytes that were read are used only if their
// checksum matches. An entry's checksum covers its slot, a payload's its key, and both cover the identity of the folder and the fingerprint
// of the model. A change of the layout needs a new kTierVersion.
#include "runtime/tier/tier_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/digest.h"
#include "base/xxhash.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "the table is little-endian");

constexpr std::array<char, 16> kMagic = {'q', 'u', 'i', 'r', 'e', ' ', 'd', 'i', 's', 'k', ' ', 't', 'i', 'e', 'r', '\n'};

// Returns the checksum algorithm of this build: 1 for XXH3, or 2 for the slower SHA-256 if the build has no xxhash. A tier with the other
// algorithm is refused.
std::uint32_t checksum_kind() {
  return xxhash_available() ? 1 : 2;
}

Checksum checksum_of(std::span<const std::byte> bytes) {
  if (xxhash_available()) return xxh3_128(bytes);
  const Sha256Digest digest = Sha256::of(bytes);
  Checksum checksum;
  std::copy_n(digest.begin(), checksum.size(), checksum.begin());
  return checksum;
}

// Writes and reads fields one after the other. The caller must have checked that the memory is large enough.
class Cursor {
 public:
  explicit Cursor(std::byte* at) : at_(at) {}
  template <class T>
  void put(const T& value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
  }
  template <class T>
  void get(T& value) {
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
  }

 private:
  std::byte* at_;
};

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

// Returns the checksum of an entry's fields and padding, the header's identity and fingerprint, and the slot number. The same entry in
// another slot or folder therefore does not verify.
Checksum entry_checksum(std::span<const std::byte> bytes, const TierHeader& header, std::uint64_t place) {
  std::array<std::byte, kEntryBytes + sizeof header.identity + sizeof header.fingerprint + sizeof place> bound{};
  std::ranges::copy(bytes.first(kEntryBytes - sizeof(Checksum)), bound.begin());
  Cursor cursor(bound.data() + kEntryBytes);
  cursor.put(header.identity);
  cursor.put(header.fingerprint);
  cursor.put(place);
  return checksum_of(bound);
}

template <std::size_t size>
Checksum read_checksum(std::span<const std::byte> bytes) {
  Checksum checksum;
  std::memcpy(checksum.data(), bytes.data() + size - checksum.size(), checksum.size());
  return checksum;
}

}  // namespace

HeaderState decode_header(std::span<const std::byte> page, TierHeader& header) {
  QUIRE_CHECK(page.size() == kTierPageBytes, "a header has the size of a page");
  if (is_zero(page)) return HeaderState::blank;
  if (std::memcmp(page.data(), kMagic.data(), kMagic.size()) != 0) return HeaderState::foreign;
  std::array<std::byte, kTierPageBytes> copy;
  std::ranges::copy(page, copy.begin());
  std::uint32_t version = 0;
  std::uint32_t checksums = 0;
  Cursor cursor(copy.data() + kMagic.size());
  cursor.get(version);
  cursor.get(checksums);
  if (version != kTierVersion || checksums != checksum_kind()) return HeaderState::other_version;
  if (checksum_of(page.first(kTierPageBytes - sizeof(Checksum))) != read_checksum<kTierPageBytes>(page)) return HeaderState::damaged;
  cursor.get(header.place_bytes);
  cursor.get(header.fingerprint);
  cursor.get(header.identity);
  cursor.get(header.incarnation);
  return HeaderState::good;
}

void encode_header(const TierHeader& header, std::span<std::byte> page) {
  QUIRE_CHECK(page.size() == kTierPageBytes, "a header has the size of a page");
  std::ranges::fill(page, std::byte{0});
  Cursor cursor(page.data());
  cursor.put(kMagic);
  cursor.put(kTierVersion);
  cursor.put(checksum_kind());
  cursor.put(header.place_bytes);
  cursor.put(header.fingerprint);
  cursor.put(header.identity);
  cursor.put(header.incarnation);
  Cursor(page.data() + kTierPageBytes - sizeof(Checksum)).put(checksum_of(page.first(kTierPageBytes - sizeof(Checksum))));
}

EntryState decode_entry(std::span<const std::byte> bytes, const TierHeader& header, std::uint64_t place, TierEntry& entry) {
  QUIRE_CHECK(bytes.size() == kEntryBytes, "an entry has kEntryBytes bytes");
  if (is_zero(bytes)) return EntryState::empty;
  if (entry_checksum(bytes, header, place) != read_checksum<kEntryBytes>(bytes)) return EntryState::damaged;
  std::array<std::byte, kEntryBytes> copy;
  std::ranges::copy(bytes, copy.begin());
  Cursor cursor(copy.data());
  cursor.get(entry.sequence);
  cursor.get(entry.name.hash);
  cursor.get(entry.name.group);
  cursor.get(entry.bytes);
  cursor.get(entry.checksum);
  const bool is_whole = entry.sequence > 0 && entry.bytes > 0 && entry.bytes <= header.place_bytes;
  return is_whole ? EntryState::good : EntryState::damaged;
}

void encode_entry(const TierEntry& entry, const TierHeader& header, std::uint64_t place, std::span<std::byte> bytes) {
  QUIRE_CHECK(bytes.size() == kEntryBytes, "an entry has kEntryBytes bytes");
  std::ranges::fill(bytes, std::byte{0});
  Cursor cursor(bytes.data());
  cursor.put(entry.sequence);
  cursor.put(entry.name.hash);
  cursor.put(entry.name.group);
  cursor.put(entry.bytes);
  cursor.put(entry.checksum);
  Cursor(bytes.data() + kEntryBytes - sizeof(Checksum)).put(entry_checksum(bytes, header, place));
}

Checksum payload_checksum(const TierHeader& header, const OffloadKey& name, std::uint32_t bytes, std::span<const std::byte> payload) {
  const Checksum of_payload = checksum_of(payload);
  std::array<std::byte, sizeof of_payload + sizeof header.fingerprint + sizeof header.identity + sizeof name.hash + 8> bound{};
  Cursor cursor(bound.data());
  cursor.put(of_payload);
  cursor.put(header.fingerprint);
  cursor.put(header.identity);
  cursor.put(name.hash);
  cursor.put(name.group);
  cursor.put(bytes);
  return checksum_of(bound);
}

}  // namespace quire
