#pragma once
// Layout of the codes of weights and activations for the integer products of both NEON tables; include vec_neon.h first. Activations of a
// group of 32 columns are stored in pairs of rows, [4][2 rows][8 columns]: a register is an operand of smmla, and two lanes of a register
// are operands of sdot. In int16 mode, a pair has first the high halves in this layout, then the low halves: two times 64 bytes.
#include <cstddef>
#include <cstdint>

#include "runtime/kernel/cpu/unrolled.h"
#include "runtime/kernel/matmul.h"
#include "runtime/kernel/pack.h"

namespace quire {
namespace {

constexpr std::size_t kHalvesBytes = 64;  // per row and group in int16 mode
constexpr std::size_t kBytesBytes = 32;   // in int8 mode
constexpr std::size_t kPairRegister = 16;

// The value that represents 0 in the bytes of load_codes().
template <WeightFormat kFormat>
constexpr int kZeroByte = zero_code(kFormat) == 128 ? 0 : zero_code(kFormat);

// Returns the matrix's code table, minus 128.
[[maybe_unused]] uint8x16_t table_of(const PackedMatrix& w) {
  return veorq_u8(vld1q_u8(w.table.data()), vdupq_n_u8(0x80));
}

// Loads columns 16 * kHalf .. 16 * kHalf + 15 of four outputs as signed bytes, [4][4 outputs][4 columns]. `block` points to the codes of
// the first of these outputs.
template <WeightFormat kFormat, int kHalf>
[[gnu::always_inline]] inline void load_codes(const std::uint8_t* block, [[maybe_unused]] uint8x16_t table, int8x16_t* codes) {
  [[maybe_unused]] uint8x16_t pairs = vdupq_n_u8(0);
  if constexpr (kFormat == WeightFormat::q6) pairs = vld1q_u8(block + 256 + 64 * kHalf);
  unrolled<4>([&](auto s) {
    uint8x16_t bytes;
    if constexpr (kFormat == WeightFormat::q8) {
      bytes = veorq_u8(vld1q_u8(block + 64 * (4 * kHalf + s)), vdupq_n_u8(0x80));
    } else {
      const uint8x16_t line = vld1q_u8(block + 64 * s);
      bytes = kHalf == 0 ? vandq_u8(line, vdupq_n_u8(15)) : vshrq_n_u8(line, 4);
    }
    if constexpr (kFormat == WeightFormat::q4_table) bytes = vqtbl1q_u8(table, bytes);
    if constexpr (kFormat == WeightFormat::q6) {
      uint8x16_t upper = pairs;
      if constexpr (s < 2) upper = vshlq_n_u8(pairs, 4 - 2 * s);
      if constexpr (s == 3) upper = vshrq_n_u8(pairs, 2);
      bytes = vbslq_u8(vdupq_n_u8(0x30), upper, bytes);
    }
    codes[s] = vreinterpretq_s8_u8(bytes);
  });
}

}  // namespace
}  // namespace quire
