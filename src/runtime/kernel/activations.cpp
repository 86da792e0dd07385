#include "base/check.h"
#include "runtime/kernel/matmul.h"

namespace quire {
namespace {

std::size_t round_up(std::size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

// Returns the number of values in `rows` rows, rounded up to whole tiles of rows.
std::size_t cells_of(std::uint32_t rows, std::uint32_t columns) {
  return (std::size_t{rows} + kRowTile - 1) / kRowTile * kRowTile * columns;
}

}  // namespace

std::size_t activation_scratch_bytes(ActivationMode mode, std::uint32_t rows, std::uint32_t columns) {
  if (mode == ActivationMode::f32) return 0;
  const std::size_t cells = cells_of(rows, columns);
  if (mode == ActivationMode::bf16) return round_up(cell_bytes(mode) * cells);
  return round_up(cell_bytes(mode) * cells) + 3 * round_up(cells / kGroupColumns * sizeof(float)) +
         round_up(cells / 16 * sizeof(std::int32_t));
}

Activations make_activations(ActivationMode mode, const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns,
                             std::span<std::byte> scratch) {
  Activations made{.mode = mode, .rows = rows, .columns = columns, .x = x, .stride = stride};
  if (mode == ActivationMode::f32) return made;
  QUIRE_CHECK(columns % kGroupColumns == 0, "the number of columns is a multiple of 32, except for f32 activations");
  QUIRE_CHECK(scratch.size() >= activation_scratch_bytes(mode, rows, columns), "the scratch buffer is large enough");
  QUIRE_CHECK(reinterpret_cast<std::uintptr_t>(scratch.data()) % kCacheLineBytes == 0, "the scratch buffer starts on a cache line");
  const std::size_t cells = cells_of(rows, columns);
  std::byte* at = scratch.data();
  const auto take = [&]<class T>(T*& part, std::size_t count) {
    part = reinterpret_cast<T*>(at);
    at += round_up(count * sizeof(T));
  };
  take(made.codes, cell_bytes(mode) * cells);
  if (mode == ActivationMode::bf16) return made;
  take(made.scales, cells / kGroupColumns);
  take(made.sums, cells / kGroupColumns);
  take(made.offsets, cells / kGroupColumns);
  take(made.half_sums, cells / 16);
  return made;
}

Activations Activations::slice(std::uint32_t first_row, std::uint32_t num_rows) const {
  Activations part = *this;
  part.rows = num_rows;
  part.x += first_row * stride;
  if (mode == ActivationMode::f32) return part;
  QUIRE_CHECK(first_row % kRowTile == 0, "a slice begins at a tile");
  const std::size_t cells = std::size_t{first_row} * columns;
  part.codes += cell_bytes(mode) * cells;
  if (mode == ActivationMode::bf16) return part;
  part.scales += cells / kGroupColumns;
  part.sums += cells / kGroupColumns;
  part.offsets += cells / kGroupColumns;
  part.half_sums += cells / 16;
  return part;
}

}  // namespace quire
