#include "base/check.h"
#include "runtime/kernel/matmul.h"

namespace quire {
namespace {

std::size_t round_up(std::size_t bytes) {
  return (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
}

}  // namespace

std::size_t activation_scratch_bytes(ActivationMode mode, std::uint32_t rows, std::uint32_t columns) {
  if (mode == ActivationMode::f32) return 0;
  const std::size_t cells = std::size_t{rows} * columns;
  return round_up(2 * cells) + round_up(cells / kGroupColumns * sizeof(float)) + round_up(cells / 16 * sizeof(std::int32_t));
}

Activations make_activations(ActivationMode mode, const float* x, std::size_t stride, std::uint32_t rows, std::uint32_t columns,
                             std::span<std::byte> scratch) {
  Activations made{.mode = mode, .rows = rows, .columns = columns, .x = x, .stride = stride};
  if (mode == ActivationMode::f32) return made;
  QUIRE_CHECK(columns % kGroupColumns == 0, "int16 activations come in groups of 32");
  QUIRE_CHECK(scratch.size() >= activation_scratch_bytes(mode, rows, columns), "scratch too small");
  QUIRE_CHECK(reinterpret_cast<std::uintptr_t>(scratch.data()) % kCacheLineBytes == 0, "scratch starts on a cache line");
  const std::size_t cells = std::size_t{rows} * columns;
  std::byte* at = scratch.data();
  made.codes = reinterpret_cast<std::int8_t*>(at);
  at += round_up(2 * cells);
  made.scales = reinterpret_cast<float*>(at);
  at += round_up(cells / kGroupColumns * sizeof(float));
  made.half_sums = reinterpret_cast<std::int32_t*>(at);
  return made;
}

}  // namespace quire
