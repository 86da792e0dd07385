// Integer products for processors with NEON and its dot products; matmul.h has the contract. Called through the table of kernels, on every
// thread of the pool, for disjoint panels. Activations are signed bytes, one per value or a high and a low half, in pairs of rows
// (codes_neon.h). sdot adds four products per 32-bit lane, and each lane is one output. Four outputs are processed at a time, and the
// columns of a row are in lanes, so no shuffles are needed. The sums of the high and low halves are joined exactly before they are scaled,
// because scaling them separately would round twice.
//
// Not measured on ARM hardware. Instructions per 64 products of q4, in the output of clang 19: 10 with four rows, of which 4 are sdot
// (int16 mode: 17 and 8); 17 with one row (int16 mode: 25). Float products take 22 with six rows (bf16: 25), of which 16 are fmla.
#include "runtime/kernel/cpu/arm/vec_neon.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/arm/codes_neon.h"
#include "runtime/kernel/cpu/matmul_impl.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

// Scales and sums of four neighbouring rows in a group, one lane per row.
template <WeightFormat kFormat, int kScales>
struct RowNumbers {
  float32x4_t scale;
  int32x4_t start[kScales];   // initial value of the sum of products, which subtracts the code of zero
  float32x4_t sums[kScales];  // multiplied with minimums

  [[gnu::always_inline]] static RowNumbers load(const Activations& x, std::size_t at) {
    RowNumbers made;
    made.scale = vld1q_f32(x.scales + at);
    if constexpr (kScales == 1) {
      constexpr int kShift = kZeroByte<kFormat> == 0 ? 0 : kOffsetShift<kFormat>;
      if constexpr (kShift != 0) made.start[0] = vnegq_s32(vshrq_n_s32(vld1q_s32(x.offsets + at), kShift));
      made.sums[0] = vld1q_f32(x.sums + at);
    } else {
      const int32x4x2_t halves = vld2q_s32(x.half_sums + 2 * at);
      for (int i = 0; i < kScales; ++i) {
        if constexpr (kZeroByte<kFormat> != 0) made.start[i] = vmulq_n_s32(halves.val[i], -kZeroByte<kFormat>);
        made.sums[i] = vmulq_f32(vcvtq_f32_s32(halves.val[i]), made.scale);
      }
    }
    return made;
  }
};

// Adds the products of one row with 8 N columns of four outputs. `x` points to N registers of a pair of rows; kOfPair is the index of the
// row in the pair.
template <int kOfPair, int N>
[[gnu::always_inline]] inline int32x4_t add_dots(int32x4_t sum, const int8x16_t* codes, const std::int8_t* x) {
  unrolled<N>([&](auto n) {
    const int8x16_t eight = vld1q_s8(x + kPairRegister * n);
    sum = vdotq_laneq_s32(sum, codes[2 * n], eight, 2 * kOfPair);
    sum = vdotq_laneq_s32(sum, codes[2 * n + 1], eight, 2 * kOfPair + 1);
  });
  return sum;
}

// Kernel of for_panels(): run<R>() multiplies R rows with one panel. kBytes: size of the codes of a row and group; kScales: scale groups
// per block of 32. A block of four rows begins with a whole pair, because blocks begin at the first row of a tile.
template <std::size_t kBytes, WeightFormat kFormat, int kScales>
struct Sdot {
  static constexpr int kRows = 4;                 // 16 accumulators and 8 registers of codes
  static constexpr int kRegisters = 4 / kScales;  // registers of activations, per scale group
  static constexpr std::size_t kCodeBytes = code_bytes(kFormat);

  // Returns exact dot products of a scale group with one row, for four outputs.
  template <int kRow>
  [[gnu::always_inline]] static int32x4_t dots(const int8x16_t* codes, const std::int8_t* x, int32x4_t start) {
    const std::int8_t* pair = x + kRow / 2 * 2 * kBytes;
    const int32x4_t zero = vdupq_n_s32(0);
    const int32x4_t first = kZeroByte<kFormat> == 0 ? zero : vdupq_laneq_s32(start, kRow);
    if constexpr (kBytes == kBytesBytes) return add_dots<kRow % 2, kRegisters>(first, codes, pair);
    int32x4_t sum = add_dots<kRow % 2, kRegisters>(zero, codes, pair);
    sum = vshlq_n_s32(sum, 8);
    if constexpr (kZeroByte<kFormat> != 0) sum = vaddq_s32(sum, first);
    return add_dots<kRow % 2, kRegisters>(sum, codes, pair + kHalvesBytes);
  }

  template <int R>
  [[gnu::noinline]] static void run(const PanelTask& task) {
    const PackedMatrix& w = *task.w;
    const std::uint32_t groups = w.columns / kGroupColumns;
    const std::size_t scale_bytes = std::size_t{16} * w.scale_bytes;
    const std::int8_t* x = task.x->codes_at(task.first_row, 0, kBytes);
    std::size_t of_rows = task.x->group_at(task.first_row, 0);
    const std::uint8_t* block = task.panel + all_unit_bytes(w);
    PanelScales panel_scales(w, task.panel);
    const uint8x16_t table = table_of(w);
    float32x4_t acc[R][4];
    unrolled<4 * R>([&](auto i) { acc[i / 4][i % 4] = vdupq_n_f32(0.0F); });
    for (std::uint32_t g = 0; g < groups; ++g, x += kRowTile * kBytes, of_rows += kRowTile) {
      if (begins_units(g)) panel_scales.enter(g);
      const auto rows = RowNumbers<kFormat, kScales>::load(*task.x, of_rows);
      const std::uint8_t* scale_at = block + kCodeBytes;
      unrolled<kScales>([&](auto i) {
        const Vec scales = panel_scales.scales(scale_at + i * scale_bytes);
        const float32x4_t scale[4] = {scales.a, scales.b, scales.c, scales.d};
        unrolled<4>([&](auto four) {
          int8x16_t codes[2 * kRegisters];
          load_codes<kFormat, i>(block + 16 * four, table, codes);
          if constexpr (kScales == 1) load_codes<kFormat, 1>(block + 16 * four, table, codes + 4);
          unrolled<R>([&](auto r) {
            const int32x4_t sum = dots<r>(codes, x + i * kRegisters * kPairRegister, rows.start[i]);
            acc[r][four] = vfmaq_f32(acc[r][four], vmulq_laneq_f32(vcvtq_f32_s32(sum), rows.scale, r), scale[four]);
          });
        });
        if (!w.has_minimums) return;
        const Vec minimums = panel_scales.minimums(scale_at + (kScales + i) * scale_bytes);
        const float32x4_t minimum[4] = {minimums.a, minimums.b, minimums.c, minimums.d};
        unrolled<4 * R>([&](auto n) { acc[n / 4][n % 4] = vfmaq_laneq_f32(acc[n / 4][n % 4], minimum[n % 4], rows.sums[i], n / 4); });
      });
      block += kCodeBytes + kScales * scale_bytes * (w.has_minimums ? 2 : 1);
    }
    unrolled<R>([&](auto r) { task.put(r, Vec{acc[r][0], acc[r][1], acc[r][2], acc[r][3]}); });
  }
};

template <WeightFormat kFormat, int kScales>
using OfHalves = Sdot<kHalvesBytes, kFormat, kScales>;
template <WeightFormat kFormat, int kScales>
using OfBytes = Sdot<kBytesBytes, kFormat, kScales>;

}  // namespace

namespace neon {

void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  check_product(w, x, end);
  if (!uses_integers(w, x))
    multiply_floats(w, x, y, y_stride, begin, end);
  else if (x.mode == ActivationMode::int16)
    multiply_integers<OfHalves>(w, x, y, y_stride, begin, end);
  else
    multiply_integers<OfBytes>(w, x, y, y_stride, begin, end);
}

void multiply_rows(const PackedMatrix& w, const RowProduct& product, std::uint32_t begin, std::uint32_t end) {
  check_row_product(w, end);
  multiply_rows_of(w, product, begin, end);
}

}  // namespace neon
}  // namespace quire
