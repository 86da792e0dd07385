#include "runtime/kernel/cpu/vec_avx512.h"
// The vector type comes first.
#include "runtime/kernel/cpu/matmul_impl.h"
#include "runtime/kernel/implementations.h"

// Activations as two signed bytes per value: 32 high halves, then 32 low halves per group. vpdpbusd adds four products of an unsigned
// code with a signed half per 32-bit lane, and one lane is one output.

namespace quire {
namespace {

__m512i dot(__m512i acc, __m512i codes, const std::int8_t* x) {
  std::int32_t four = 0;
  std::memcpy(&four, x, sizeof four);
  return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(four));
}

template <bool kQ8>
void load_codes(const std::uint8_t* block, __m512i* codes) {
  if constexpr (kQ8) {
    for (int s = 0; s < 8; ++s) codes[s] = _mm512_loadu_si512(block + 64 * s);
  } else {
    const __m512i low = _mm512_set1_epi8(15);
    for (int s = 0; s < 4; ++s) {
      const __m512i line = _mm512_loadu_si512(block + 64 * s);
      codes[s] = _mm512_and_si512(line, low);
      codes[s + 4] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
    }
  }
}

struct Vnni {
  static void store_codes(const float* x, float factor, std::int8_t* codes, std::int32_t* half_sums) {
    for (int half = 0; half < 2; ++half) {
      const __m512i code = _mm512_cvtps_epi32((Vec::load(x + 16 * half) * Vec::set(factor)).v);
      const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(code, _mm512_set1_epi32(128)), 8);
      const __m512i low = _mm512_sub_epi32(code, _mm512_slli_epi32(high, 8));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16 * half), _mm512_cvtepi32_epi8(high));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 32 + 16 * half), _mm512_cvtepi32_epi8(low));
      half_sums[half] = _mm512_reduce_add_epi32(code);
    }
  }

  // kScales: scale groups per block of 32.
  template <bool kQ8, int kScales>
  struct Kernel {
    static constexpr int kRows = Vec::kMatmulRows;
    static constexpr int kSteps = 8 / kScales;  // lines of four columns per scale group

    // Exact dot products of one scale group with R rows; rows are `stride` bytes apart.
    template <int R>
    static void dots(const __m512i* codes, const std::int8_t* x, std::size_t stride, __m512i* acc) {
      for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_si512();
      if constexpr (R >= 4) {
        for (int s = 0; s < kSteps; ++s)
          for (int r = 0; r < R; ++r) acc[r] = dot(acc[r], codes[s], x + r * stride + 4 * s);
        for (int r = 0; r < R; ++r) acc[r] = _mm512_slli_epi32(acc[r], 8);
        for (int s = 0; s < kSteps; ++s)
          for (int r = 0; r < R; ++r) acc[r] = dot(acc[r], codes[s], x + r * stride + 32 + 4 * s);
      } else {
        for (int r = 0; r < R; ++r) {
          __m512i part[4] = {};
          for (int s = 0; s < kSteps; ++s) {
            part[s % 2] = dot(part[s % 2], codes[s], x + r * stride + 4 * s);
            part[2 + s % 2] = dot(part[2 + s % 2], codes[s], x + r * stride + 32 + 4 * s);
          }
          const __m512i high = _mm512_add_epi32(part[0], part[1]);
          acc[r] = _mm512_add_epi32(_mm512_slli_epi32(high, 8), _mm512_add_epi32(part[2], part[3]));
        }
      }
    }

    // Sum of the activation codes of scale group i of a block.
    static std::int32_t code_sum(const std::int32_t* half_sums, int i) { return kScales == 2 ? half_sums[i] : half_sums[0] + half_sums[1]; }

    template <int R>
    static void run(const PanelTask& task) {
      const PackedMatrix& w = *task.w;
      const std::uint32_t groups = w.columns / kGroupColumns;
      const std::size_t scale_bytes = std::size_t{16} * w.scale_bytes;
      const std::size_t stride = std::size_t{2} * w.columns;
      const std::size_t first_group = std::size_t{task.first_row} * groups;
      const std::int8_t* x = task.x->codes + task.first_row * stride;
      const float* x_scales = task.x->scales + first_group;
      const std::int32_t* x_sums = task.x->half_sums + 2 * first_group;
      const std::uint8_t* block = task.panel;
      Vec acc[R];
      for (int r = 0; r < R; ++r) acc[r] = Vec::zero();
      for (std::uint32_t g = 0; g < groups; ++g, x += 64) {
        __m512i codes[8];
        load_codes<kQ8>(block, codes);
        block += kQ8 ? 512 : 256;
        for (int i = 0; i < kScales; ++i) {
          __m512i sums[R];
          dots<R>(codes + i * kSteps, x + i * 4 * kSteps, stride, sums);
          const Vec scale = load_scales(block + i * scale_bytes, w.scale_bytes);
          const Vec minimum = w.has_minimums ? load_scales(block + (kScales + i) * scale_bytes, w.scale_bytes) : Vec::zero();
          for (int r = 0; r < R; ++r) {
            const std::size_t at = static_cast<std::size_t>(r) * groups + g;
            const std::int32_t sum = code_sum(x_sums + 2 * at, i);
            if constexpr (kQ8) sums[r] = _mm512_sub_epi32(sums[r], _mm512_set1_epi32(128 * sum));
            acc[r] = Vec::fma(Vec{_mm512_cvtepi32_ps(sums[r])} * Vec::set(x_scales[at]), scale, acc[r]);
            if (w.has_minimums) acc[r] = Vec::fma(Vec::set(static_cast<float>(sum) * x_scales[at]), minimum, acc[r]);
          }
        }
        block += kScales * scale_bytes * (w.has_minimums ? 2 : 1);
      }
      for (int r = 0; r < R; ++r) task.put(r, acc[r]);
    }
  };
};

}  // namespace

namespace avx512 {

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end) {
  prepare_impl<Vnni>(x, row_begin, row_end);
}

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  check_product(w, x, end);
  matmul_impl<Vnni>(w, x, y, y_stride, begin, end);
}

}  // namespace avx512
}  // namespace quire
