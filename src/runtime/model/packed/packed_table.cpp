// Encodes and decodes the table in a file of packed weights. The table is written when a model is packed and read at each later start. All
// values read from the file are checked.
#include "runtime/model/packed/packed_table.h"

#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/kernel/packed_layout.h"

namespace quire {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie in memory");

constexpr std::uint32_t kMaxSide = 1U << 28U;

// An entry of the table. If the matrix has an order of inputs, the order follows the entry.
struct Record {
  std::uint32_t format = 0;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  std::uint32_t scale_columns = 0;
  std::uint32_t scale_bytes = 0;
  std::uint32_t has_minimums = 0;
  CodeTable table{};
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  WeightDigest digest{};
  std::uint32_t num_ordered = 0;
  std::uint32_t unused = 0;
};
static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == 80);

template <class T>
void append(std::vector<std::byte>& to, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  to.insert(to.end(), bytes.begin(), bytes.end());
}

// Returns whether the packer can have made this shape. Kernels do not check shapes.
bool is_sound(const Record& record, std::uint64_t data_end) {
  if (record.format > static_cast<std::uint32_t>(WeightFormat::q8)) return false;
  for (const std::uint32_t side : {record.rows, record.columns})
    if (side == 0 || side > kMaxSide) return false;
  if (record.offset < kPackedAlignment || record.offset % kPackedAlignment != 0 || record.bytes > data_end ||
      record.offset > data_end - record.bytes)
    return false;
  if (record.num_ordered != 0 && record.num_ordered != record.columns) return false;
  if (!is_integer(static_cast<WeightFormat>(record.format))) return true;
  if (record.columns % kGroupColumns != 0 || (record.scale_columns != 32 && record.scale_columns != 16)) return false;
  if (record.scale_bytes == 1) return record.columns % kUnitColumns == 0;
  return record.scale_bytes == 2 || record.scale_bytes == 4;
}

bool is_order(std::span<const std::uint32_t> order) {
  std::vector<bool> seen(order.size(), false);
  for (const std::uint32_t column : order) {
    if (column >= order.size() || seen[column]) return false;
    seen[column] = true;
  }
  return true;
}

}  // namespace

std::vector<std::byte> encode_table(const std::vector<PackedEntry>& entries) {
  std::vector<std::byte> table;
  for (const PackedEntry& entry : entries) {
    const PackedMatrix& shape = entry.shape;
    const Record record{.format = static_cast<std::uint32_t>(shape.format),
                        .rows = shape.rows,
                        .columns = shape.columns,
                        .scale_columns = shape.scale_columns,
                        .scale_bytes = shape.scale_bytes,
                        .has_minimums = shape.has_minimums ? 1U : 0U,
                        .table = shape.table,
                        .offset = entry.offset,
                        .bytes = entry.bytes,
                        .digest = entry.digest,
                        .num_ordered = shape.input_order == nullptr ? 0 : static_cast<std::uint32_t>(shape.input_order->size())};
    append(table, std::span(&record, 1));
    if (shape.input_order != nullptr) append(table, std::span(*shape.input_order));
  }
  return table;
}

std::optional<std::vector<PackedEntry>> decode_table(std::span<const std::byte> table, std::uint64_t count, std::uint64_t data_end) {
  std::vector<PackedEntry> entries;
  while (entries.size() < count && table.size() >= sizeof(Record)) {
    Record record;
    std::memcpy(&record, table.data(), sizeof record);
    table = table.subspan(sizeof record);
    const std::size_t order_bytes = std::size_t{record.num_ordered} * sizeof(std::uint32_t);
    if (!is_sound(record, data_end) || order_bytes > table.size()) return std::nullopt;
    PackedMatrix shape{.format = static_cast<WeightFormat>(record.format),
                       .rows = record.rows,
                       .columns = record.columns,
                       .scale_columns = record.scale_columns,
                       .scale_bytes = record.scale_bytes,
                       .has_minimums = record.has_minimums != 0,
                       .table = record.table};
    shape.panel_bytes = panel_bytes(shape);
    if (record.bytes != std::uint64_t{shape.panel_bytes} * shape.num_panels()) return std::nullopt;
    if (record.num_ordered > 0) {
      std::vector<std::uint32_t> order(record.num_ordered);
      std::memcpy(order.data(), table.data(), order_bytes);
      table = table.subspan(order_bytes);
      if (!is_order(order)) return std::nullopt;
      shape.input_order = std::make_shared<const std::vector<std::uint32_t>>(std::move(order));
    }
    entries.push_back({std::move(shape), record.offset, record.bytes, record.digest});
  }
  if (entries.size() != count || !table.empty()) return std::nullopt;
  return entries;
}

}  // namespace quire
