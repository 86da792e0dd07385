#include <cmath>

#include "runtime/kernel/cpu/x86/vec_avx2.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/implementations.h"

// Computes codes and scales of activations for processors without AVX-512. There are three layouts, because the products of avx2 and
// avx_vnni differ. matmul.h has the contract. Called before a product, on every thread of the pool, each with separate rows. Codes and
// scales equal the results of the reference kernels bit for bit.

namespace quire {
namespace {

// The codes of 32 inputs.
struct Codes {
  __m256i eights[4];

  // Returns 16 codes as 16-bit lanes, in order; `half` selects 16 of the 32.
  [[nodiscard]] __m256i words(int half) const { return in_order(_mm256_packs_epi32(eights[2 * half], eights[2 * half + 1])); }
  // Returns all codes as bytes; they must fit.
  [[nodiscard]] __m256i bytes() const { return in_order(_mm256_packs_epi16(words(0), words(1))); }
  [[nodiscard]] std::int32_t sum(int half) const {
    const __m256i eight = _mm256_add_epi32(eights[2 * half], eights[2 * half + 1]);
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
    return _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
  }

 private:
  static __m256i in_order(__m256i packed) { return _mm256_permute4x64_epi64(packed, 0xD8); }
};

// Each struct below writes the codes of 32 inputs.
struct Pairs {  // 16-bit codes, columns 0, 2, 1, 3 of each four: matmul_avx2.cpp widens every second code of a register at a time
  static constexpr std::size_t kBytes = 64;
  static void store(const Codes& codes, std::int8_t* at) {
    const __m256i order = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    for (int half = 0; half < 2; ++half)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(at + 32 * half), _mm256_shuffle_epi8(codes.words(half), order));
  }
};
struct Bytes {
  static constexpr std::size_t kBytes = 32;
  static void store(const Codes& codes, std::int8_t* at) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(at), codes.bytes()); }
};
struct Halves {  // 16-bit codes as 32 high halves, then 32 low halves, both signed
  static constexpr std::size_t kBytes = 64;
  static void store(const Codes& codes, std::int8_t* at) {
    Codes high;
    Codes low;
    for (int i = 0; i < 4; ++i) {
      high.eights[i] = _mm256_srai_epi32(_mm256_add_epi32(codes.eights[i], _mm256_set1_epi32(128)), 8);
      low.eights[i] = _mm256_sub_epi32(codes.eights[i], _mm256_slli_epi32(high.eights[i], 8));
    }
    Bytes::store(high, at);
    Bytes::store(low, at + 32);
  }
};

// Factor and scale of 32 inputs; x * factor, rounded, is the code.
struct GroupScale {
  float factor;
  float scale;  // NaN when an input is NaN or infinite
};

GroupScale scale_of_group(const float* x, float top) {
  const auto absolute = [](Vec v) { return Vec::max(v, Vec::zero() - v); };
  const Vec a = Vec::load(x);
  const Vec b = Vec::load(x + 16);
  if (std::isnan((a * Vec::zero() + b * Vec::zero()).sum())) return {0.0F, NAN};
  const float amax = Vec::max(absolute(a), absolute(b)).largest();
  const float inverse = top / amax;
  return {inverse < INFINITY ? inverse : 0.0F, amax / top};
}

template <class Layout>
void prepare_rows(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin,
                  std::uint32_t group_end) {
  const float top = top_code(x.mode);
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    for (std::uint32_t group = group_begin; group < group_end; ++group) {
      const float* from = x.x + row * x.stride + std::size_t{group} * kGroupColumns;
      const std::size_t at = x.group_at(row, group);
      const GroupScale chosen = scale_of_group(from, top);
      Codes codes;
      for (int i = 0; i < 4; ++i) {
        const __m256 scaled = _mm256_mul_ps(_mm256_loadu_ps(from + 8 * i), _mm256_set1_ps(chosen.factor));
        codes.eights[i] = std::isnan(chosen.scale) ? _mm256_setzero_si256() : _mm256_cvtps_epi32(scaled);
      }
      Layout::store(codes, x.codes_at(row, group, Layout::kBytes));
      const std::int32_t first = codes.sum(0);
      const std::int32_t second = codes.sum(1);
      x.half_sums[2 * at] = first;
      x.half_sums[2 * at + 1] = second;
      x.scales[at] = chosen.scale;
      x.sums[at] = static_cast<float>(first + second) * chosen.scale;
      x.offsets[at] = 128 * (first + second);
    }
  }
}

}  // namespace

namespace avx2 {

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end) {
  if (x.mode == ActivationMode::int16) prepare_rows<Pairs>(x, row_begin, row_end, group_begin, group_end);
  if (x.mode == ActivationMode::int8) prepare_rows<Bytes>(x, row_begin, row_end, group_begin, group_end);
  if (x.mode == ActivationMode::bf16) reference::prepare(x, row_begin, row_end, group_begin, group_end);
}

}  // namespace avx2

namespace avx_vnni {

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end) {
  if (x.mode == ActivationMode::int16) prepare_rows<Halves>(x, row_begin, row_end, group_begin, group_end);
  if (x.mode == ActivationMode::int8) prepare_rows<Bytes>(x, row_begin, row_end, group_begin, group_end);
  if (x.mode == ActivationMode::bf16) reference::prepare(x, row_begin, row_end, group_begin, group_end);
}

}  // namespace avx_vnni
}  // namespace quire
