// Computes codes and scales of activations, 16 groups of a row at a time. matmul.h has the contract. Called before a product, on every
// thread of the pool, each with separate rows. Codes and scales equal the results of the reference kernels bit for bit. Requires AVX-512.
#include <cmath>

#include "runtime/kernel/cpu/x86/vec_avx512.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

// Factors and scales of 16 groups; missing groups have zeros.
struct alignas(64) Scales {
  float factors[16];     // input * factor, rounded, is the code
  float scales[16];      // NaN when an input is NaN or infinite
  std::uint32_t finite;  // bit g: all inputs of group g are finite
};

// Compares floats by their bits without the sign: the order is the same, and infinity and NaN are above all numbers.
Scales scales_of(const float* x, std::uint32_t groups, float top) {
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  alignas(64) std::uint32_t largest[16] = {};
  for (std::uint32_t g = 0; g < groups; ++g, x += 32) {
    const __m512i a = _mm512_and_si512(_mm512_loadu_si512(x), magnitude);
    const __m512i b = _mm512_and_si512(_mm512_loadu_si512(x + 16), magnitude);
    largest[g] = _mm512_reduce_max_epu32(_mm512_max_epu32(a, b));
  }
  const __m512i bits = _mm512_load_si512(largest);
  const __m512 amax = _mm512_castsi512_ps(bits);
  const __mmask16 finite = _mm512_cmplt_epu32_mask(bits, _mm512_set1_epi32(0x7F800000));
  const __m512 inverse = _mm512_div_ps(_mm512_set1_ps(top), amax);
  Scales made;
  _mm512_store_ps(made.factors, _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(inverse, _mm512_set1_ps(INFINITY), _CMP_LT_OQ), inverse));
  _mm512_store_ps(made.scales, _mm512_mask_blend_ps(finite, _mm512_set1_ps(NAN), _mm512_div_ps(amax, _mm512_set1_ps(top))));
  made.finite = finite;
  return made;
}

// Returns the codes of 16 inputs; zeros if the group is not finite.
__m512i codes_of(const float* x, float factor, __mmask16 finite) {
  return _mm512_cvtps_epi32(_mm512_maskz_mul_ps(finite, _mm512_loadu_ps(x), _mm512_set1_ps(factor)));
}

// Each struct below stores the codes of 32 inputs, and the sums of 16 codes each.
struct Halves {
  static constexpr std::size_t kBytes = 64;

  static void store(__m512i first, __m512i second, std::int8_t* codes, std::int32_t* half_sums) {
    const __m512i both[2] = {first, second};
    for (int half = 0; half < 2; ++half) {
      const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(both[half], _mm512_set1_epi32(128)), 8);
      const __m512i low = _mm512_sub_epi32(both[half], _mm512_slli_epi32(high, 8));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16 * half), _mm512_cvtepi32_epi8(high));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 32 + 16 * half), _mm512_cvtepi32_epi8(low));
      half_sums[half] = _mm512_reduce_add_epi32(both[half]);
    }
  }
};

struct Bytes {
  static constexpr std::size_t kBytes = 32;

  static void store(__m512i first, __m512i second, std::int8_t* codes, std::int32_t* half_sums) {
    const __m256i bytes = _mm256_set_m128i(_mm512_cvtepi32_epi8(second), _mm512_cvtepi32_epi8(first));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), bytes);
    // Sums of 8 bytes; each byte is 128 too large.
    const __m256i eights = _mm256_sad_epu8(_mm256_xor_si256(bytes, _mm256_set1_epi8(-128)), _mm256_setzero_si256());
    const __m256i pairs = _mm256_add_epi64(eights, _mm256_unpackhi_epi64(eights, eights));
    half_sums[0] = _mm_cvtsi128_si32(_mm256_castsi256_si128(pairs)) - 16 * 128;
    half_sums[1] = _mm_cvtsi128_si32(_mm256_extracti128_si256(pairs, 1)) - 16 * 128;
  }
};

// Processes rows and groups; `Codes` is Halves or Bytes. The results equal the results of the reference kernel bit for bit: codes are
// rounded to nearest even, and the largest magnitude of a group gives its scale.
template <class Codes>
void prepare_rows(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin,
                  std::uint32_t group_end) {
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    for (std::uint32_t first = group_begin; first < group_end; first += 16) {
      const float* from = x.x + row * x.stride + std::size_t{first} * kGroupColumns;
      const std::uint32_t count = group_end - first < 16 ? group_end - first : 16;
      const Scales made = scales_of(from, count, top_code(x.mode));
      std::int8_t* codes = x.codes_at(row, first, Codes::kBytes);
      std::size_t at = x.group_at(row, first);
      for (std::uint32_t g = 0; g < count; ++g, from += kGroupColumns, codes += kRowTile * Codes::kBytes, at += kRowTile) {
        const auto finite = static_cast<__mmask16>((made.finite >> g & 1U) != 0 ? 0xFFFF : 0);
        std::int32_t* half_sums = x.half_sums + 2 * at;
        Codes::store(codes_of(from, made.factors[g], finite), codes_of(from + 16, made.factors[g], finite), codes, half_sums);
        const std::int32_t sum = half_sums[0] + half_sums[1];
        x.scales[at] = made.scales[g];
        x.sums[at] = static_cast<float>(sum) * made.scales[g];
        x.offsets[at] = 128 * sum;
      }
    }
  }
}

}  // namespace

namespace avx512 {

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end) {
  if (x.mode == ActivationMode::int16) prepare_rows<Halves>(x, row_begin, row_end, group_begin, group_end);
  if (x.mode == ActivationMode::int8) prepare_rows<Bytes>(x, row_begin, row_end, group_begin, group_end);
  if (x.mode == ActivationMode::bf16) reference::prepare(x, row_begin, row_end, group_begin, group_end);
}

}  // namespace avx512
}  // namespace quire
