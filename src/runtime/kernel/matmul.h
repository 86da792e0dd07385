#pragma once
// Inputs of a matrix product. The products themselves are in the table of kernel.h.
//
// Numeric contract, the same bits from every implementation; y[row][n] depends on x[row] and w[n] alone:
//  - f32 and bf16 weights, and q4/q8 with float activations: acc = 0; for k ascending: acc = fma(w[n][k], x[k], acc), w as unpack_row gives
//  it.
//  - q4/q8 with int16 activations. Per group of 32 inputs: amax = max |x|, scale dx = amax / 32639, code = nearest_even(x * (32639 / amax))
//    (all zero if 32639 / amax is not finite; if an input is NaN or infinite, all zero and dx is NaN, which reaches every output), so that
//    code = hi * 256 + lo with hi and lo signed 8-bit. Per scale group g ascending (32 or 16 inputs):
//      acc = fma(float(idot) * dx, scale, acc);  idot = exact int32 sum of code(x) * code(w), where code(w) counts from 128 for q8
//      acc = fma(float(isum) * dx, minimum, acc) if the matrix has minimums;  isum = exact int32 sum of code(x)
#include <cstddef>
#include <cstdint>
#include <span>

#include "quire/options.h"
#include "runtime/kernel/pack.h"

namespace quire {

// Input rows, reused by every product over the same input. A view: x and the scratch outlive it. The layout of `codes` belongs to the
// implementation that prepared it: use one table of kernels throughout.
struct Activations {
  ActivationMode mode = ActivationMode::f32;
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  const float* x = nullptr;  // f32 and bf16 weights read x itself, in both modes
  std::size_t stride = 0;    // floats from row to row of x
  // int16 mode only:
  std::int8_t* codes = nullptr;       // [row][2 * columns]
  float* scales = nullptr;            // [row][columns / 32]
  std::int32_t* half_sums = nullptr;  // [row][columns / 16]: sums of the codes of 16 inputs
};

// Scratch bytes for `rows` x `columns`; 0 in f32 mode. The scratch starts on a cache line.
std::size_t activation_scratch_bytes(ActivationMode mode, std::uint32_t rows, std::uint32_t columns);

// Lays out the scratch; Kernels::prepare fills it. In int16 mode columns are a multiple of 32 (use f32 mode for float-only inputs).
Activations make_activations(ActivationMode mode, const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns,
                             std::span<std::byte> scratch);

}  // namespace quire
