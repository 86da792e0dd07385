#pragma once
// Unpacks one block of a GGUF tensor to codes, scales and minimums, with one function per type. The table in dequant.cpp lists the
// functions.
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace quire {

// The outputs for one block. Types that unpack to q4 or q4_table have one scale per 32 codes, other types one per 16 codes.
struct QuantBlock {
  std::uint8_t* codes;
  float* scales;
  float* minimums;
};

inline float half_at(const std::uint8_t* in) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, in, sizeof(bits));
  return f16_to_float(bits);
}

// Writes the codes of 32 columns. Byte i holds columns i (low four bits) and i + 16 (high four bits).
inline void nibbles_of_32(const std::uint8_t* in, std::uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = in[i] & 0x0F;
    codes[i + 16] = in[i] >> 4;
  }
}

// Sets both scales and both minimums of a group of 32, because q8 has one scale per 16 columns.
inline void set_group_of_32(const QuantBlock& out, int group, float scale, float minimum) {
  for (int half = 0; half < 2; ++half) {
    out.scales[2 * group + half] = scale;
    out.minimums[2 * group + half] = minimum;
  }
}

// Defined in dequant_iq.cpp.
void unpack_iq1_s(const std::uint8_t* in, const QuantBlock& out);
void unpack_iq1_m(const std::uint8_t* in, const QuantBlock& out);
void unpack_iq2_xxs(const std::uint8_t* in, const QuantBlock& out);
void unpack_iq2_xs(const std::uint8_t* in, const QuantBlock& out);
void unpack_iq2_s(const std::uint8_t* in, const QuantBlock& out);
void unpack_iq3_xxs(const std::uint8_t* in, const QuantBlock& out);
void unpack_iq3_s(const std::uint8_t* in, const QuantBlock& out);

// Defined in dequant_small.cpp.
void unpack_q8_k(const std::uint8_t* in, const QuantBlock& out);
void unpack_tq1_0(const std::uint8_t* in, const QuantBlock& out);
void unpack_tq2_0(const std::uint8_t* in, const QuantBlock& out);
void unpack_mxfp4(const std::uint8_t* in, const QuantBlock& out);
void unpack_nvfp4(const std::uint8_t* in, const QuantBlock& out);

}  // namespace quire
