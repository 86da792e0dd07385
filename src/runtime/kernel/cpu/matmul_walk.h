#pragma once
// Loops of a product over panels and rows; include a vec_*.h first. Inner loops keep a panel in registers and rows of activations in the L2
// cache.
#include "runtime/kernel/cpu/matmul_parts.h"

namespace quire {
namespace {

constexpr std::uint32_t kCachedRows = 64;  // rows of activations that stay in the L2 cache while all panels are processed

// A product of one panel of weights with some rows. `y` points to the panel's first output of row 0; `outputs` of the panel's 16 outputs
// exist.
struct PanelTask {
  const PackedMatrix* w;
  const Activations* x;
  const std::uint8_t* panel;
  float* y;
  std::size_t y_stride;
  std::uint32_t outputs;
  std::uint32_t first_row;

  // Stores row r of the panel that is `panel_after` panels after the first. If several panels are processed together, each has all 16
  // outputs.
  void put(int r, Vec acc, int panel_after = 0) const {
    float* at =
        y + (first_row + static_cast<std::uint32_t>(r)) * y_stride + std::size_t{kPanelRows} * static_cast<std::size_t>(panel_after);
    if (outputs == kPanelRows)
      acc.store(at);
    else
      acc.store_first(at, outputs);
  }
};

inline PanelTask task_of(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t panel,
                         std::uint32_t first_row) {
  const std::uint32_t left = w.rows - panel * kPanelRows;
  return {.w = &w,
          .x = &x,
          .panel = w.storage.data() + panel * w.panel_bytes,
          .y = y + std::size_t{panel} * kPanelRows,
          .y_stride = y_stride,
          .outputs = left < kPanelRows ? left : kPanelRows,
          .first_row = first_row};
}

// Loops over row tiles, panels, and blocks of R rows. Kernel::run<R>(task) processes R rows. Each run() is a separate function (noinline):
// as one function, compilation took twice as long, and a call is cheap compared with a panel.
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
      PanelTask task = task_of(w, x, y, y_stride, p, tile);
      for_row_blocks<Kernel, Kernel::kRows>(task, row_end);
    }
  }
}

// Prefetches `bytes` of each of P panels, kAheadBytes after offset `at`. Only the first rows prefetch; for later rows, the panels are
// already in the cache.
template <int P>
[[gnu::always_inline]] inline void fetch_ahead(const PanelTask& task, std::size_t at, std::size_t bytes) {
  constexpr std::size_t kAheadBytes = 4096;
  if (task.first_row != 0) return;
  for (std::size_t p = 0; p < P; ++p)
    for (std::size_t line = 0; line < bytes; line += 64) __builtin_prefetch(task.panel + p * task.w->panel_bytes + at + kAheadBytes + line);
}

// Processes blocks of R rows, then the remaining rows in blocks of half the size.
template <class Kernel, int R, int P>
void for_halved_rows(PanelTask& task, std::uint32_t row_end) {
  for (; task.first_row + R <= row_end; task.first_row += R) Kernel::template run<R, P>(task);
  if constexpr (R > 1) for_halved_rows<Kernel, R / 2, P>(task, row_end);
}

// Like for_panels(), but processes P panels at a time while at least P whole panels are left. Kernel::run<R, P>(task) multiplies R rows
// with them.
template <class Kernel, int R, int P>
void for_groups_of(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t tile = 0; tile < x.rows; tile += kCachedRows) {
    const std::uint32_t row_end = x.rows - tile < kCachedRows ? x.rows : tile + kCachedRows;
    for (std::uint32_t panel = begin; panel < end;) {
      PanelTask task = task_of(w, x, y, y_stride, panel, tile);
      const bool are_whole = panel + P <= end && (panel + P) * kPanelRows <= w.rows;
      are_whole ? for_halved_rows<Kernel, R, P>(task, row_end) : for_halved_rows<Kernel, R, 1>(task, row_end);
      panel += are_whole ? P : 1;
    }
  }
}

// Runs Integers<format, scale groups per block> for the format of w.
template <template <WeightFormat, int> class Integers>
void multiply_integers(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin,
                       std::uint32_t end) {
  with_format(w, [&]<WeightFormat kFormat, int kScales>() { for_panels<Integers<kFormat, kScales>>(w, x, y, y_stride, begin, end); });
}

}  // namespace
}  // namespace quire
