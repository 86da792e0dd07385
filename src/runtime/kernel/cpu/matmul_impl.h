#pragma once
// Products with float activations over Vec; include a vec_*.h first. matmul.h has the contract. One file per instruction set includes this
// header.
#include "runtime/kernel/cpu/flush_denormals.h"
#include "runtime/kernel/cpu/matmul_walk.h"
#include "runtime/kernel/cpu/unrolled.h"

namespace quire {
namespace {

// Converts 32 columns of a panel of an integer format to floats, [column][16].
void widen_block(const PackedMatrix& w, const std::uint8_t* panel, std::uint32_t column, float* scratch) {
  const bool nibbles = w.format != WeightFormat::q8;
  float values[16];
  for (std::size_t i = 0; i < 16; ++i) values[i] = static_cast<float>(w.table[i] - zero_code(w.format));
  const std::uint32_t per_block = kGroupColumns / w.scale_columns;
  const std::size_t scale_bytes = std::size_t{16} * w.scale_bytes;
  PanelScales of_panel(w, panel);
  of_panel.enter(column / kGroupColumns);
  const std::uint8_t* block =
      panel + all_unit_bytes(w) + column / kGroupColumns * (code_bytes(w.format) + scale_bytes * per_block * (w.has_minimums ? 2 : 1));
  for (std::uint32_t i = 0; i < per_block; ++i) {
    const std::uint8_t* scales = block + code_bytes(w.format) + i * scale_bytes;
    const Vec scale = of_panel.scales(scales);
    const Vec minimum = w.has_minimums ? of_panel.minimums(scales + per_block * scale_bytes) : Vec::zero();
    for (std::uint32_t k = i * w.scale_columns; k < (i + 1) * w.scale_columns; ++k) {
      const int shift = static_cast<int>(8 * (k % 4));
      const std::uint8_t* line = block + std::size_t{16} * ((nibbles ? k % 16 : k) & ~3U);
      const int half = shift + (k < 16 ? 0 : 4);
      const auto six = [&] {
        const Vec upper = Vec::codes(block + 256 + std::size_t{64} * (k / 16), shift + 2 * static_cast<int>(k % 16 / 4), 3, 0);
        return Vec::fma(upper, Vec::set(16.0F), Vec::codes(line, half, 15, zero_code(w.format)));
      };
      const Vec code = !nibbles                             ? Vec::codes(line, shift, 255, 128)
                       : w.format == WeightFormat::q6       ? six()
                       : w.format == WeightFormat::q4_table ? Vec::look_up(line, half, values)
                                                            : Vec::codes(line, half, 15, zero_code(w.format));
      Vec::fma(code, scale, minimum).store(scratch + std::size_t{k} * 16);
    }
  }
}

// Multiplies integer weights with float activations.
struct WidenedPanel {
  template <int R, int P>
  [[gnu::noinline]] static void run(const PanelTask& task) {
    alignas(64) float scratch[kGroupColumns * kPanelRows];
    const float* x[R];
    Vec acc[R];
    for (int r = 0; r < R; ++r) x[r] = task.x->x + (task.first_row + static_cast<std::uint32_t>(r)) * task.x->stride;
    unrolled<R>([&](auto r) { acc[r] = Vec::zero(); });
    for (std::uint32_t column = 0; column < task.w->columns; column += kGroupColumns) {
      widen_block(*task.w, task.panel, column, scratch);
      for (std::uint32_t k = 0; k < kGroupColumns; ++k) {
        const Vec weights = Vec::load(scratch + std::size_t{k} * kPanelRows);
        unrolled<R>([&](auto r) { acc[r] = Vec::fma(weights, Vec::set(x[r][column + k]), acc[r]); });
      }
    }
    unrolled<R>([&](auto r) { task.put(r, acc[r]); });
  }
};

// Multiplies float weights, read in place, with R rows of inputs. The additions of one output depend on each other, so P panels are
// processed together. With bf16 activations, columns are multiplied in pairs, the second column first, and denormal numbers count as zero.
template <WeightFormat kFormat, bool kRounded>
struct FloatPanels {
  static constexpr std::size_t kColumnBytes = kPanelRows * (kFormat == WeightFormat::bf16 ? 2 : 4);

  static Vec column(const std::uint8_t* at) {
    if constexpr (kFormat == WeightFormat::bf16) return Vec::load_bf16(reinterpret_cast<const std::uint16_t*>(at));
    return Vec::load(reinterpret_cast<const float*>(at));
  }

  template <int R, int P>
  [[gnu::noinline]] static void run(const PanelTask& task) {
    const std::size_t panel_bytes = task.w->panel_bytes;
    const std::uint32_t columns = task.w->columns;
    const float* x[R];
    Vec acc[R][P];
    for (int r = 0; r < R; ++r) {
      const std::uint32_t row = task.first_row + static_cast<std::uint32_t>(r);
      x[r] = kRounded ? task.x->rounded(row) : task.x->x + row * task.x->stride;
    }
    unrolled<R>([&](auto r) { unrolled<P>([&](auto p) { acc[r][p] = Vec::zero(); }); });
    const auto step = [&](std::uint32_t k) __attribute__((always_inline)) {
      Vec weights[P];
      unrolled<P>([&](auto p) { weights[p] = column(task.panel + p * panel_bytes + k * kColumnBytes); });
      unrolled<R>([&](auto r) {
        const Vec input = Vec::set(x[r][k]);
        unrolled<P>([&](auto p) { acc[r][p] = Vec::fma(weights[p], input, acc[r][p]); });
      });
    };
    const auto pair = [&](std::uint32_t k) __attribute__((always_inline)) {
      step(kRounded ? k + 1 : k);
      step(kRounded ? k : k + 1);
    };
    for (std::uint32_t first = 0; first < columns; first += kGroupColumns) {
      const std::uint32_t end = columns - first < kGroupColumns ? columns : first + kGroupColumns;
      fetch_ahead<P>(task, first * kColumnBytes, (end - first) * kColumnBytes);
      std::uint32_t k = first;
      for (; k + 8 <= end; k += 8) unrolled<4>([&](auto i) { pair(k + 2 * i); });
      for (; k + 2 <= end; k += 2) pair(k);
      if (k < end) step(k);
    }
    unrolled<R>([&](auto r) { unrolled<P>([&](auto p) { task.put(r, acc[r][p], p); }); });
  }
};

void multiply_floats(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  // Only combinations that must be fast are compiled, because each takes the compiler a second.
  constexpr int kRows = Vec::kFloatRows, kPanels = Vec::kFloatPanels;
  if (w.format == WeightFormat::bf16 && x.mode == ActivationMode::bf16) {
    const FlushDenormals scope;
    for_groups_of<FloatPanels<WeightFormat::bf16, true>, 4, 1>(w, x, y, y_stride, begin, end);
  } else if (w.format == WeightFormat::bf16 && x.rows <= Vec::kFewRows) {
    for_groups_of<FloatPanels<WeightFormat::bf16, false>, Vec::kFewRows, Vec::kPanelsOfFew>(w, x, y, y_stride, begin, end);
  } else if (w.format == WeightFormat::bf16) {
    for_groups_of<FloatPanels<WeightFormat::bf16, false>, kRows, kPanels>(w, x, y, y_stride, begin, end);
  } else if (w.format == WeightFormat::f32) {
    for_groups_of<FloatPanels<WeightFormat::f32, false>, kRows, 1>(w, x, y, y_stride, begin, end);
  } else {
    for_groups_of<WidenedPanel, kRows, 1>(w, x, y, y_stride, begin, end);
  }
}

// Multiplies R rows of a RowProduct, from row i on, with one panel. `outputs`: number of the panel's 16 outputs that exist.
template <int R>
void multiply_some_rows(const PackedMatrix& w, const RowProduct& product, std::uint32_t i, std::uint32_t panel, std::uint32_t outputs) {
  const std::uint8_t* weights = w.storage.data() + panel * w.panel_bytes;
  const float* x[R];
  float* y[R];
  Vec acc[R];
  for (int r = 0; r < R; ++r) {
    x[r] = product.input(i + static_cast<std::uint32_t>(r));
    y[r] = product.output(i + static_cast<std::uint32_t>(r)) + std::size_t{panel} * kPanelRows;
    acc[r] = product.adds ? Vec::load_first(y[r], outputs) : Vec::zero();
  }
  const bool is_bf16 = w.format == WeightFormat::bf16;
  for (std::uint32_t k = 0; k < w.columns; ++k) {
    const std::size_t at = std::size_t{k} * kPanelRows;
    const Vec column = is_bf16 ? Vec::load_bf16(reinterpret_cast<const std::uint16_t*>(weights) + at)
                               : Vec::load(reinterpret_cast<const float*>(weights) + at);
    unrolled<R>([&](auto r) { acc[r] = Vec::fma(column, Vec::set(x[r][k]), acc[r]); });
  }
  unrolled<R>([&](auto r) { acc[r].store_first(y[r], outputs); });
}

template <int R>
void multiply_row_blocks(const PackedMatrix& w, const RowProduct& product, std::uint32_t i, std::uint32_t panel, std::uint32_t outputs) {
  for (; i + R <= product.count; i += R) multiply_some_rows<R>(w, product, i, panel, outputs);
  if constexpr (R > 1) multiply_row_blocks<R - 1>(w, product, i, panel, outputs);
}

void multiply_rows_of(const PackedMatrix& w, const RowProduct& product, std::uint32_t begin, std::uint32_t end) {
  for (std::uint32_t panel = begin; panel < end; ++panel) {
    const std::uint32_t left = w.rows - panel * kPanelRows;
    multiply_row_blocks<Vec::kMatmulRows>(w, product, 0, panel, left < kPanelRows ? left : kPanelRows);
  }
}

}  // namespace
}  // namespace quire
