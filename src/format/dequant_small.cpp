// Unpacks the GGUF types Q8_K, TQ1_0, TQ2_0, MXFP4 and NVFP4. Layouts follow ggml-common.h. Called while weights are packed, on any thread.
#include <bit>
#include <cstdint>
#include <cstring>

#include "format/dequant_blocks.h"
#include "format/small_floats.h"

namespace quire {
namespace {

void set_all(const QuantBlock& out, float scale) {
  for (int group = 0; group < 8; ++group) set_group_of_32(out, group, scale, 0.0F);
}

// Returns half of 2^(bits - 127).
float half_e8m0(std::uint32_t bits) {
  return std::bit_cast<float>(bits < 2 ? 0x00200000U << bits : (bits - 1) << 23);
}

// Returns half of an e4m3 value without a sign; the NaN pattern 127 gives 0.
float half_ue4m3(std::uint8_t bits) {
  return bits == 0x7F ? 0.0F : 0.5F * e4m3_to_float(bits & 0x7FU);
}

// Returns ternary digit n (0 to 4) of a byte, plus 127. The byte stores a base-3 fraction in units of 1/256. `power` is 3^n.
std::uint8_t ternary(std::uint8_t byte, std::uint32_t power) {
  const std::uint32_t rest = (byte * power) & 255U;
  return static_cast<std::uint8_t>(127 + (rest * 3 >> 8));
}

}  // namespace

void unpack_q8_k(const std::uint8_t* in, const QuantBlock& out) {
  float scale = 0.0F;
  std::memcpy(&scale, in, sizeof(scale));
  set_all(out, scale);
  for (int i = 0; i < 256; ++i) out.codes[i] = in[4 + i] ^ 0x80;
}

// The first 32 bytes hold 160 ternary digits, the next 16 bytes hold 80, and the last four bytes hold 16.
void unpack_tq1_0(const std::uint8_t* in, const QuantBlock& out) {
  set_all(out, half_at(in + 52));
  std::uint8_t* code = out.codes;
  const auto put = [&](int first, int count, int numbers) {
    for (std::uint32_t n = 0, power = 1; n < static_cast<std::uint32_t>(numbers); ++n, power *= 3)
      for (int i = first; i < first + count; ++i) *code++ = ternary(in[i], power);
  };
  put(0, 32, 5);
  put(32, 16, 5);
  put(48, 4, 4);
}

void unpack_tq2_0(const std::uint8_t* in, const QuantBlock& out) {
  set_all(out, half_at(in + 64));
  for (int i = 0; i < 256; ++i) out.codes[i] = static_cast<std::uint8_t>(127 + ((in[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2)) & 3));
}

// The scale is halved because `kTwiceE2m1` has twice the values.
void unpack_mxfp4(const std::uint8_t* in, const QuantBlock& out) {
  out.scales[0] = half_e8m0(in[0]);
  out.minimums[0] = 0.0F;
  nibbles_of_32(in + 1, out.codes);
}

// A block has four groups of 16, each with a scale.
void unpack_nvfp4(const std::uint8_t* in, const QuantBlock& out) {
  for (int group = 0; group < 4; ++group) {
    out.scales[group] = half_ue4m3(in[group]);
    out.minimums[group] = 0.0F;
    for (int i = 0; i < 8; ++i) {
      const std::uint8_t two = in[4 + 8 * group + i];
      out.codes[16 * group + i] = kTwiceE2m1[two & 15];
      out.codes[16 * group + 8 + i] = kTwiceE2m1[two >> 4];
    }
  }
}

}  // namespace quire
