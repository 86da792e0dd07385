#pragma once
// Inputs of a matrix product. kernel.h declares the products themselves.
//
// Numeric contract: every implementation gives the same bits, and y[row][n] depends on x[row] and w[n] alone.
//  - f32 and bf16 weights, and integer formats with float activations: acc = 0; for k ascending: acc = fma(w[n][k], x[k], acc), with w as
//    unpack_row() returns it.
//  - bf16 weights with bf16 activations: each x is rounded to the nearest bf16 (ties to even), and a denormal x to zero. acc = 0; for pairs
//    of columns ascending: acc = fma(w[n][k + 1], x[k + 1], acc), then acc = fma(w[n][k], x[k], acc). Denormal inputs and results count as
//    zero. VDPBF16PS of Intel and AMD computes the same. With other weights, such activations are multiplied as floats.
//  - integer formats with int16 or int8 activations; top is 32639 or 127. Per group of 32 inputs: amax = max |x|; the scale is dx = amax /
//    top; code = nearest_even(x * (top / amax)). If top / amax is not finite, all codes are zero. If an input is NaN or infinite, all codes
//    are zero and dx is NaN, which reaches every output. An int16 code is hi * 256 + lo, where hi and lo are signed 8-bit numbers. Per
//    scale group g ascending (32 or 16 inputs):
//      acc = fma(float(idot) * dx, scale, acc), where idot = exact int32 sum of code(x) * (code(w) - zero_code(format));
//      acc = fma(float(isum) * dx, minimum, acc) if the matrix has minimums, where isum = exact int32 sum of code(x).
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/base/options.h"
#include "runtime/kernel/pack.h"

namespace quire {

// Rows of inputs are stored in tiles of 16, so that the data of a group's neighbouring rows are adjacent.
inline constexpr std::uint32_t kRowTile = 16;

constexpr bool is_integer(ActivationMode mode) {
  return mode == ActivationMode::int16 || mode == ActivationMode::int8;
}
// Returns the scratch bytes per value: two for codes, and four in bf16 mode, in which processors without a bf16 instruction store floats.
constexpr std::size_t cell_bytes(ActivationMode mode) {
  return mode == ActivationMode::bf16 ? 4 : 2;
}

// View of input rows, reused by every product over the same input; x and the scratch must outlive the view. The layout of the codes depends
// on the implementation that prepared them, so all calls on an object must use the same table of kernels.
struct Activations {
  ActivationMode mode = ActivationMode::f32;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  const float* x = nullptr;  // read by products with f32 weights, and with bf16 weights except in bf16 mode
  std::size_t stride = 0;    // in floats, from row to row of x
  // Integer modes and bf16 mode:
  // [row / 16][16 * cell_bytes * columns]: [columns / 32][row % 16][64 bytes, or 32 if a byte per code is enough]
  std::int8_t* codes = nullptr;
  // Integer modes only:
  float* scales = nullptr;            // [row / 16][columns / 32][row % 16]
  float* sums = nullptr;              // like scales: float(sum of the codes of 32 inputs) * scale
  std::int32_t* offsets = nullptr;    // like scales: 128 * sum of the codes of 32 inputs
  std::int32_t* half_sums = nullptr;  // [row / 16][columns / 32][row % 16][2]: sums of the codes of 16 inputs

  // Returns the index of the group's scale.
  [[nodiscard]] std::size_t group_at(std::uint32_t row, std::uint32_t group) const {
    return (std::size_t{row / kRowTile} * (columns / 32) + group) * kRowTile + row % kRowTile;
  }
  // Returns the row's codes of the group, which have `bytes` bytes.
  [[nodiscard]] std::int8_t* codes_at(std::uint32_t row, std::uint32_t group, std::size_t bytes) const {
    return codes + std::size_t{row / kRowTile} * cell_bytes(mode) * kRowTile * columns +
           (std::size_t{group} * kRowTile + row % kRowTile) * bytes;
  }
  // Returns a row rounded to bf16 and stored as floats, for implementations without a bf16 instruction.
  [[nodiscard]] float* rounded(std::uint32_t row) const { return reinterpret_cast<float*>(codes) + std::size_t{row} * columns; }
  // Returns a view of some rows; first_row must be the first row of a tile.
  [[nodiscard]] Activations slice(std::uint32_t first_row, std::uint32_t num_rows) const;
};

// Returns the code of the largest magnitude in an integer mode.
constexpr float top_code(ActivationMode mode) {
  return mode == ActivationMode::int8 ? 127.0F : 32639.0F;
}

// A product with float weights (f32, bf16) in which either the input rows or the output rows are scattered. Row i reads x + from[i] *
// x_stride and writes y + to[i] * y_stride. On the side that `scattered` names, from[i] or to[i] is rows[i] - first_row; on the other side
// it is i. acc = y if `adds` is set, else 0; for k ascending: acc = fma(w[n][k], x[k], acc).
struct RowProduct {
  enum class Side : std::uint8_t { inputs, outputs };

  const float* x = nullptr;
  std::size_t x_stride = 0;  // floats
  float* y = nullptr;
  std::size_t y_stride = 0;  // floats
  const std::uint32_t* rows = nullptr;
  std::uint32_t first_row = 0;
  std::uint32_t count = 0;
  Side scattered = Side::inputs;
  bool adds = false;  // adds to the values in y

  [[nodiscard]] const float* input(std::uint32_t i) const { return x + x_stride * (scattered == Side::inputs ? rows[i] - first_row : i); }
  [[nodiscard]] float* output(std::uint32_t i) const { return y + y_stride * (scattered == Side::outputs ? rows[i] - first_row : i); }
};

// Returns the scratch size in bytes for `rows` x `columns`; 0 in f32 mode. The scratch must start on a cache line.
std::size_t activation_scratch_bytes(ActivationMode mode, std::uint32_t rows, std::uint32_t columns);

// Lays out the scratch; Kernels::prepare fills it. Columns must be a multiple of 32, except in f32 mode.
Activations make_activations(ActivationMode mode, const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns,
                             std::span<std::byte> scratch);

}  // namespace quire
