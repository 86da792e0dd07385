#pragma once
// The layout of PackedMatrix::storage, used by the packer and by the reference kernels. Panels of 16 rows follow each other. Within a
// panel:
//  - f32, bf16: [column][16 rows].
//  - q4, q4_signed, q4_table, q6, q8: one block per 32 columns, with codes, then scales [32 / scale_columns][16 rows], then minimums in the
//    same shape (if any).
//    Code bytes are in lines of 64, [16 rows][4 columns]. Line s of q8 has columns 4s .. 4s + 3. Line s of q4 (q4_signed, q4_table) has
//    columns 4s .. 4s + 3 in the low half-bytes, and 16 + 4s .. 16 + 4s + 3 in the high half-bytes.
//    q6 has four lines like q4, then two lines of the upper bits, each for 16 columns: bits 2s and 2s + 1 belong to columns 4s .. 4s + 3.
//    If scales and minimums are bytes, each is a signed multiple of a unit, and the panel begins with these units in f16, padded to a whole
//    cache line: [columns / 256][scales, minimums (if any)][16 rows].
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/half.h"
#include "runtime/kernel/pack.h"

namespace quire {

// Returns the size in bytes of the scales (or minimums) of one block.
inline std::size_t scale_block_bytes(const PackedMatrix& m) {
  return std::size_t{kGroupColumns / m.scale_columns} * kPanelRows * m.scale_bytes;
}

inline std::size_t block_bytes(const PackedMatrix& m) {
  return code_bytes(m.format) + scale_block_bytes(m) * (m.has_minimums ? 2 : 1);
}

// unit_bytes() returns the size in bytes of the units for 256 columns, all_unit_bytes() the size of all units before the blocks of a panel.
inline std::size_t unit_bytes(const PackedMatrix& m) {
  return std::size_t{2} * kPanelRows * (m.has_minimums ? 2 : 1);
}
inline std::size_t all_unit_bytes(const PackedMatrix& m) {
  return m.scale_bytes != 1 ? 0 : (m.columns / kUnitColumns * unit_bytes(m) + 63) / 64 * 64;
}

// Returns the size in bytes of a panel of 16 rows.
inline std::size_t panel_bytes(const PackedMatrix& m) {
  if (!is_integer(m.format)) return std::size_t{kPanelRows} * m.columns * (m.format == WeightFormat::f32 ? 4 : 2);
  return all_unit_bytes(m) + block_bytes(m) * (m.columns / kGroupColumns);
}

inline const std::uint8_t* block_at(const PackedMatrix& m, std::uint32_t row, std::uint32_t column) {
  return m.storage.data() + (row / kPanelRows) * m.panel_bytes + all_unit_bytes(m) + (column / kGroupColumns) * block_bytes(m);
}

// Returns the code of a weight; for q4_table, the table entry.
inline std::uint32_t code_at(const PackedMatrix& m, std::uint32_t row, std::uint32_t column) {
  const std::uint32_t k = column % kGroupColumns;
  const std::uint8_t* block = block_at(m, row, column) + std::size_t{4} * (row % kPanelRows) + k % 4;
  if (m.format == WeightFormat::q8) return block[std::size_t{64} * (k / 4)];
  if (m.format == WeightFormat::q6) {
    const std::uint32_t low = block[std::size_t{64} * (k % 16 / 4)] >> (k < 16 ? 0 : 4) & 15U;
    return low | (block[256 + std::size_t{64} * (k / 16)] >> 2 * (k % 16 / 4) & 3U) << 4;
  }
  const std::uint32_t byte = block[std::size_t{64} * (k % 16 / 4)];
  const std::uint32_t code = k < 16 ? byte & 15U : byte >> 4;
  return m.format == WeightFormat::q4_table ? m.table[code] : code;
}

// Returns the unit of the minimum or of the scale of a weight.
inline float unit_at(const PackedMatrix& m, std::uint32_t row, std::uint32_t column, bool of_minimums) {
  std::uint16_t half = 0;
  const std::uint8_t* panel = m.storage.data() + (row / kPanelRows) * m.panel_bytes;
  const std::size_t index = row % kPanelRows + (of_minimums ? kPanelRows : 0);
  std::memcpy(&half, panel + column / kUnitColumns * unit_bytes(m) + 2 * index, sizeof half);
  return f16_to_float(half);
}

inline float scale_in_block(const PackedMatrix& m, std::uint32_t row, std::uint32_t column, bool of_minimums) {
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): formats with scales have columns for each
  const std::size_t index = (column % kGroupColumns) / m.scale_columns * kPanelRows + row % kPanelRows;
  const std::size_t offset = code_bytes(m.format) + (of_minimums ? scale_block_bytes(m) : 0);
  const std::uint8_t* at = block_at(m, row, column) + offset + index * m.scale_bytes;
  if (m.scale_bytes == 1) return static_cast<float>(static_cast<std::int8_t>(*at)) * unit_at(m, row, column, of_minimums);
  std::uint16_t half = 0;
  float full = 0.0F;
  if (m.scale_bytes == 4) {
    std::memcpy(&full, at, sizeof full);
    return full;
  }
  std::memcpy(&half, at, sizeof half);
  return f16_to_float(half);
}

inline float scale_at(const PackedMatrix& m, std::uint32_t row, std::uint32_t column) {
  return scale_in_block(m, row, column, false);
}

inline float minimum_at(const PackedMatrix& m, std::uint32_t row, std::uint32_t column) {
  return m.has_minimums ? scale_in_block(m, row, column, true) : 0.0F;
}

}  // namespace quire
