#pragma once
// The walk of a product over panels and rows; include a vec_*.h first. Panels stay in registers while rows pass; rows stay in the
// second-level cache while panels pass.
#include "runtime/kernel/cpu/matmul_parts.h"

namespace quire {
namespace {

constexpr std::uint32_t kCachedRows = 64;  // rows of activations kept in the second-level cache while panels pass by

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
  for (std::uint32_t tile = 0; tile < x.rows; tile += kCachedRows) {
    const std::uint32_t row_end = x.rows - tile < kCachedRows ? x.rows : tile + kCachedRows;
    for (std::uint32_t p = begin; p < end; ++p) {
      const std::uint32_t left = w.rows - p * kPanelRows;
      PanelTask task{
          &w,  &x, w.storage.data() + p * w.panel_bytes, y + std::size_t{p} * kPanelRows, y_stride, left < kPanelRows ? left : kPanelRows,
          tile};
      for_row_blocks<Kernel, Kernel::kRows>(task, row_end);
    }
  }
}

// Integers<format, scale groups per block> for that of w.
template <template <WeightFormat, int> class Integers>
void multiply_integers(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin,
                       std::uint32_t end) {
  with_format(w, [&]<WeightFormat kFormat, int kScales>() { for_panels<Integers<kFormat, kScales>>(w, x, y, y_stride, begin, end); });
}

}  // namespace
}  // namespace quire
