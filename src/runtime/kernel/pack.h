#pragma once
// Weights in the layout that the kernels read. Any thread may read a finished matrix; a packer belongs to one thread.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "runtime/kernel/packed_storage.h"

namespace quire {

inline constexpr std::uint32_t kPanelRows = 16;  // outputs per panel: a vector of 16 floats
inline constexpr std::uint32_t kGroupColumns = 32;
inline constexpr std::uint32_t kUnitColumns = 256;  // columns that share the units of their scales and minimums (put_units())

// Formats of packed weights. Each type of a weight file is unpacked into one of these formats.
enum class WeightFormat : std::uint8_t {
  f32,
  bf16,
  q4,         // groups of 32 along the input: unsigned 4-bit codes, w = code * scale + minimum
  q4_signed,  // like q4, but every minimum is -8 scales and is not stored: w = (code - 8) * scale
  q6,         // groups of 32 (two scales per group for groups of 16): unsigned 6-bit codes, w = (code - 32) * scale + minimum
  q4_table,   // like q4, but codes are indices into a table of bytes: w = (table[code] - 128) * scale + minimum
  q8,         // groups of 32 (two scales per group for groups of 16): unsigned 8-bit codes, w = (code - 128) * scale + minimum
};

// The values of 4-bit codes, plus 128.
using CodeTable = std::array<std::uint8_t, 16>;

constexpr bool is_integer(WeightFormat format) {
  return format != WeightFormat::f32 && format != WeightFormat::bf16;
}
// Returns whether codes have 4 bits, two per byte.
constexpr bool in_nibbles(WeightFormat format) {
  return format == WeightFormat::q4 || format == WeightFormat::q4_signed || format == WeightFormat::q4_table;
}
// Returns the size in bytes of the codes of 16 rows and 32 columns.
constexpr std::size_t code_bytes(WeightFormat format) {
  return in_nibbles(format) ? 256 : format == WeightFormat::q6 ? 384 : 512;
}
// Returns the code that represents 0; for q4_table, the table entry.
constexpr int zero_code(WeightFormat format) {
  return format == WeightFormat::q4 ? 0 : format == WeightFormat::q4_signed ? 8 : format == WeightFormat::q6 ? 32 : 128;
}

// A weight matrix [rows = outputs][columns = inputs], packed in panels of 16 rows; missing rows of the last panel are zero. In the integer
// formats, columns are a multiple of 32. Panel p starts at storage[p * panel_bytes].
struct PackedMatrix {
  WeightFormat format = WeightFormat::f32;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  // Integer formats only:
  std::uint32_t scale_columns = 0;  // inputs that share a scale, 32 or 16
  std::uint32_t scale_bytes = 0;    // 2 if every scale and minimum is exact in f16, 1 if each is a whole multiple of its unit, else 4
  bool has_minimums = false;        // false if no minimums are stored
  CodeTable table{};                // q4_table
  std::size_t panel_bytes = 0;
  PackedStorage storage{};  // layout: see packed_layout.h
  // Column i is multiplied with input input_order[i]; null: with input i. Kernels ignore the order: callers must pass inputs in this order.
  std::shared_ptr<const std::vector<std::uint32_t>> input_order = {};

  [[nodiscard]] std::uint64_t bytes() const { return storage.size(); }
  [[nodiscard]] std::uint32_t num_panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
};

// Collects a matrix row by row, each row once, in any order. The `put` function must match the format; put_f32 into bf16 rounds to nearest
// even, put_bf16 into f32 widens. Wrong sizes or row numbers end the program, because the loader has checked the shapes in the file.
class MatrixPacker {
 public:
  // `table`: for q4_table.
  MatrixPacker(WeightFormat format, std::uint32_t rows, std::uint32_t columns, const CodeTable& table = {});

  void put_f32(std::uint32_t row, std::span<const float> values);
  void put_bf16(std::uint32_t row, std::span<const std::uint16_t> bits);
  // For q4 and q4_table. `codes`: `columns` values 0 to 15; `scales` and `minimums`: one per 32 columns.
  void put_q4(std::uint32_t row, std::span<const std::uint8_t> codes, std::span<const float> scales, std::span<const float> minimums);
  // `codes`: `columns` values plus 128; `scales` and `minimums`: one per 16 columns. finish() merges pairs of equal scales.
  void put_q8(std::uint32_t row, std::span<const std::uint8_t> codes, std::span<const float> scales, std::span<const float> minimums);
  // Sets the units of the row's scales and minimums, [columns / 256][2]. For integer formats; called for each row or for none. finish()
  // uses the units if each scale and minimum is its unit times an integer from -128 to 127.
  void put_units(std::uint32_t row, std::span<const float> units);

  // Packs the matrix and leaves the packer empty.
  PackedMatrix finish();

 private:
  void put_codes(std::uint32_t row, std::span<const std::uint8_t> codes, std::span<const float> scales, std::span<const float> minimums);
  void choose_scale_layout();
  [[nodiscard]] bool all_multiples() const;
  [[nodiscard]] float multiple_of(const std::vector<float>& values, std::size_t index, std::uint32_t unit) const;
  void store_multiple(std::uint8_t* at, const std::vector<float>& values, std::size_t index, std::uint32_t unit) const;
  void pack_row(std::uint32_t row);
  void pack_units(std::uint32_t row, std::uint8_t* panel) const;

  PackedMatrix packed_;              // f32 and bf16 rows are stored here directly
  std::vector<std::uint8_t> codes_;  // integer formats: [row][column]
  std::vector<float> scales_;        // [row][columns / scale_columns]
  std::vector<float> minimums_;      // same shape as `scales_`
  std::vector<float> units_;         // [row][columns / 256][scales, minimums]; empty: no units
};

// Writes the weights of one row to `out` as the kernels use them, rounded once to f32. The integer formats give fma(code, scale, minimum).
void unpack_row(const PackedMatrix& matrix, std::uint32_t row, std::span<float> out);

}  // namespace quire
