#pragma once
// 16 floats in two registers. All functions are local to the including file, which is compiled for AVX2, FMA and F16C. Every operation has
// the same results, bit for bit, as in vec_avx512.h, including the order in which sum() adds lanes. A file that is compiled for other
// processors must not include this header: it would contain instructions that those processors do not have.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace quire {
namespace {

// Has the interface of Vec in vec_avx512.h: always 16 lanes, so that loops over lanes and sums of lanes are the same in both.
struct Vec {
  static constexpr int kMatmulRows = 6;                   // rows that share one load of weights
  static constexpr int kFloatRows = 4, kFloatPanels = 1;  // for float weights: rows, and panels that share an input
  static constexpr int kFewRows = 2, kPanelsOfFew = 2;    // up to kFewRows rows, kPanelsOfFew panels share an input
  static constexpr int kQueries = 2;                      // queries that share one load of keys or values
  static constexpr int kScoreSubtiles = 1;                // subtiles of 16 keys that share one load of a query
  static constexpr bool kMultipliesPairs = false;         // AVX2 has no instruction for pairs of bf16
  static constexpr int kPairSubtiles = 2;                 // like kScoreSubtiles, for products in pairs (one sum instead of two)
  static constexpr int kValueVectors = 2;                 // vectors of the head that are processed together
  __m256 a;
  __m256 b;

  static Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Vec set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
  static Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Vec load_bf16(const std::uint16_t* p) { return {widen_bf16(p), widen_bf16(p + 8)}; }
  static Vec load_f16(const std::uint8_t* p) {
    return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
            _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
  }
  static Vec load_i8(const std::uint8_t* p) { return {load8_i8(p), load8_i8(p + 8)}; }
  static __m256 load8_i8(const std::uint8_t* p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  // Returns code - zero_point of each 32-bit lane of a line of codes, as floats. `shift` and `mask` select the code's bits in the lane.
  static Vec codes(const std::uint8_t* line, int shift, int mask, int zero_point) {
    return {codes8(line, shift, mask, zero_point), codes8(line + 32, shift, mask, zero_point)};
  }
  // Looks up a table of 16 floats: in each lane, the four bits from `shift` on are the index.
  static Vec look_up(const std::uint8_t* line, int shift, const float* table) {
    return {look_up8(line, shift, table), look_up8(line + 32, shift, table)};
  }
  void store(float* p) const {
    _mm256_storeu_ps(p, a);
    _mm256_storeu_ps(p + 8, b);
  }
  void store_first(float* p, std::uint32_t n) const {
    _mm256_maskstore_ps(p, first(n), a);
    if (n > 8) _mm256_maskstore_ps(p + 8, first(n - 8), b);
  }
  static Vec load_first(const float* p, std::uint32_t n) {
    return {_mm256_maskload_ps(p, first(n)), n > 8 ? _mm256_maskload_ps(p + 8, first(n - 8)) : _mm256_setzero_ps()};
  }
  // Returns the first n lanes of this vector, and the lanes of `other` from n on.
  [[nodiscard]] Vec keep_first(std::uint32_t n, Vec other) const {
    return {_mm256_blendv_ps(other.a, a, _mm256_castsi256_ps(first(n))),
            n > 8 ? _mm256_blendv_ps(other.b, b, _mm256_castsi256_ps(first(n - 8))) : other.b};
  }

  friend Vec operator+(Vec x, Vec y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  friend Vec operator-(Vec x, Vec y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  friend Vec operator*(Vec x, Vec y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  friend Vec operator/(Vec x, Vec y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  static Vec fma(Vec x, Vec y, Vec z) { return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)}; }
  // If one operand is NaN, the result is the second operand.
  static Vec max(Vec x, Vec y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  static Vec min(Vec x, Vec y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  static Vec round(Vec x) {
    constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
  }
  // Rounds to the nearest bf16, ties to even, and returns the values as floats. NaN stays NaN if its low half is zero.
  [[nodiscard]] Vec to_bf16() const { return {to_bf16(a), to_bf16(b)}; }
  // Returns 2^n for integral n.
  static Vec power_of_two(Vec n) { return {power8(n.a), power8(n.b)}; }

  // Adds lanes 8 apart, then 4, 2, 1.
  [[nodiscard]] float sum() const {
    const __m256 x = _mm256_add_ps(a, b);
    const __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 z = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_shuffle_ps(z, z, 1)));
  }
  [[nodiscard]] float largest() const {
    const __m256 x = _mm256_max_ps(a, b);
    const __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    const __m128 z = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_shuffle_ps(z, z, 1)));
  }

 private:
  static __m256 to_bf16(__m256 x) {
    const __m256i bits = _mm256_castps_si256(x);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i up = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    return _mm256_castsi256_ps(_mm256_and_si256(up, _mm256_set1_epi32(static_cast<int>(0xFFFF0000U))));
  }
  static __m256 widen_bf16(const std::uint16_t* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static __m256 codes8(const std::uint8_t* line, int shift, int mask, int zero_point) {
    const __m256i lanes = _mm256_srl_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(line)), _mm_cvtsi32_si128(shift));
    const __m256i code = _mm256_and_si256(lanes, _mm256_set1_epi32(mask));
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(code, _mm256_set1_epi32(zero_point)));
  }
  static __m256 look_up8(const std::uint8_t* line, int shift, const float* table) {
    const __m256i lanes = _mm256_srl_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(line)), _mm_cvtsi32_si128(shift));
    // The permutation uses the low three bits of an index; the fourth bit selects the half of the table.
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), lanes);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), lanes);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(lanes, 28)));
  }
  static __m256 power8(__m256 n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
  }
  static __m256i first(std::uint32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

// Transposes 16 rows of up to 16 32-bit words. The result is word-major, [word][16 rows], for words < n (a multiple of 8).
struct Words {
  __m256i v[32];  // [word][half]

  static Words transpose(const std::byte* const* rows, std::size_t byte_offset, std::uint32_t n) {
    Words out;
    for (std::uint32_t word = 0; word < n; word += 8) {
      const std::uint32_t left = n - word < 8 ? n - word : 8;
      transpose8(rows, byte_offset + std::size_t{4} * word, left, &out.v[2 * word]);
      transpose8(rows + 8, byte_offset + std::size_t{4} * word, left, &out.v[2 * word + 1]);
    }
    return out;
  }
  void store(int word, float* out) const {
    put(out, v[2 * word]);
    put(out + 8, v[2 * word + 1]);
  }
  // even() returns the low bf16 value of the word, odd() the high one.
  [[nodiscard]] Vec even(int word) const {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(v[2 * word], 16)), _mm256_castsi256_ps(_mm256_slli_epi32(v[2 * word + 1], 16))};
  }
  [[nodiscard]] Vec odd(int word) const {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
    return {_mm256_castsi256_ps(_mm256_and_si256(v[2 * word], mask)), _mm256_castsi256_ps(_mm256_and_si256(v[2 * word + 1], mask))};
  }
  // Returns byte i of the word, which is signed.
  [[nodiscard]] Vec code(int word, int i) const {
    const __m128i shift = _mm_cvtsi32_si128(24 - 8 * i);
    return {_mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sll_epi32(v[2 * word], shift), 24)),
            _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_sll_epi32(v[2 * word + 1], shift), 24))};
  }
  void store_bf16(int word, float* low, float* high) const {
    even(word).store(low);
    odd(word).store(high);
  }

 private:
  static void put(float* out, __m256i x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), x); }

  // Transposes 8 rows of n words, at most 8, to every second register of `out`.
  static void transpose8(const std::byte* const* rows, std::size_t byte_offset, std::uint32_t n, __m256i* out) {
    __m256i t[8];
    __m256i u[8];
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    for (int i = 0; i < 8; ++i) t[i] = _mm256_maskload_epi32(reinterpret_cast<const int*>(rows[i] + byte_offset), mask);
    for (int i = 0; i < 8; i += 2) {
      u[i] = _mm256_unpacklo_epi32(t[i], t[i + 1]);
      u[i + 1] = _mm256_unpackhi_epi32(t[i], t[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      t[i] = _mm256_unpacklo_epi64(u[i], u[i + 2]);
      t[i + 1] = _mm256_unpackhi_epi64(u[i], u[i + 2]);
      t[i + 2] = _mm256_unpacklo_epi64(u[i + 1], u[i + 3]);
      t[i + 3] = _mm256_unpackhi_epi64(u[i + 1], u[i + 3]);
    }
    for (int i = 0; i < 4; ++i) {
      out[2 * i] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x20);
      out[2 * (i + 4)] = _mm256_permute2x128_si256(t[i], t[i + 4], 0x31);
    }
  }
};

}  // namespace
}  // namespace quire
