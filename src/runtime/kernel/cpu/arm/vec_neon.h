#pragma once
// 16 floats in four registers. All functions are local to the including file, which is compiled for NEON with dot products. Every operation
// has the same results, bit for bit, as in x86/vec_avx2.h, including the order in which sum() adds lanes. A file that is compiled for other
// processors must not include this header: it would contain instructions that those processors do not have.
#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace quire {
namespace {

// Has the interface of Vec in x86/vec_avx2.h: always 16 lanes, so that loops over lanes and sums of lanes are the same.
struct Vec {
  // The counts below leave room in the 32 registers for the accumulators, the weights (or keys or values) and a few broadcast values.
  static constexpr int kMatmulRows = 6;                   // rows that share one load of weights
  static constexpr int kFloatRows = 4, kFloatPanels = 1;  // for float weights: rows, and panels that share an input
  static constexpr int kFewRows = 2, kPanelsOfFew = 2;    // up to kFewRows rows, kPanelsOfFew panels share an input
  static constexpr int kQueries = 2;                      // queries that share one load of keys or values
  static constexpr int kScoreSubtiles = 1;                // subtiles of 16 keys that share one load of a query
  static constexpr bool kMultipliesPairs = false;         // instructions for pairs of bf16 are not used
  static constexpr int kPairSubtiles = 2;                 // like kScoreSubtiles, for products in pairs (one sum instead of two)
  static constexpr int kValueVectors = 2;                 // vectors of the head that are processed together
  float32x4_t a, b, c, d;

  static Vec zero() { return set(0.0F); }
  static Vec set(float x) {
    const float32x4_t v = vdupq_n_f32(x);
    return {v, v, v, v};
  }
  static Vec load(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}; }
  static Vec load_bf16(const std::uint16_t* p) {
    const uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
    return {widen_bf16(vget_low_u16(low)), widen_bf16(vget_high_u16(low)), widen_bf16(vget_low_u16(high)), widen_bf16(vget_high_u16(high))};
  }
  static Vec load_f16(const std::uint8_t* p) {
    const float16x8_t low = vreinterpretq_f16_u8(vld1q_u8(p)), high = vreinterpretq_f16_u8(vld1q_u8(p + 16));
    return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)), vcvt_high_f32_f16(high)};
  }
  static Vec load_i8(const std::uint8_t* p) {
    const int8x16_t bytes = vreinterpretq_s8_u8(vld1q_u8(p));
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)), vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
            vcvtq_f32_s32(vmovl_high_s16(high))};
  }
  // Returns code - zero_point of each 32-bit lane of a line of codes, as floats. `shift` and `mask` select the code's bits in the lane.
  static Vec codes(const std::uint8_t* line, int shift, int mask, int zero_point) {
    return {codes4(line, shift, mask, zero_point), codes4(line + 16, shift, mask, zero_point), codes4(line + 32, shift, mask, zero_point),
            codes4(line + 48, shift, mask, zero_point)};
  }
  // Looks up a table of 16 floats: in each lane, the four bits from `shift` on are the index.
  static Vec look_up(const std::uint8_t* line, int shift, const float* table) {
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(table);
    const uint8x16x4_t floats{{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
    return {look_up4(line, shift, floats), look_up4(line + 16, shift, floats), look_up4(line + 32, shift, floats),
            look_up4(line + 48, shift, floats)};
  }
  void store(float* p) const {
    vst1q_f32(p, a);
    vst1q_f32(p + 4, b);
    vst1q_f32(p + 8, c);
    vst1q_f32(p + 12, d);
  }
  // Goes through memory, because NEON has no masked loads and stores.
  void store_first(float* p, std::uint32_t n) const {
    float lanes[16];
    store(lanes);
    std::memcpy(p, lanes, n * sizeof(float));
  }
  static Vec load_first(const float* p, std::uint32_t n) {
    float lanes[16] = {};
    std::memcpy(lanes, p, n * sizeof(float));
    return load(lanes);
  }
  // Returns the first n lanes of this vector, and the lanes of `other` from n on.
  [[nodiscard]] Vec keep_first(std::uint32_t n, Vec other) const {
    static constexpr std::uint32_t kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const auto keep = [n](const std::uint32_t* lanes, float32x4_t x, float32x4_t y) {
      return vbslq_f32(vcltq_u32(vld1q_u32(lanes), vdupq_n_u32(n)), x, y);
    };
    return {keep(kLanes, a, other.a), keep(kLanes + 4, b, other.b), keep(kLanes + 8, c, other.c), keep(kLanes + 12, d, other.d)};
  }

  friend Vec operator+(Vec x, Vec y) { return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)}; }
  friend Vec operator-(Vec x, Vec y) { return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)}; }
  friend Vec operator*(Vec x, Vec y) { return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)}; }
  friend Vec operator/(Vec x, Vec y) { return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)}; }
  static Vec fma(Vec x, Vec y, Vec z) {
    return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c), vfmaq_f32(z.d, x.d, y.d)};
  }
  // Return the second operand if one operand is NaN. (vmaxq_f32 would return NaN, and vmaxnmq_f32 the number.)
  static Vec max(Vec x, Vec y) { return {larger(x.a, y.a), larger(x.b, y.b), larger(x.c, y.c), larger(x.d, y.d)}; }
  static Vec min(Vec x, Vec y) { return {smaller(x.a, y.a), smaller(x.b, y.b), smaller(x.c, y.c), smaller(x.d, y.d)}; }
  static Vec round(Vec x) { return {vrndnq_f32(x.a), vrndnq_f32(x.b), vrndnq_f32(x.c), vrndnq_f32(x.d)}; }
  // Rounds to the nearest bf16, ties to even, and returns the values as floats. NaN stays NaN if its low half is zero.
  [[nodiscard]] Vec to_bf16() const { return {to_bf16(a), to_bf16(b), to_bf16(c), to_bf16(d)}; }
  // Returns 2^n for integral n.
  static Vec power_of_two(Vec n) { return {power4(n.a), power4(n.b), power4(n.c), power4(n.d)}; }

  // Adds lanes 8 apart, then 4, 2, 1.
  [[nodiscard]] float sum() const {
    const float32x4_t x = vaddq_f32(vaddq_f32(a, c), vaddq_f32(b, d));
    const float32x2_t y = vadd_f32(vget_low_f32(x), vget_high_f32(x));
    return vget_lane_f32(y, 0) + vget_lane_f32(y, 1);
  }
  // Returns the largest lane; no lane may be NaN.
  [[nodiscard]] float largest() const { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a, c), vmaxq_f32(b, d))); }

 private:
  static float32x4_t to_bf16(float32x4_t x) {
    const uint32x4_t bits = vreinterpretq_u32_f32(x);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7FFF)));
    return vreinterpretq_f32_u32(vandq_u32(up, vdupq_n_u32(0xFFFF0000U)));
  }
  static float32x4_t widen_bf16(uint16x4_t bits) { return vreinterpretq_f32_u32(vshll_n_u16(bits, 16)); }
  static uint32x4_t shifted(const std::uint8_t* line, int shift) {
    return vshlq_u32(vreinterpretq_u32_u8(vld1q_u8(line)), vdupq_n_s32(-shift));
  }
  static float32x4_t codes4(const std::uint8_t* line, int shift, int mask, int zero_point) {
    const int32x4_t code = vreinterpretq_s32_u32(vandq_u32(shifted(line, shift), vdupq_n_u32(static_cast<std::uint32_t>(mask))));
    return vcvtq_f32_s32(vsubq_s32(code, vdupq_n_s32(zero_point)));
  }
  static float32x4_t look_up4(const std::uint8_t* line, int shift, uint8x16x4_t floats) {
    // The four bytes of float i are bytes 4 i .. 4 i + 3.
    const uint32x4_t index = vandq_u32(shifted(line, shift), vdupq_n_u32(15));
    const uint32x4_t bytes = vmlaq_u32(vdupq_n_u32(0x03020100), index, vdupq_n_u32(0x04040404));
    return vreinterpretq_f32_u8(vqtbl4q_u8(floats, vreinterpretq_u8_u32(bytes)));
  }
  static float32x4_t larger(float32x4_t x, float32x4_t y) { return vbslq_f32(vcgtq_f32(x, y), x, y); }
  static float32x4_t smaller(float32x4_t x, float32x4_t y) { return vbslq_f32(vcltq_f32(x, y), x, y); }
  static float32x4_t power4(float32x4_t n) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127)), 23));
  }
};

// Transposes 16 rows of up to 16 32-bit words. The result is word-major, [word][16 rows], for words < n (a multiple of 4).
struct Words {
  uint32x4_t v[16][4];  // [word][four rows]

  static Words transpose(const std::byte* const* rows, std::size_t byte_offset, std::uint32_t n) {
    Words out;
    for (std::uint32_t word = 0; word < n; word += 4)
      for (std::uint32_t four = 0; four < 4; ++four) transpose4(rows + 4 * four, byte_offset + std::size_t{4} * word, word, four, out);
    return out;
  }
  void store(int word, float* out) const {
    for (int i = 0; i < 4; ++i) vst1q_f32(out + 4 * i, vreinterpretq_f32_u32(v[word][i]));
  }
  // even() returns the low bf16 value of the word, odd() the high one.
  [[nodiscard]] Vec even(int word) const {
    const auto of = [](uint32x4_t x) { return vreinterpretq_f32_u32(vshlq_n_u32(x, 16)); };
    return {of(v[word][0]), of(v[word][1]), of(v[word][2]), of(v[word][3])};
  }
  [[nodiscard]] Vec odd(int word) const {
    const auto of = [](uint32x4_t x) { return vreinterpretq_f32_u32(vandq_u32(x, vdupq_n_u32(0xFFFF0000U))); };
    return {of(v[word][0]), of(v[word][1]), of(v[word][2]), of(v[word][3])};
  }
  // Returns byte i of the word, which is signed.
  [[nodiscard]] Vec code(int word, int i) const {
    const int32x4_t left = vdupq_n_s32(24 - 8 * i);
    const auto of = [left](uint32x4_t x) { return vcvtq_f32_s32(vshrq_n_s32(vshlq_s32(vreinterpretq_s32_u32(x), left), 24)); };
    return {of(v[word][0]), of(v[word][1]), of(v[word][2]), of(v[word][3])};
  }
  void store_bf16(int word, float* low, float* high) const {
    even(word).store(low);
    odd(word).store(high);
  }

 private:
  // Transposes four words of four rows.
  static void transpose4(const std::byte* const* rows, std::size_t byte_offset, std::uint32_t word, std::uint32_t four, Words& out) {
    const auto load = [&](int i) { return vreinterpretq_u32_u8(vld1q_u8(reinterpret_cast<const std::uint8_t*>(rows[i] + byte_offset))); };
    const uint32x4_t r0 = load(0), r1 = load(1), r2 = load(2), r3 = load(3);
    const uint64x2_t even01 = vreinterpretq_u64_u32(vtrn1q_u32(r0, r1)), odd01 = vreinterpretq_u64_u32(vtrn2q_u32(r0, r1));
    const uint64x2_t even23 = vreinterpretq_u64_u32(vtrn1q_u32(r2, r3)), odd23 = vreinterpretq_u64_u32(vtrn2q_u32(r2, r3));
    out.v[word][four] = vreinterpretq_u32_u64(vtrn1q_u64(even01, even23));
    out.v[word + 1][four] = vreinterpretq_u32_u64(vtrn1q_u64(odd01, odd23));
    out.v[word + 2][four] = vreinterpretq_u32_u64(vtrn2q_u64(even01, even23));
    out.v[word + 3][four] = vreinterpretq_u32_u64(vtrn2q_u64(odd01, odd23));
  }
};

}  // namespace
}  // namespace quire
