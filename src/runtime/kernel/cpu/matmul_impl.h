#pragma once
// Products with float activations over Vec, and what the integer products share; include a vec_*.h first. Contract in matmul.h.
#include <cmath>
#include <cstring>

#include "runtime/kernel/matmul.h"

namespace quire {
namespace {

constexpr std::uint32_t kRowTile = 64;  // rows of activations kept in the second-level cache while panels pass by

// One panel of weights against some rows. y points at the panel's first output of row 0; `outputs` of the 16 exist.
struct PanelTask {
  const PackedMatrix* w;
  const Activations* x;
  const std::uint8_t* panel;
  float* y;
  std::size_t y_stride;
  std::uint32_t outputs;
  std::uint32_t first_row;

  void put(int r, Vec acc) const {
    float* at = y + (first_row + static_cast<std::uint32_t>(r)) * y_stride;
    if (outputs == kPanelRows)
      acc.store(at);
    else
      acc.store_first(at, outputs);
  }
};

// Walks row tiles, panels, and blocks of R rows; Kernel::run<R>(task) takes R rows.
template <class Kernel, int R>
void for_row_blocks(PanelTask& task, std::uint32_t row_end) {
  for (; task.first_row + R <= row_end; task.first_row += R) Kernel::template run<R>(task);
  if constexpr (R > 1) for_row_blocks<Kernel, R - 1>(task, row_end);
}

template <class Kernel>
void for_panels(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t tile = 0; tile < x.rows; tile += kRowTile) {
    const std::uint32_t row_end = x.rows - tile < kRowTile ? x.rows : tile + kRowTile;
    for (std::uint32_t p = begin; p < end; ++p) {
      const std::uint32_t left = w.rows - p * kPanelRows;
      PanelTask task{
          &w,  &x, w.storage.data() + p * w.panel_bytes, y + std::size_t{p} * kPanelRows, y_stride, left < kPanelRows ? left : kPanelRows,
          tile};
      for_row_blocks<Kernel, Kernel::kRows>(task, row_end);
    }
  }
}

// 16 scales (or minimums) of a block.
Vec load_scales(const std::uint8_t* at, std::uint32_t bytes) {
  return bytes == 2 ? Vec::load_f16(at) : Vec::load(reinterpret_cast<const float*>(at));
}

// 32 columns (or the last fewer) of a panel as floats, [column][16]; f32 weights are read in place.
const float* widen_block(const PackedMatrix& w, const std::uint8_t* panel, std::uint32_t column, std::uint32_t columns, float* scratch) {
  if (w.format == WeightFormat::f32) return reinterpret_cast<const float*>(panel) + std::size_t{column} * kPanelRows;
  if (w.format == WeightFormat::bf16) {
    const std::uint16_t* from = reinterpret_cast<const std::uint16_t*>(panel) + std::size_t{column} * kPanelRows;
    for (std::uint32_t k = 0; k < columns; ++k) Vec::load_bf16(from + std::size_t{k} * 16).store(scratch + std::size_t{k} * 16);
    return scratch;
  }
  const bool q8 = w.format == WeightFormat::q8;
  const std::uint32_t per_block = kGroupColumns / w.scale_columns;
  const std::size_t scale_bytes = std::size_t{16} * w.scale_bytes;
  const std::size_t code_bytes = q8 ? 512 : 256;
  const std::uint8_t* block = panel + column / kGroupColumns * (code_bytes + scale_bytes * per_block * (w.has_minimums ? 2 : 1));
  for (std::uint32_t i = 0; i < per_block; ++i) {
    const std::uint8_t* scales = block + code_bytes + i * scale_bytes;
    const Vec scale = load_scales(scales, w.scale_bytes);
    const Vec minimum = w.has_minimums ? load_scales(scales + per_block * scale_bytes, w.scale_bytes) : Vec::zero();
    for (std::uint32_t k = i * w.scale_columns; k < (i + 1) * w.scale_columns; ++k) {
      const int shift = static_cast<int>(8 * (k % 4));
      const Vec code = q8 ? Vec::codes(block + std::size_t{16} * (k & ~3U), shift, 255, 128)
                          : Vec::codes(block + std::size_t{16} * (k % 16 & ~3U), shift + (k < 16 ? 0 : 4), 15, 0);
      Vec::fma(code, scale, minimum).store(scratch + std::size_t{k} * 16);
    }
  }
  return scratch;
}

struct FloatKernel {
  static constexpr int kRows = Vec::kMatmulRows;

  template <int R>
  static void run(const PanelTask& task) {
    alignas(64) float scratch[kGroupColumns * kPanelRows];
    const float* x[R];
    Vec acc[R];
    for (int r = 0; r < R; ++r) {
      x[r] = task.x->x + (task.first_row + static_cast<std::uint32_t>(r)) * task.x->stride;
      acc[r] = Vec::zero();
    }
    const std::uint32_t columns = task.w->columns;
    for (std::uint32_t column = 0; column < columns; column += kGroupColumns) {
      const std::uint32_t n = columns - column < kGroupColumns ? columns - column : kGroupColumns;
      const float* block = widen_block(*task.w, task.panel, column, n, scratch);
      for (std::uint32_t k = 0; k < n; ++k) {
        const Vec weights = Vec::load(block + std::size_t{k} * kPanelRows);
        for (int r = 0; r < R; ++r) acc[r] = Vec::fma(weights, Vec::set(x[r][column + k]), acc[r]);
      }
    }
    for (int r = 0; r < R; ++r) task.put(r, acc[r]);
  }
};

// Largest magnitude and scale of 32 inputs; x * factor are the codes before rounding.
struct GroupScale {
  float factor;
  float scale;  // NaN when an input is NaN or infinite
};

GroupScale scale_of_group(const float* x) {
  const auto absolute = [](Vec v) { return Vec::max(v, Vec::zero() - v); };
  const Vec a = Vec::load(x);
  const Vec b = Vec::load(x + 16);
  if (std::isnan((a * Vec::zero() + b * Vec::zero()).sum())) return {0.0F, NAN};
  const float amax = Vec::max(absolute(a), absolute(b)).largest();
  const float inverse = 32639.0F / amax;
  return {inverse < INFINITY ? inverse : 0.0F, amax / 32639.0F};
}

template <class Integers>
void prepare_impl(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end) {
  if (x.mode == ActivationMode::f32) return;
  const std::uint32_t groups = x.columns / kGroupColumns;
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    for (std::uint32_t group = 0; group < groups; ++group) {
      const float* from = x.x + row * x.stride + std::size_t{group} * kGroupColumns;
      const std::size_t at = std::size_t{row} * groups + group;
      const GroupScale chosen = scale_of_group(from);
      x.scales[at] = chosen.scale;
      if (std::isnan(chosen.scale)) {
        std::memset(x.codes + at * 64, 0, 64);
        x.half_sums[2 * at] = x.half_sums[2 * at + 1] = 0;
      } else {
        Integers::store_codes(from, chosen.factor, x.codes + at * 64, x.half_sums + 2 * at);
      }
    }
  }
}

bool uses_integers(const PackedMatrix& w, const Activations& x) {
  return x.mode == ActivationMode::int16 && (w.format == WeightFormat::q4 || w.format == WeightFormat::q8);
}

// Integers::Kernel<q8, scale groups per block> for the format of w.
template <class Integers>
void matmul_impl(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  if (!uses_integers(w, x))
    for_panels<FloatKernel>(w, x, y, y_stride, begin, end);
  else if (w.format == WeightFormat::q4)
    for_panels<typename Integers::template Kernel<false, 1>>(w, x, y, y_stride, begin, end);
  else if (w.scale_columns == kGroupColumns)
    for_panels<typename Integers::template Kernel<true, 1>>(w, x, y, y_stride, begin, end);
  else
    for_panels<typename Integers::template Kernel<true, 2>>(w, x, y, y_stride, begin, end);
}

}  // namespace
}  // namespace quire
