#include <cmath>
#include <cstring>

#include "runtime/kernel/implementations.h"
#include "runtime/kernel/packed_layout.h"

namespace quire::reference {
namespace {

// Codes of the plain kernels: int16 [row][column].
const std::int16_t* code_row(const Activations& x, std::uint32_t row) {
  return reinterpret_cast<const std::int16_t*>(x.codes) + std::size_t{row} * x.columns;
}

void prepare_group(const Activations& x, std::uint32_t row, std::uint32_t group) {
  const float* from = x.x + row * x.stride + std::size_t{group} * kGroupColumns;
  auto* codes = reinterpret_cast<std::int16_t*>(x.codes) + std::size_t{row} * x.columns + std::size_t{group} * kGroupColumns;
  float amax = 0.0F;
  bool finite = true;
  for (std::uint32_t i = 0; i < kGroupColumns; ++i) {
    amax = std::fabs(from[i]) > amax ? std::fabs(from[i]) : amax;
    finite = finite && std::isfinite(from[i]);
  }
  const float inverse = 32639.0F / amax;
  const float factor = inverse < INFINITY ? inverse : 0.0F;
  const std::size_t at = std::size_t{row} * (x.columns / kGroupColumns) + group;
  x.scales[at] = finite ? amax / 32639.0F : NAN;
  for (std::uint32_t half = 0; half < 2; ++half) {
    std::int32_t sum = 0;
    for (std::uint32_t i = 16 * half; i < 16 * half + 16; ++i) {
      codes[i] = finite ? static_cast<std::int16_t>(std::lrint(from[i] * factor)) : std::int16_t{0};
      sum += codes[i];
    }
    x.half_sums[2 * at + half] = sum;
  }
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
  const int code = static_cast<int>(code_at(w, row, k)) - (w.format == WeightFormat::q8 ? 128 : 0);
  return std::fma(static_cast<float>(code), scale_at(w, row, k), minimum_at(w, row, k));
}

float float_dot(const PackedMatrix& w, std::uint32_t n, const float* x) {
  float acc = 0.0F;
  for (std::uint32_t k = 0; k < w.columns; ++k) acc = std::fma(weight_at(w, n, k), x[k], acc);
  return acc;
}

float integer_dot(const PackedMatrix& w, std::uint32_t n, const Activations& x, std::uint32_t row) {
  const std::int16_t* codes = code_row(x, row);
  const std::int32_t zero = w.format == WeightFormat::q8 ? 128 : 0;
  float acc = 0.0F;
  for (std::uint32_t k = 0; k < w.columns; k += w.scale_columns) {
    std::int32_t dot = 0;
    std::int32_t sum = 0;
    for (std::uint32_t i = k; i < k + w.scale_columns; ++i) {
      dot += (static_cast<std::int32_t>(code_at(w, n, i)) - zero) * codes[i];
      sum += codes[i];
    }
    const float scale = x.scales[std::size_t{row} * (x.columns / kGroupColumns) + k / kGroupColumns];
    acc = std::fma(static_cast<float>(dot) * scale, scale_at(w, n, k), acc);
    if (w.has_minimums) acc = std::fma(static_cast<float>(sum) * scale, minimum_at(w, n, k), acc);
  }
  return acc;
}

}  // namespace

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end) {
  if (x.mode == ActivationMode::f32) return;
  for (std::uint32_t row = row_begin; row < row_end; ++row)
    for (std::uint32_t group = 0; group < x.columns / kGroupColumns; ++group) prepare_group(x, row, group);
}

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  check_product(w, x, end);
  const bool integer = x.mode == ActivationMode::int16 && (w.format == WeightFormat::q4 || w.format == WeightFormat::q8);
  const std::uint32_t last = end * kPanelRows < w.rows ? end * kPanelRows : w.rows;
  for (std::uint32_t row = 0; row < x.rows; ++row)
    for (std::uint32_t n = begin * kPanelRows; n < last; ++n)
      y[row * y_stride + n] = integer ? integer_dot(w, n, x, row) : float_dot(w, n, x.x + row * x.stride);
}

}  // namespace quire::reference
