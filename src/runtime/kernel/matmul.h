#pragma once
// Inputs of a matrix product. The products themselves are in the table of kernel.h.
//
// Numeric contract, the same bits from every implementation; y[row][n] depends on x[row] and w[n] alone:
//  - f32 and bf16 weights, and integer formats with float activations: acc = 0; for k ascending: acc = fma(w[n][k], x[k], acc), w as
//  unpack_row gives it.
//  - bf16 weights with bf16 activations: each x rounded to the nearest bf16 (even of two), smaller ones than the smallest normal number to
//    zero; acc = 0; for pairs of columns ascending: acc = fma(w[n][k + 1], x[k + 1], acc), then acc = fma(w[n][k], x[k], acc), where what
//    is smaller than the smallest normal number counts as zero, before and after. So Intel's and AMD's VDPBF16PS do it. Other weights
//    meet such activations as they meet floats.
//  - integer formats with int16 or int8 activations; top is 32639 or 127. Per group of 32 inputs: amax = max |x|, scale dx = amax / top,
//  code =
//    nearest_even(x * (top / amax)) (all zero if top / amax is not finite; if an input is NaN or infinite, all zero and dx is NaN, which
//    reaches every output). So a code of int16 is hi * 256 + lo with hi and lo signed 8-bit. Per scale group g ascending (32 or 16 inputs):
//      acc = fma(float(idot) * dx, scale, acc);  idot = exact int32 sum of code(x) * code(w), where code(w) counts from 128 for q8 and
//      q4_table acc = fma(float(isum) * dx, minimum, acc) if the matrix has minimums;  isum = exact int32 sum of code(x)
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/base/options.h"
#include "runtime/kernel/pack.h"

namespace quire {

// Rows of inputs come in tiles of 16, so that a kernel finds what belongs to one group of neighbouring rows side by side.
inline constexpr std::uint32_t kRowTile = 16;

constexpr bool is_integer(ActivationMode mode) {
  return mode == ActivationMode::int16 || mode == ActivationMode::int8;
}
// Of scratch, per value and row: two bytes of codes, or a float where there is no instruction for bf16.
constexpr std::size_t cell_bytes(ActivationMode mode) {
  return mode == ActivationMode::bf16 ? 4 : 2;
}

// Input rows, reused by every product over the same input. A view: x and the scratch outlive it. The layout of the codes of a group
// belongs to the implementation that prepared them: use one table of kernels throughout.
struct Activations {
  ActivationMode mode = ActivationMode::f32;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  const float* x = nullptr;  // f32 and bf16 weights read x itself, in every mode
  std::size_t stride = 0;    // floats from row to row of x
  // integer modes and bf16:
  // [row / 16][16 * cell_bytes * columns]: [columns / 32][row % 16][64, or 32 where a byte per code is enough]
  std::int8_t* codes = nullptr;
  // integer modes only:
  float* scales = nullptr;            // [row / 16][columns / 32][row % 16]
  float* sums = nullptr;              // as scales: float(sum of the codes of 32 inputs) * scale
  std::int32_t* offsets = nullptr;    // as scales: 128 * sum of the codes of 32 inputs
  std::int32_t* half_sums = nullptr;  // [row / 16][columns / 32][row % 16][2]: sums of the codes of 16 inputs

  // Where a group's scale lies.
  [[nodiscard]] std::size_t group_at(std::uint32_t row, std::uint32_t group) const {
    return (std::size_t{row / kRowTile} * (columns / 32) + group) * kRowTile + row % kRowTile;
  }
  // Its codes, which take `bytes`.
  [[nodiscard]] std::int8_t* codes_at(std::uint32_t row, std::uint32_t group, std::size_t bytes) const {
    return codes + std::size_t{row / kRowTile} * cell_bytes(mode) * kRowTile * columns +
           (std::size_t{group} * kRowTile + row % kRowTile) * bytes;
  }
  // A row rounded to bf16, as floats, where a kernel keeps them so.
  [[nodiscard]] float* rounded(std::uint32_t row) const { return reinterpret_cast<float*>(codes) + std::size_t{row} * columns; }
  // first_row is the first one of a tile.
  [[nodiscard]] Activations slice(std::uint32_t first_row, std::uint32_t num_rows) const;
};

// The largest code of an integer mode.
constexpr float top_code(ActivationMode mode) {
  return mode == ActivationMode::int8 ? 127.0F : 32639.0F;
}

// A product with weights in floats (f32, bf16) whose rows lie anywhere, on one of its sides: row i reads x + from[i] * x_stride and writes
// y + to[i] * y_stride, where from[i] and to[i] are i, or rows[i] - first_row on the side that `scattered` names.
// acc = what is in y, or 0; for k ascending: acc = fma(w[n][k], x[k], acc).
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
  bool adds = false;  // to what is in y

  [[nodiscard]] const float* input(std::uint32_t i) const { return x + x_stride * (scattered == Side::inputs ? rows[i] - first_row : i); }
  [[nodiscard]] float* output(std::uint32_t i) const { return y + y_stride * (scattered == Side::outputs ? rows[i] - first_row : i); }
};

// Scratch bytes for `rows` x `columns`; 0 in f32 mode. The scratch starts on a cache line.
std::size_t activation_scratch_bytes(ActivationMode mode, std::uint32_t rows, std::uint32_t columns);

// Lays out the scratch; Kernels::prepare fills it. But in f32 mode columns are a multiple of 32 (use that for others).
Activations make_activations(ActivationMode mode, const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns,
                             std::span<std::byte> scratch);

}  // namespace quire
