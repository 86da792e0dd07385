#pragma once
// 16 floats in one register. All functions are local to the including file, which is compiled for AVX-512. Every operation has the same
// results, bit for bit, as in vec_avx2.h, including the order in which sum() adds lanes. A file that is compiled for other processors must
// not include this header: it would contain instructions that those processors do not have.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace quire {
namespace {

// Has the interface of Vec in vec_avx2.h.
struct Vec {
  static constexpr int kMatmulRows = 8;                   // rows that share one load of weights
  static constexpr int kFloatRows = 8, kFloatPanels = 2;  // for float weights: rows, and panels that share an input
  static constexpr int kFewRows = 2, kPanelsOfFew = 4;    // up to kFewRows rows, kPanelsOfFew panels share an input
  static constexpr int kQueries = 4;                      // queries that share one load of keys or values
  static constexpr int kScoreSubtiles = 2;                // subtiles of 16 keys that share one load of a query
#ifdef __AVX512BF16__
  static constexpr bool kMultipliesPairs = true;  // the processor has vdpbf16ps, which attention with in_pairs uses
  static constexpr int kPairSubtiles = 4;         // like kScoreSubtiles, for products in pairs
#else
  static constexpr bool kMultipliesPairs = false;
  static constexpr int kPairSubtiles = 2;
#endif
  static constexpr int kValueVectors = 4;  // vectors of the head that are processed together
  __m512 v;

  static Vec zero() { return {_mm512_setzero_ps()}; }
  static Vec set(float x) { return {_mm512_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static Vec load_bf16(const std::uint16_t* p) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  static Vec load_f16(const std::uint8_t* p) { return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))}; }
  static Vec load_i8(const std::uint8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  // Returns code - zero_point of each 32-bit lane of a line of codes, as floats. `shift` and `mask` select the code's bits in the lane.
  static Vec codes(const std::uint8_t* line, int shift, int mask, int zero_point) {
    const __m512i lanes = _mm512_srl_epi32(_mm512_loadu_si512(line), _mm_cvtsi32_si128(shift));
    const __m512i code = _mm512_and_si512(lanes, _mm512_set1_epi32(mask));
    return {_mm512_cvtepi32_ps(_mm512_sub_epi32(code, _mm512_set1_epi32(zero_point)))};
  }
  // Looks up a table of 16 floats: in each lane, the four bits from `shift` on are the index.
  static Vec look_up(const std::uint8_t* line, int shift, const float* table) {
    const __m512i lanes = _mm512_srl_epi32(_mm512_loadu_si512(line), _mm_cvtsi32_si128(shift));
    return {_mm512_permutexvar_ps(_mm512_and_si512(lanes, _mm512_set1_epi32(15)), _mm512_loadu_ps(table))};
  }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  void store_first(float* p, std::uint32_t n) const { _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << n) - 1), v); }
  static Vec load_first(const float* p, std::uint32_t n) { return {_mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << n) - 1), p)}; }
  // Returns the first n lanes of this vector, and the lanes of `other` from n on.
  [[nodiscard]] Vec keep_first(std::uint32_t n, Vec other) const {
    const auto mask = static_cast<__mmask16>(n >= 16 ? 0xFFFFU : (1U << n) - 1);
    return {_mm512_mask_mov_ps(other.v, mask, v)};
  }

  friend Vec operator+(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  friend Vec operator-(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  friend Vec operator*(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  friend Vec operator/(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  static Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  // If one operand is NaN, the result is the second operand.
  static Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  static Vec round(Vec a) { return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
  // Rounds to the nearest bf16, ties to even, and returns the values as floats. NaN stays NaN if its low half is zero.
  [[nodiscard]] Vec to_bf16() const {
    const __m512i bits = _mm512_castps_si512(v);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
    return {_mm512_castsi512_ps(_mm512_and_si512(up, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  }
  // Returns 2^n for integral n.
  static Vec power_of_two(Vec n) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.v), _mm512_set1_epi32(127)), 23))};
  }

  // Adds lanes 8 apart, then 4, 2, 1.
  [[nodiscard]] float sum() const {
    const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
  }
  [[nodiscard]] float largest() const { return _mm512_reduce_max_ps(v); }
};

// Transposes 16 rows of up to 16 32-bit words. The result is word-major, [word][16 rows], for words < n.
struct Words {
  __m512i v[16];

  static Words transpose(const std::byte* const* rows, std::size_t byte_offset, std::uint32_t n) {
    Words t;
    Words u;
    const auto mask = static_cast<__mmask16>(n >= 16 ? 0xFFFFU : (1U << n) - 1);
    for (int i = 0; i < 16; ++i) t.v[i] = _mm512_maskz_loadu_epi32(mask, rows[i] + byte_offset);
    for (int i = 0; i < 16; i += 2) {
      u.v[i] = _mm512_unpacklo_epi32(t.v[i], t.v[i + 1]);
      u.v[i + 1] = _mm512_unpackhi_epi32(t.v[i], t.v[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      t.v[i] = _mm512_unpacklo_epi64(u.v[i], u.v[i + 2]);
      t.v[i + 1] = _mm512_unpackhi_epi64(u.v[i], u.v[i + 2]);
      t.v[i + 2] = _mm512_unpacklo_epi64(u.v[i + 1], u.v[i + 3]);
      t.v[i + 3] = _mm512_unpackhi_epi64(u.v[i + 1], u.v[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      u.v[i] = _mm512_shuffle_i32x4(t.v[i], t.v[i + 4], 0x88);
      u.v[i + 4] = _mm512_shuffle_i32x4(t.v[i], t.v[i + 4], 0xDD);
      u.v[i + 8] = _mm512_shuffle_i32x4(t.v[i + 8], t.v[i + 12], 0x88);
      u.v[i + 12] = _mm512_shuffle_i32x4(t.v[i + 8], t.v[i + 12], 0xDD);
    }
    for (int i = 0; i < 4; ++i) {
      t.v[i] = _mm512_shuffle_i32x4(u.v[i], u.v[i + 8], 0x88);
      t.v[i + 8] = _mm512_shuffle_i32x4(u.v[i], u.v[i + 8], 0xDD);
      t.v[i + 4] = _mm512_shuffle_i32x4(u.v[i + 4], u.v[i + 12], 0x88);
      t.v[i + 12] = _mm512_shuffle_i32x4(u.v[i + 4], u.v[i + 12], 0xDD);
    }
    return t;
  }
  void store(int word, float* out) const { _mm512_storeu_si512(out, v[word]); }
  // even() returns the low bf16 value of the word, odd() the high one.
  [[nodiscard]] Vec even(int word) const { return {_mm512_castsi512_ps(_mm512_slli_epi32(v[word], 16))}; }
  [[nodiscard]] Vec odd(int word) const {
    return {_mm512_castsi512_ps(_mm512_and_si512(v[word], _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))))};
  }
  // Returns byte i of the word, which is signed.
  [[nodiscard]] Vec code(int word, int i) const {
    return {_mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_sll_epi32(v[word], _mm_cvtsi32_si128(24 - 8 * i)), 24))};
  }
  void store_bf16(int word, float* low, float* high) const {
    even(word).store(low);
    odd(word).store(high);
  }
};

}  // namespace
}  // namespace quire
