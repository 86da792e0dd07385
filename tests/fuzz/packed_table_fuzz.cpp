// Reads any bytes as the table of a file of packed weights. The table is refused, or it is written again as it was read and the sizes of
// its matrices match their shapes.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "fuzz/subject.h"
#include "runtime/model/packed/packed_table.h"

static quire::test::FuzzSubject subject("a table with a matrix");

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::uint64_t kEnd = std::uint64_t{1} << 30U;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (bytes.empty()) return 0;
  const auto count = static_cast<std::uint64_t>(bytes[0]);
  const auto table = quire::decode_table(bytes.subspan(1), count, kEnd);
  if (!table) return 0;
  QUIRE_CHECK(table->size() == count, "so many matrices");
  for (const quire::PackedEntry& entry : *table) {
    QUIRE_CHECK(entry.offset >= quire::kPackedAlignment && entry.bytes <= kEnd && entry.offset <= kEnd - entry.bytes, "within the file");
    QUIRE_CHECK(entry.bytes == entry.shape.panel_bytes * std::uint64_t{entry.shape.num_panels()}, "as large as its shape");
  }
  if (!table->empty()) subject.reached();
  const std::vector<std::byte> again = quire::encode_table(*table);
  QUIRE_CHECK(again.size() == bytes.size() - 1, "a table is written as it was read");
  return 0;
}
