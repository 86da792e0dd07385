// Products in integers for processors with AVX2; contract in matmul.h. Activations as int16, in both integer modes. Codes are widened to 16
// bits; vpmaddwd adds two products per 32-bit lane, so two lanes are one output. A panel is worked on in two halves of 8 outputs.
#include <cstring>

#include "runtime/kernel/cpu/x86/vec_avx2.h"
// The vector type comes first.
#include "runtime/kernel/cpu/matmul_impl.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

constexpr std::size_t kCodeBytes = 64;  // of a row and group

// Four columns of 8 outputs as 16-bit codes: outputs 0..3 and 4..7.
struct Line {
  __m256i a;
  __m256i b;
};

template <WeightFormat kFormat>
Line load_line(const std::uint8_t* block, __m256i table, int s) {
  const auto at = [&](int line) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + 64 * line)); };
  __m256i bytes;
  if constexpr (kFormat == WeightFormat::q8) {
    bytes = at(s);
  } else {
    const __m256i low = _mm256_set1_epi8(15);
    bytes = s < 4 ? _mm256_and_si256(at(s), low) : _mm256_and_si256(_mm256_srli_epi16(at(s - 4), 4), low);
    if constexpr (kFormat == WeightFormat::q4_table) bytes = _mm256_shuffle_epi8(table, bytes);
    if constexpr (kFormat == WeightFormat::q6) {
      const __m256i pairs = _mm256_srl_epi16(at(4 + s / 4), _mm_cvtsi32_si128(2 * (s % 4)));
      bytes = _mm256_or_si256(bytes, _mm256_slli_epi16(_mm256_and_si256(pairs, _mm256_set1_epi8(3)), 4));
    }
  }
  return {_mm256_cvtepu8_epi16(_mm256_castsi256_si128(bytes)), _mm256_cvtepu8_epi16(_mm256_extracti128_si256(bytes, 1))};
}

// Where they are bytes, multiples of the unit.
__m256 load_scales8(const std::uint8_t* at, std::uint32_t bytes, __m256 unit) {
  if (bytes == 1) return _mm256_mul_ps(Vec::load8_i8(at), unit);
  if (bytes == 2) return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  return _mm256_loadu_ps(reinterpret_cast<const float*>(at));
}

// kScales: scale groups per block of 32.
// Kernel of for_panels(): run<R>() takes R rows against one panel.
template <WeightFormat kFormat, int kScales>
struct Madd {
  static constexpr int kRows = Vec::kMatmulRows;
  static constexpr int kSteps = 8 / kScales;  // lines of four columns per scale group
  static constexpr std::size_t kBlockCodes = code_bytes(kFormat);

  // Exact dot products of scale group i with R rows for 8 outputs.
  template <int R>
  static void dots(const std::uint8_t* block, __m256i table, int i, const std::int8_t* x, __m256i* out) {
    __m256i a[R];
    __m256i b[R];
    for (int r = 0; r < R; ++r) a[r] = b[r] = _mm256_setzero_si256();
    for (int s = i * kSteps; s < (i + 1) * kSteps; ++s) {
      const Line line = load_line<kFormat>(block, table, s);
      for (int r = 0; r < R; ++r) {
        long long four = 0;
        std::memcpy(&four, x + r * 64 + 8 * s, sizeof four);
        const __m256i inputs = _mm256_set1_epi64x(four);
        a[r] = _mm256_add_epi32(a[r], _mm256_madd_epi16(line.a, inputs));
        b[r] = _mm256_add_epi32(b[r], _mm256_madd_epi16(line.b, inputs));
      }
    }
    for (int r = 0; r < R; ++r) out[r] = _mm256_permute4x64_epi64(_mm256_hadd_epi32(a[r], b[r]), 0xD8);
  }

  // Outputs 8 * half .. 8 * half + 7 of R rows.
  template <int R>
  static void run_half(const PanelTask& task, std::size_t half, __m256* acc) {
    const PackedMatrix& w = *task.w;
    const std::uint32_t groups = w.columns / kGroupColumns;
    const std::size_t scale_bytes = std::size_t{16} * w.scale_bytes;
    const std::int8_t* x = task.x->codes_at(task.first_row, 0, kCodeBytes);
    std::size_t at = task.x->group_at(task.first_row, 0);
    const std::uint8_t* block = task.panel + all_unit_bytes(w);
    const std::uint8_t* units = task.panel + 16 * half;
    __m256 unit = _mm256_setzero_ps(), minimum_unit = unit;
    const __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.table.data())));
    for (int r = 0; r < R; ++r) acc[r] = _mm256_setzero_ps();
    for (std::uint32_t g = 0; g < groups; ++g, x += kRowTile * kCodeBytes, at += kRowTile) {
      const std::uint8_t* scales = block + kBlockCodes + 8 * half * w.scale_bytes;
      if (w.scale_bytes == 1 && begins_units(g)) {
        unit = load_scales8(units, 2, unit);
        if (w.has_minimums) minimum_unit = load_scales8(units + 2 * kPanelRows, 2, unit);
        units += unit_bytes(w);
      }
      for (int i = 0; i < kScales; ++i) {
        __m256i sums[R];
        dots<R>(block + 32 * half, table, i, x, sums);
        const __m256 scale = load_scales8(scales + i * scale_bytes, w.scale_bytes, unit);
        for (int r = 0; r < R; ++r) {
          const std::size_t here = at + static_cast<std::size_t>(r);
          if constexpr (zero_code(kFormat) != 0)
            sums[r] = _mm256_sub_epi32(sums[r], _mm256_set1_epi32(offset_of<kFormat, kScales>(*task.x, here, i)));
          const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums[r]), _mm256_set1_ps(task.x->scales[here]));
          acc[r] = _mm256_fmadd_ps(scaled, scale, acc[r]);
          if (w.has_minimums) {
            const __m256 minimum = load_scales8(scales + (kScales + i) * scale_bytes, w.scale_bytes, minimum_unit);
            acc[r] = _mm256_fmadd_ps(_mm256_set1_ps(float_sum<kScales>(*task.x, here, i)), minimum, acc[r]);
          }
        }
      }
      block += kBlockCodes + kScales * scale_bytes * (w.has_minimums ? 2 : 1);
    }
  }

  template <int R>
  static void run(const PanelTask& task) {
    __m256 a[R];
    __m256 b[R];
    run_half<R>(task, 0, a);
    run_half<R>(task, 1, b);
    for (int r = 0; r < R; ++r) task.put(r, Vec{a[r], b[r]});
  }
};

}  // namespace

namespace avx2 {

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  check_product(w, x, end);
  if (uses_integers(w, x))
    multiply_integers<Madd>(w, x, y, y_stride, begin, end);
  else
    for_panels<FloatKernel>(w, x, y, y_stride, begin, end);
}

void multiply_rows(const PackedMatrix& w, const RowProduct& product, std::uint32_t begin, std::uint32_t end) {
  check_row_product(w, end);
  multiply_rows_of(w, product, begin, end);
}

}  // namespace avx2
}  // namespace quire
