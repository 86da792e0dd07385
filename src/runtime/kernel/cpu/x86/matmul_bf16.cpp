// Products of bf16 weights and bf16 activations, for processors with vdpbf16ps. The instruction adds the products of a pair of columns to
// each of 16 outputs. The contract in matmul.h has the order of this instruction. Called on every thread of the pool, for disjoint panels.
// All other products use the AVX-512 kernels.
#include <cstring>

#include "runtime/kernel/cpu/x86/vec_avx512.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/matmul_walk.h"
#include "runtime/kernel/cpu/unrolled.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

constexpr std::size_t kGroupBytes = 64;  // 32 activations of a row

// Returns two columns of 16 weights as 16 pairs.
__m512bh pairs(const std::uint8_t* at) {
  alignas(64) static constexpr std::uint16_t kInterleaved[32] = {0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
                                                                 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
  return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(_mm512_load_si512(kInterleaved), _mm512_loadu_si512(at)));
}

__m512bh pair_everywhere(const std::int8_t* at) {
  std::int32_t pair = 0;
  std::memcpy(&pair, at, sizeof pair);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

struct PairPanels {
  template <int R, int P>
  [[gnu::noinline]] static void run(const PanelTask& task) {
    const std::size_t panel_bytes = task.w->panel_bytes;
    const std::int8_t* x = task.x->codes_at(task.first_row, 0, kGroupBytes);
    const std::uint8_t* at = task.panel;
    __m512 acc[R][P];
    unrolled<R>([&](auto r) { unrolled<P>([&](auto p) { acc[r][p] = _mm512_setzero_ps(); }); });
    constexpr std::size_t kPairBytes = 64, kPairs = kGroupColumns / 2;
    for (std::uint32_t column = 0; column < task.w->columns; column += kGroupColumns) {
      fetch_ahead<P>(task, static_cast<std::size_t>(at - task.panel), kPairs * kPairBytes);
      for (std::size_t pair = 0; pair < kPairs; ++pair, at += kPairBytes) {
        __m512bh weights[P];
        unrolled<P>([&](auto p) { weights[p] = pairs(at + p * panel_bytes); });
        unrolled<R>([&](auto r) {
          const __m512bh input = pair_everywhere(x + r * kGroupBytes + 4 * pair);
          unrolled<P>([&](auto p) { acc[r][p] = _mm512_dpbf16_ps(acc[r][p], weights[p], input); });
        });
      }
      x += kRowTile * kGroupBytes;
    }
    unrolled<R>([&](auto r) { unrolled<P>([&](auto p) { task.put(r, Vec{acc[r][p]}, p); }); });
  }
};

}  // namespace

namespace avx512_bf16 {

void prepare(const Activations& x, std::uint32_t row_begin, std::uint32_t row_end, std::uint32_t group_begin, std::uint32_t group_end) {
  if (x.mode != ActivationMode::bf16) return avx512::prepare(x, row_begin, row_end, group_begin, group_end);
  for (std::uint32_t row = row_begin; row < row_end; ++row) {
    const float* from = x.x + row * x.stride + std::size_t{group_begin} * kGroupColumns;
    for (std::uint32_t group = group_begin; group < group_end; ++group, from += kGroupColumns) {
      const __m512bh rounded = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
      _mm512_storeu_si512(x.codes_at(row, group, kGroupBytes), reinterpret_cast<__m512i>(rounded));
    }
  }
}

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  if (x.mode != ActivationMode::bf16 || w.format != WeightFormat::bf16) return avx512::matmul(w, x, y, y_stride, begin, end);
  check_product(w, x, end);
  if (x.rows <= Vec::kFewRows)
    for_groups_of<PairPanels, Vec::kFewRows, Vec::kPanelsOfFew>(w, x, y, y_stride, begin, end);
  else
    for_groups_of<PairPanels, Vec::kFloatRows, Vec::kFloatPanels>(w, x, y, y_stride, begin, end);
}

}  // namespace avx512_bf16
}  // namespace quire
