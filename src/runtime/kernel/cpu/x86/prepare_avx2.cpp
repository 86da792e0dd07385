#include <cmath>
#include <cstring>

#include "runtime/kernel/cpu/x86/vec_avx2.h"
// The vector type comes first.
#include "runtime/kernel/implementations.h"

// Codes of 16 bits and scales of activations, in both integer modes. Contract in matmul.h.

namespace quire {
namespace {

constexpr std::size_t kCodeBytes = 64;  // of a row and group

// Writes the codes of 32 inputs and the sums of 16.
void store(const float* x, float factor, std::int8_t* codes, std::int32_t* half_sums) {
  for (int half = 0; half < 2; ++half) {
    const Vec scaled = Vec::load(x + 16 * half) * Vec::set(factor);
    const __m256i a = _mm256_cvtps_epi32(scaled.a);
    const __m256i b = _mm256_cvtps_epi32(scaled.b);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 32 * half), packed);
    alignas(32) std::int32_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), _mm256_add_epi32(a, b));
    std::int32_t sum = 0;
    for (const std::int32_t lane : lanes) sum += lane;
    half_sums[half] = sum;
  }
}

// Largest magnitude and scale of 32 inputs; x * factor are the codes before rounding.
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

void prepare_rows(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin,
                  std::uint32_t group_end) {
  const float top = top_code(x.mode);
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    for (std::uint32_t group = group_begin; group < group_end; ++group) {
      const float* from = x.x + row * x.stride + std::size_t{group} * kGroupColumns;
      std::int8_t* codes = x.codes_at(row, group, kCodeBytes);
      const std::size_t at = x.group_at(row, group);
      std::int32_t* half_sums = x.half_sums + 2 * at;
      const GroupScale chosen = scale_of_group(from, top);
      if (std::isnan(chosen.scale)) {
        std::memset(codes, 0, kCodeBytes);
        half_sums[0] = half_sums[1] = 0;
      } else {
        store(from, chosen.factor, codes, half_sums);
      }
      const std::int32_t sum = half_sums[0] + half_sums[1];
      x.scales[at] = chosen.scale;
      x.sums[at] = static_cast<float>(sum) * chosen.scale;
      x.offsets[at] = 128 * sum;
    }
  }
}

}  // namespace

namespace avx2 {

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end) {
  if (x.mode != ActivationMode::f32) prepare_rows(x, row_begin, row_end, group_begin, group_end);
}

}  // namespace avx2
}  // namespace quire
