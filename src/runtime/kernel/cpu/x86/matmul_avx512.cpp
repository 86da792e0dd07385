// Integer products for processors with AVX-512 VNNI; matmul.h has the contract. Activations are signed bytes: one per value, or 32 high
// halves and then 32 low halves per group. vpdpbusd adds four products of an unsigned code and a signed byte per 32-bit lane, and each lane
// is one output.
#include <cstring>

#include "runtime/kernel/cpu/x86/vec_avx512.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/matmul_impl.h"
#include "runtime/kernel/cpu/x86/nibbles_avx512.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

// Adds the products of four columns; all lanes use the row's four codes at x.
__m512i dot(__m512i acc, __m512i codes, const std::int8_t* x) {
  std::int32_t four = 0;
  std::memcpy(&four, x, sizeof four);
  return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(four));
}

template <WeightFormat kFormat>
void load_codes(const std::uint8_t* block, __m512i table, __m512i* codes) {
  if constexpr (kFormat == WeightFormat::q8)
    for (int s = 0; s < 8; ++s) codes[s] = _mm512_loadu_si512(block + 64 * s);
  else
    unpack_nibbles<kFormat>(block, table, codes);
}

// kBytes: size of the codes of a row and group, 64 in int16 mode, 32 in int8 mode; kScales: scale groups per block of 32.
template <int kBytes, WeightFormat kFormat, int kScales>
struct Vnni {
  static constexpr int kRows = Vec::kMatmulRows;
  static constexpr int kSteps = 8 / kScales;  // lines of four columns per scale group
  static constexpr bool kHalves = kBytes == 64;
  static constexpr std::size_t kCodeBytes = code_bytes(kFormat);
  static constexpr std::size_t kAheadBytes = 4096;  // distance of prefetched weights

  // Computes exact dot products of one scale group with R rows.
  template <int R>
  static void dots(const __m512i* codes, const std::int8_t* x, __m512i* acc) {
    if constexpr (R >= 4) {
      for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_si512();
      for (int s = 0; s < kSteps; ++s)
        for (int r = 0; r < R; ++r) acc[r] = dot(acc[r], codes[s], x + r * kBytes + 4 * s);
      if constexpr (!kHalves) return;
      for (int r = 0; r < R; ++r) acc[r] = _mm512_slli_epi32(acc[r], 8);
      for (int s = 0; s < kSteps; ++s)
        for (int r = 0; r < R; ++r) acc[r] = dot(acc[r], codes[s], x + r * kBytes + 32 + 4 * s);
    } else {
      for (int r = 0; r < R; ++r) acc[r] = chains(codes, x + r * kBytes);
    }
  }

  // Processes one row with independent partial sums, so that the instructions do not wait for each other.
  static __m512i chains(const __m512i* codes, const std::int8_t* x) {
    __m512i part[4] = {};
    for (int s = 0; s < kSteps; ++s) {
      part[s % 2] = dot(part[s % 2], codes[s], x + 4 * s);
      if constexpr (kHalves) part[2 + s % 2] = dot(part[2 + s % 2], codes[s], x + 32 + 4 * s);
    }
    const __m512i first = _mm512_add_epi32(part[0], part[1]);
    if constexpr (!kHalves) return first;
    return _mm512_add_epi32(_mm512_slli_epi32(first, 8), _mm512_add_epi32(part[2], part[3]));
  }

  template <int R>
  [[gnu::noinline]] static void run(const PanelTask& task) {
    const PackedMatrix& w = *task.w;
    const std::uint32_t groups = w.columns / kGroupColumns;
    const std::size_t scale_bytes = std::size_t{16} * w.scale_bytes;
    const std::size_t block_bytes = kCodeBytes + kScales * scale_bytes * (w.has_minimums ? 2 : 1);
    const std::int8_t* x = task.x->codes_at(task.first_row, 0, kBytes);
    std::size_t of_row = task.x->group_at(task.first_row, 0);
    const std::uint8_t* block = task.panel + all_unit_bytes(w);
    PanelScales scales(w, task.panel);
    const __m512i table = table_of(w);
    Vec acc[R];
    for (int r = 0; r < R; ++r) acc[r] = Vec::zero();
    for (std::uint32_t g = 0; g < groups; ++g, x += kRowTile * kBytes, of_row += kRowTile) {
      __m512i codes[8];
      if (task.first_row == 0)  // later rows find the panel in the cache; hardware prefetch is too slow here
        for (std::size_t at = 0; at < block_bytes; at += 64)
          _mm_prefetch(reinterpret_cast<const char*>(block + kAheadBytes + at), _MM_HINT_T0);
      load_codes<kFormat>(block, table, codes);
      if (begins_units(g)) scales.enter(g);
      block += kCodeBytes;
      for (int i = 0; i < kScales; ++i) {
        __m512i sums[R];
        dots<R>(codes + i * kSteps, x + i * 4 * kSteps, sums);
        const Vec scale = scales.scales(block + i * scale_bytes);
        const Vec minimum = w.has_minimums ? scales.minimums(block + (kScales + i) * scale_bytes) : Vec::zero();
        for (int r = 0; r < R; ++r) {
          const std::size_t here = of_row + static_cast<std::size_t>(r);
          if constexpr (zero_code(kFormat) != 0)
            sums[r] = _mm512_sub_epi32(sums[r], _mm512_set1_epi32(offset_of<kFormat, kScales>(*task.x, here, i)));
          acc[r] = Vec::fma(Vec{_mm512_cvtepi32_ps(sums[r])} * Vec::set(task.x->scales[here]), scale, acc[r]);
          if (w.has_minimums) acc[r] = Vec::fma(Vec::set(float_sum<kScales>(*task.x, here, i)), minimum, acc[r]);
        }
      }
      block += kScales * scale_bytes * (w.has_minimums ? 2 : 1);
    }
    for (int r = 0; r < R; ++r) task.put(r, acc[r]);
  }
};

template <WeightFormat kFormat, int kScales>
using OfHalves = Vnni<64, kFormat, kScales>;
template <WeightFormat kFormat, int kScales>
using OfBytes = Vnni<32, kFormat, kScales>;

}  // namespace

namespace avx512 {

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  check_product(w, x, end);
  if (!uses_integers(w, x))
    multiply_floats(w, x, y, y_stride, begin, end);
  else if (x.mode == ActivationMode::int16)
    multiply_integers<OfHalves>(w, x, y, y_stride, begin, end);
  else
    multiply_integers<OfBytes>(w, x, y, y_stride, begin, end);
}

void multiply_rows(const PackedMatrix& w, const RowProduct& product, std::uint32_t begin, std::uint32_t end) {
  check_row_product(w, end);
  multiply_rows_of(w, product, begin, end);
}

}  // namespace avx512
}  // namespace quire
