#include <bit>
#include <cmath>

#include "runtime/kernel/cpu/arm/vec_neon.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/arm/codes_neon.h"
#include "runtime/kernel/implementations.h"

// Computes codes and scales of activations in pairs of rows (codes_neon.h), for both NEON tables. matmul.h has the contract.

namespace quire {
namespace {

// Compares floats by their bits without the sign: the order is the same, and infinity and NaN are above all numbers.
std::uint32_t largest_magnitude(const float* x) {
  uint32x4_t largest = vdupq_n_u32(0);
  unrolled<8>([&](auto i) { largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(vld1q_f32(x + 4 * i)))); });
  return vmaxvq_u32(largest);
}

// Stores eight codes in the layout of int16 mode (`in_halves`) or int8 mode. In int16 mode, the low byte of a code is its low half.
void store_eight(int16x8_t codes, bool in_halves, std::int8_t* to) {
  if (!in_halves) return vst1_s8(to, vmovn_s16(codes));
  vst1_s8(to, vrshrn_n_s16(codes, 8));  // (code + 128) >> 8
  vst1_s8(to + kHalvesBytes, vmovn_s16(codes));
}

// Stores the codes of 32 inputs. If an input is NaN or infinite, the factor is zero and so are all codes. `to` points to the first byte of
// the row in its pair.
void store_codes(const float* x, float factor, bool in_halves, std::int8_t* to, std::int32_t* half_sums) {
  for (int half = 0; half < 2; ++half) {
    int32x4_t sum = vdupq_n_s32(0);
    for (int eight = 0; eight < 2; ++eight, x += 8, to += kPairRegister) {
      const int32x4_t a = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x), factor));
      const int32x4_t b = vcvtnq_s32_f32(vmulq_n_f32(vld1q_f32(x + 4), factor));
      store_eight(vmovn_high_s32(vmovn_s32(a), b), in_halves, to);
      sum = vaddq_s32(sum, vaddq_s32(a, b));
    }
    half_sums[half] = vaddvq_s32(sum);
  }
}

void prepare_rows(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin,
                  std::uint32_t group_end) {
  constexpr std::uint32_t kInfinity = 0x7F800000;
  const float top = top_code(x.mode);
  const bool in_halves = x.mode == ActivationMode::int16;
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    for (std::uint32_t group = group_begin; group < group_end; ++group) {
      const float* from = x.x + row * x.stride + std::size_t{group} * kGroupColumns;
      std::int8_t* codes = x.codes_at(row & ~1U, group, in_halves ? kHalvesBytes : kBytesBytes) + std::size_t{8} * (row % 2);
      const std::size_t at = x.group_at(row, group);
      const std::uint32_t bits = largest_magnitude(from);
      const float amax = std::bit_cast<float>(bits);
      const float inverse = top / amax;
      std::int32_t* half_sums = x.half_sums + 2 * at;
      store_codes(from, bits < kInfinity && inverse < INFINITY ? inverse : 0.0F, in_halves, codes, half_sums);
      const std::int32_t sum = half_sums[0] + half_sums[1];
      x.scales[at] = bits < kInfinity ? amax / top : NAN;
      x.sums[at] = static_cast<float>(sum) * x.scales[at];
      x.offsets[at] = 128 * sum;
    }
  }
}

}  // namespace

namespace neon {

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end) {
  if (is_integer(x.mode)) prepare_rows(x, row_begin, row_end, group_begin, group_end);
  if (x.mode == ActivationMode::bf16) reference::prepare(x, row_begin, row_end, group_begin, group_end);
}

}  // namespace neon
}  // namespace quire
