// Reads any bytes as the table of a disk tier. Each header page and each entry is good, empty or refused, and good ones are written again
// as they were read. Every second input has its checksums repaired, so that invalid fields are read too.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "fuzz/subject.h"
#include "runtime/tier/tier_table.h"

namespace quire {
namespace {

test::FuzzSubject subject("a good entry");

void read_header_page(std::span<const std::byte> bytes) {
  std::array<std::byte, kTierPageBytes> page{};
  std::ranges::copy(bytes.first(std::min(bytes.size(), page.size())), page.begin());
  TierHeader header;
  if (decode_header(page, header) != HeaderState::good) return;
  std::array<std::byte, kTierPageBytes> again;
  encode_header(header, again);
  TierHeader second;
  QUIRE_CHECK(decode_header(again, second) == HeaderState::good && second == header, "a header is read as it was written");
}

void read_entry(std::span<const std::byte> bytes, const TierHeader& header, bool repairs) {
  std::array<std::byte, kEntryBytes> raw{};
  std::ranges::copy(bytes, raw.begin());
  TierEntry entry;
  if (repairs) {
    entry.bytes = static_cast<std::uint32_t>(raw[44]) << 16U | static_cast<std::uint32_t>(raw[45]);
    entry.sequence = static_cast<std::uint64_t>(raw[0]);
    entry.name.group = static_cast<std::uint32_t>(raw[40]);
    encode_entry(entry, header, 3, raw);
  }
  TierEntry read;
  const EntryState state = decode_entry(raw, header, 3, read);
  if (state == EntryState::good) subject.reached();
  if (repairs)
    QUIRE_CHECK(state ==
                (entry.sequence > 0 && entry.bytes > 0 && entry.bytes <= header.place_bytes ? EntryState::good : EntryState::damaged));
  if (state != EntryState::good) return;
  QUIRE_CHECK(read.sequence > 0 && read.bytes > 0 && read.bytes <= header.place_bytes, "an entry has a block");
  std::array<std::byte, kEntryBytes> again;
  encode_entry(read, header, 3, again);
  QUIRE_CHECK(again == raw, "an entry is written as it was read");
  QUIRE_CHECK(decode_entry(raw, header, 4, read) == EntryState::damaged, "an entry in another slot is refused");
}

}  // namespace
}  // namespace quire

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (bytes.empty()) return 0;
  const bool repairs = (bytes[0] & std::byte{1}) != std::byte{0};
  bytes = bytes.subspan(1);
  quire::read_header_page(bytes);
  const quire::TierHeader header{.place_bytes = 8192, .fingerprint = {}, .identity = {}, .incarnation = 1};
  for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), std::size_t{quire::kEntryBytes})))
    quire::read_entry(bytes.first(std::min(bytes.size(), std::size_t{quire::kEntryBytes})), header, repairs);
  return 0;
}
