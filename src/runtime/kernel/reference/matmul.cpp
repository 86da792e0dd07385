// Products of packed weights in plain C++, which define the contract of matmul.h. Tests compare every fast kernel with them bit for bit,
// and processors without a fast kernel use them. Called on every thread of the pool, for disjoint panels. Written for readability, not for
// speed. A change here changes the bits of all kernels.
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "runtime/kernel/implementations.h"
#include "runtime/kernel/packed_layout.h"
#include "runtime/kernel/reference/math.h"

namespace quire::reference {
namespace {

// Returns the row's codes of the group. The reference kernels store codes of both integer modes in 16 bits.
std::int16_t* codes_of(const Activations& x, std::uint32_t row, std::uint32_t group) {
  return reinterpret_cast<std::int16_t*>(x.codes_at(row, group, kGroupColumns * sizeof(std::int16_t)));
}

void round_group(const Activations& x, std::uint32_t row, std::uint32_t group) {
  const float* from = x.x + row * x.stride + std::size_t{group} * kGroupColumns;
  float* to = x.rounded(row) + std::size_t{group} * kGroupColumns;
  for (std::uint32_t i = 0; i < kGroupColumns; ++i) to[i] = bf16_to_float(float_to_bf16(flushed(from[i])));
}

void prepare_group(const Activations& x, std::uint32_t row, std::uint32_t group) {
  const float* from = x.x + row * x.stride + std::size_t{group} * kGroupColumns;
  std::int16_t* codes = codes_of(x, row, group);
  float amax = 0.0F;
  bool finite = true;
  for (std::uint32_t i = 0; i < kGroupColumns; ++i) {
    amax = std::fabs(from[i]) > amax ? std::fabs(from[i]) : amax;
    finite = finite && std::isfinite(from[i]);
  }
  const float top = top_code(x.mode);
  const float inverse = top / amax;
  const float factor = inverse < INFINITY ? inverse : 0.0F;
  const std::size_t at = x.group_at(row, group);
  x.scales[at] = finite ? amax / top : NAN;
  for (std::uint32_t half = 0; half < 2; ++half) {
    std::int32_t sum = 0;
    for (std::uint32_t i = 16 * half; i < 16 * half + 16; ++i) {
      codes[i] = finite ? static_cast<std::int16_t>(std::lrint(from[i] * factor)) : std::int16_t{0};
      sum += codes[i];
    }
    x.half_sums[2 * at + half] = sum;
  }
  const std::int32_t sum = x.half_sums[2 * at] + x.half_sums[2 * at + 1];
  x.sums[at] = static_cast<float>(sum) * x.scales[at];
  x.offsets[at] = 128 * sum;
}

float weight_at(const PackedMatrix& w, std::uint32_t row, std::uint32_t k) {
  const std::uint8_t* panel = w.storage.data() + (row / kPanelRows) * w.panel_bytes;
  const std::size_t at = std::size_t{k} * kPanelRows + row % kPanelRows;
  if (w.format == WeightFormat::f32) {
    float value = 0.0F;
    std::memcpy(&value, panel + at * 4, 4);
    return value;
  }
  if (w.format == WeightFormat::bf16) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, panel + at * 2, 2);
    return bf16_to_float(bits);
  }
  const int code = static_cast<int>(code_at(w, row, k)) - zero_code(w.format);
  return std::fma(static_cast<float>(code), scale_at(w, row, k), minimum_at(w, row, k));
}

float float_dot(const PackedMatrix& w, std::uint32_t n, const float* x) {
  float acc = 0.0F;
  for (std::uint32_t k = 0; k < w.columns; ++k) acc = std::fma(weight_at(w, n, k), x[k], acc);
  return acc;
}

float rounded_dot(const PackedMatrix& w, std::uint32_t n, const float* x) {
  float acc = 0.0F;
  for (std::uint32_t k = 0; k < w.columns; k += 2) {
    acc = flushed(std::fma(flushed(weight_at(w, n, k + 1)), x[k + 1], acc));
    acc = flushed(std::fma(flushed(weight_at(w, n, k)), x[k], acc));
  }
  return acc;
}

float integer_dot(const PackedMatrix& w, std::uint32_t n, const Activations& x, std::uint32_t row) {
  const std::int32_t zero = zero_code(w.format);
  float acc = 0.0F;
  for (std::uint32_t k = 0; k < w.columns; k += w.scale_columns) {
    const std::int16_t* codes = codes_of(x, row, k / kGroupColumns);
    std::int32_t dot = 0;
    std::int32_t sum = 0;
    for (std::uint32_t i = k; i < k + w.scale_columns; ++i) {
      dot += (static_cast<std::int32_t>(code_at(w, n, i)) - zero) * codes[i % kGroupColumns];
      sum += codes[i % kGroupColumns];
    }
    const float scale = x.scales[x.group_at(row, k / kGroupColumns)];
    acc = std::fma(static_cast<float>(dot) * scale, scale_at(w, n, k), acc);
    if (w.has_minimums) acc = std::fma(static_cast<float>(sum) * scale, minimum_at(w, n, k), acc);
  }
  return acc;
}

}  // namespace

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end) {
  if (x.mode == ActivationMode::f32) return;
  for (std::uint32_t row = row_begin; row < row_end; ++row)
    for (std::uint32_t group = group_begin; group < group_end; ++group)
      is_integer(x.mode) ? prepare_group(x, row, group) : round_group(x, row, group);
}

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  check_product(w, x, end);
  const bool in_integers = is_integer(x.mode) && is_integer(w.format);
  const bool is_rounded = x.mode == ActivationMode::bf16 && w.format == WeightFormat::bf16;
  const std::uint32_t last = end * kPanelRows < w.rows ? end * kPanelRows : w.rows;
  for (std::uint32_t row = 0; row < x.rows; ++row)
    for (std::uint32_t n = begin * kPanelRows; n < last; ++n)
      y[row * y_stride + n] = in_integers  ? integer_dot(w, n, x, row)
                              : is_rounded ? rounded_dot(w, n, x.rounded(row))
                                           : float_dot(w, n, x.x + row * x.stride);
}

void multiply_rows(const PackedMatrix& w, const RowProduct& product, std::uint32_t begin, std::uint32_t end) {
  check_row_product(w, end);
  const std::uint32_t last = end * kPanelRows < w.rows ? end * kPanelRows : w.rows;
  for (std::uint32_t i = 0; i < product.count; ++i) {
    const float* x = product.input(i);
    float* y = product.output(i);
    for (std::uint32_t n = begin * kPanelRows; n < last; ++n) {
      float acc = product.adds ? y[n] : 0.0F;
      for (std::uint32_t k = 0; k < w.columns; ++k) acc = std::fma(weight_at(w, n, k), x[k], acc);
      y[n] = acc;
    }
  }
}

}  // namespace quire::reference
