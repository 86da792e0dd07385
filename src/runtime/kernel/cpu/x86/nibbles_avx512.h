#pragma once
// Unpacks 4-bit and 6-bit codes of a block to bytes, in the order in which the products read them. Local to the including file, which is
// compiled for AVX-512.
#include <immintrin.h>

#include <cstdint>

#include "runtime/kernel/pack.h"

namespace quire {
namespace {

// Returns the matrix's code table, repeated in each 128-bit lane.
__m512i table_of(const PackedMatrix& w) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.table.data())));
}

// Unpacks eight lines of four columns.
template <WeightFormat kFormat>
void unpack_nibbles(const std::uint8_t* block, __m512i table, __m512i* codes) {
  const __m512i low = _mm512_set1_epi8(15);
  for (int s = 0; s < 4; ++s) {
    const __m512i line = _mm512_loadu_si512(block + 64 * s);
    codes[s] = _mm512_and_si512(line, low);
    codes[s + 4] = _mm512_and_si512(_mm512_srli_epi16(line, 4), low);
  }
  if constexpr (kFormat == WeightFormat::q6) {
    const __m512i upper = _mm512_set1_epi8(0x30);
    for (int half = 0; half < 2; ++half) {
      const __m512i pairs = _mm512_loadu_si512(block + 256 + 64 * half);
      const __m512i at_place[4] = {_mm512_slli_epi16(pairs, 4), _mm512_slli_epi16(pairs, 2), pairs, _mm512_srli_epi16(pairs, 2)};
      for (int s = 0; s < 4; ++s)  // code | (pair & upper)
        codes[4 * half + s] = _mm512_ternarylogic_epi32(codes[4 * half + s], at_place[s], upper, 0xF8);
    }
  }
  if constexpr (kFormat == WeightFormat::q4_table)
    for (int s = 0; s < 8; ++s) codes[s] = _mm512_shuffle_epi8(table, codes[s]);
}

}  // namespace
}  // namespace quire
