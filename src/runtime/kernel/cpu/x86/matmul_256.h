#pragma once
// Loops of integer products over 256-bit registers; include vec_avx2.h and matmul_walk.h first. Local to the including file:
// matmul_avx2.cpp and matmul_avxvnni.cpp include it, each with a different `Dots`. A panel is processed in two halves of eight outputs, one
// per 32-bit lane.
#include <cstring>

#include "runtime/kernel/cpu/unrolled.h"

namespace quire {
namespace {

// Loads four codes of each of eight outputs, as one byte per code.
template <WeightFormat kFormat>
[[gnu::always_inline]] inline __m256i load_line(const std::uint8_t* block, __m256i table, int s) {
  const auto at = [&](int line) __attribute__((always_inline)) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + std::size_t{64} * static_cast<std::size_t>(line)));
  };
  if constexpr (kFormat == WeightFormat::q8) return at(s);
  const __m256i low = _mm256_set1_epi8(15);
  __m256i bytes = s < 4 ? _mm256_and_si256(at(s), low) : _mm256_and_si256(_mm256_srli_epi16(at(s - 4), 4), low);
  if constexpr (kFormat == WeightFormat::q4_table) bytes = _mm256_shuffle_epi8(table, bytes);
  if constexpr (kFormat == WeightFormat::q6) {
    const __m256i pairs = _mm256_srl_epi16(at(4 + s / 4), _mm_cvtsi32_si128(2 * (s % 4)));
    bytes = _mm256_or_si256(bytes, _mm256_slli_epi16(_mm256_and_si256(pairs, _mm256_set1_epi8(3)), 4));
  }
  return bytes;
}

// Returns four bytes of activations in every lane.
[[gnu::always_inline]] inline __m256i broadcast(const std::int8_t* x) {
  std::int32_t four = 0;
  std::memcpy(&four, x, sizeof four);
  return _mm256_set1_epi32(four);
}

// Loads eight scales as floats. One-byte scales are multiplied by their unit.
inline __m256 load_scales8(const std::uint8_t* at, std::uint32_t bytes, __m256 unit) {
  if (bytes == 1) return _mm256_mul_ps(Vec::load8_i8(at), unit);
  if (bytes == 2) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
}

// Kernel of for_panels(): run<R>() multiplies R rows with one panel. kScales: scale groups per block of 32. Members of `Dots`:
//  - kRows: the most rows at a time, a divisor of kRowTile; kRowBytes: size of the codes of a row and group;
//  - kCountsFromZero: whether the sums already use code - zero_code();
//  - dots<R>(block, table, i, x, out): exact sums of scale group i with R rows, for the eight outputs with codes at `block`.
template <class Dots, WeightFormat kFormat, int kScales>
struct HalfPanels {
  static constexpr int kRows = Dots::kRows;
  static constexpr std::size_t kBlockCodes = code_bytes(kFormat);
  static constexpr std::size_t kAheadBytes = 2048;  // distance of prefetched weights
  static constexpr bool kHasOffset = zero_code(kFormat) != 0 && !Dots::kCountsFromZero;

  // Computes outputs 8 * half .. 8 * half + 7 of R rows.
  template <int R>
  static void run_half(const PanelTask& task, std::size_t half, __m256* out) {
    const PackedMatrix& w = *task.w;
    const std::uint32_t groups = w.columns / kGroupColumns;
    const std::size_t scale_bytes = std::size_t{16} * w.scale_bytes;
    const std::size_t block_bytes = kBlockCodes + kScales * scale_bytes * (w.has_minimums ? 2 : 1);
    const std::int8_t* x = task.x->codes_at(task.first_row, 0, Dots::kRowBytes);
    std::size_t of_row = task.x->group_at(task.first_row, 0);
    const std::uint8_t* block = task.panel + all_unit_bytes(w);
    const std::uint8_t* units = task.panel + 16 * half;
    __m256 unit = _mm256_setzero_ps(), minimum_unit = unit;
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.table.data())));
    __m256 acc[R];
    unrolled<R>([&](auto r) __attribute__((always_inline)) { acc[r] = _mm256_setzero_ps(); });
    for (std::uint32_t g = 0; g < groups; ++g, x += kRowTile * Dots::kRowBytes, of_row += kRowTile, block += block_bytes) {
      if (task.first_row == 0 && half == 0)  // later rows find the panel in the cache
        for (std::size_t at = 0; at < block_bytes; at += 64)
          _mm_prefetch(reinterpret_cast<const char*>(block + kAheadBytes + at), _MM_HINT_T0);
      const std::uint8_t* scales = block + kBlockCodes + 8 * half * w.scale_bytes;
      if (w.scale_bytes == 1 && begins_units(g)) {
        unit = load_scales8(units, 2, unit);
        if (w.has_minimums) minimum_unit = load_scales8(units + 2 * kPanelRows, 2, unit);
        units += unit_bytes(w);
      }
      unrolled<kScales>([&](auto i) __attribute__((always_inline)) {
        // Loaded before the products, because otherwise the compiler would keep values on the stack.
        const __m256 scale = load_scales8(scales + i * scale_bytes, w.scale_bytes, unit);
        const __m256 minimum = w.has_minimums ? load_scales8(scales + (kScales + i) * scale_bytes, w.scale_bytes, minimum_unit) : scale;
        __m256i sums[R];
        Dots::template dots<R>(block + 32 * half, table, i, x, sums);
        unrolled<R>([&](auto r) __attribute__((always_inline)) {
          const std::size_t here = of_row + static_cast<std::size_t>(r);
          if constexpr (kHasOffset) sums[r] = _mm256_sub_epi32(sums[r], _mm256_set1_epi32(offset_of<kFormat, kScales>(*task.x, here, i)));
          acc[r] = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sums[r]), _mm256_set1_ps(task.x->scales[here])), scale, acc[r]);
        });
        if (!w.has_minimums) return;
        unrolled<R>([&](auto r) __attribute__((always_inline)) {
          const float sum = float_sum<kScales>(*task.x, of_row + static_cast<std::size_t>(r), i);
          acc[r] = _mm256_fmadd_ps(_mm256_set1_ps(sum), minimum, acc[r]);
        });
      });
    }
    unrolled<R>([&](auto r) __attribute__((always_inline)) { out[r] = acc[r]; });
  }

  template <int R>
  [[gnu::noinline]] static void run(const PanelTask& task) {
    __m256 a[R];
    __m256 b[R];
    run_half<R>(task, 0, a);
    run_half<R>(task, 1, b);
    for (int r = 0; r < R; ++r) task.put(r, Vec{a[r], b[r]});
  }
};

}  // namespace
}  // namespace quire
