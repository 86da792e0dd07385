// Integer products of many rows, for processors with NEON's matrix instruction (i8mm). smmla multiplies two rows of activations with two
// outputs, eight columns each, which is twice as many products as sdot. The codes of a stretch of columns are rearranged once for all rows,
// as signed bytes and in pairs of outputs; activations are already in pairs of rows (codes_neon.h). Called through the table of kernels, on
// every thread of the pool, for disjoint panels. Integer sums are exact and the scaling uses the same fused multiply-adds, so the results
// have the bits of every other implementation. Called only if tables.cpp has found the instructions, because other processors would stop
// the program.
//
// Not measured on ARM hardware. Instructions per 64 products with eight rows, in the output of clang 19: 6, of which 2 are smmla; in int16
// mode 9, of which 4 are smmla. Rearranging codes and scales of q4 adds about 16 / rows.
#include <algorithm>

#include "runtime/kernel/cpu/arm/vec_neon.h"
// The headers below need the type Vec of the header above.
#include "runtime/kernel/cpu/arm/codes_neon.h"
#include "runtime/kernel/cpu/matmul_parts.h"
#include "runtime/kernel/implementations.h"

namespace quire {
namespace {

constexpr std::uint32_t kStretchGroups = 24;  // groups of 32 columns whose codes and scales are rearranged once for all rows
constexpr std::uint32_t kCachedRows = 64;     // rows of activations that stay in the L2 cache while all panels are processed
constexpr int kPairs = 4;  // pairs of rows that share one load of codes: 8 accumulators for four outputs, 8 registers of codes

// Codes and scales of one panel in a stretch of columns.
struct alignas(64) Stretch {
  std::int8_t codes[4][kStretchGroups][4][2][16];  // [four outputs][group][8 columns][pair of outputs]
  float scales[2 * kStretchGroups][kPanelRows];
  float minimums[2 * kStretchGroups][kPanelRows];
  std::uint32_t first_group = 0;
  std::uint32_t groups = 0;
};

// Stores the codes of four outputs and 32 columns, [8 columns][pair of outputs], as smmla reads them.
template <WeightFormat kFormat>
void store_pairs(const std::uint8_t* block, uint8x16_t table, std::int8_t (&to)[4][2][16]) {
  int8x16_t codes[8];
  load_codes<kFormat, 0>(block, table, codes);
  load_codes<kFormat, 1>(block, table, codes + 4);
  const int8x16_t zero = vdupq_n_s8(kZeroByte<kFormat>);
  unrolled<4>([&](auto e) {
    const int32x4_t first = vreinterpretq_s32_s8(vsubq_s8(codes[2 * e], zero));
    const int32x4_t second = vreinterpretq_s32_s8(vsubq_s8(codes[2 * e + 1], zero));
    vst1q_s8(to[e][0], vreinterpretq_s8_s32(vzip1q_s32(first, second)));
    vst1q_s8(to[e][1], vreinterpretq_s8_s32(vzip2q_s32(first, second)));
  });
}

using StorePairs = void (*)(const std::uint8_t*, uint8x16_t, std::int8_t (&)[4][2][16]);

StorePairs store_pairs_of(WeightFormat format) {
  if (format == WeightFormat::q4) return store_pairs<WeightFormat::q4>;
  if (format == WeightFormat::q4_signed) return store_pairs<WeightFormat::q4_signed>;
  if (format == WeightFormat::q4_table) return store_pairs<WeightFormat::q4_table>;
  return format == WeightFormat::q6 ? store_pairs<WeightFormat::q6> : store_pairs<WeightFormat::q8>;
}

// State of one call on one thread. kScales: scale groups per block of 32; kHalves: int16 activations.
template <int kScales, bool kHalves>
class Matrices {
 public:
  Matrices(const PackedMatrix& w, const Activations& x, std::size_t y_stride)
      : w_(w), x_(x), y_stride_(y_stride), store_pairs_(store_pairs_of(w.format)) {}

  void run(float* y, std::uint32_t begin, std::uint32_t end) {
    const std::uint32_t all = w_.columns / kGroupColumns;
    const std::uint32_t stretches = (all + kStretchGroups - 1) / kStretchGroups;
    for (std::uint32_t tile = 0; tile < x_.rows; tile += kCachedRows) {
      const std::uint32_t rows = std::min(x_.rows - tile, kCachedRows);
      for (std::uint32_t panel = begin; panel < end; ++panel) {
        std::fill_n(acc_[0], (rows + rows % 2) * kPanelRows, 0.0F);
        for (std::uint32_t s = 0; s < stretches; ++s) {
          stretch_.first_group = all * s / stretches;
          stretch_.groups = all * (s + 1) / stretches - stretch_.first_group;
          lay_out(panel);
          run_rows<kPairs>(tile, 0, rows);
        }
        const std::uint32_t outputs = std::min(w_.rows - panel * kPanelRows, kPanelRows);
        for (std::uint32_t row = 0; row < rows; ++row)
          std::copy_n(acc_[row], outputs, y + (tile + row) * y_stride_ + std::size_t{panel} * kPanelRows);
      }
    }
  }

 private:
  static constexpr int kEights = 4 / kScales;  // groups of eight columns, per scale group
  static constexpr std::size_t kBytes = kHalves ? kHalvesBytes : kBytesBytes;

  void lay_out(std::uint32_t panel) {
    const std::size_t scale_bytes = std::size_t{16} * w_.scale_bytes;
    const std::size_t of_codes = code_bytes(w_.format);
    const std::size_t block_bytes = of_codes + kScales * scale_bytes * (w_.has_minimums ? 2 : 1);
    const std::uint8_t* start = w_.storage.data() + panel * w_.panel_bytes;
    const std::uint8_t* block = start + all_unit_bytes(w_) + stretch_.first_group * block_bytes;
    PanelScales of_panel(w_, start);
    const uint8x16_t table = table_of(w_);
    for (std::uint32_t g = 0; g < stretch_.groups; ++g, block += block_bytes) {
      for (std::uint32_t four = 0; four < 4; ++four) store_pairs_(block + 16 * four, table, stretch_.codes[four][g]);
      if (g == 0 || begins_units(stretch_.first_group + g)) of_panel.enter(stretch_.first_group + g);
      for (std::uint32_t i = 0; i < kScales; ++i) {
        const std::uint8_t* scales = block + of_codes + i * scale_bytes;
        of_panel.scales(scales).store(stretch_.scales[kScales * g + i]);
        if (w_.has_minimums) of_panel.minimums(scales + kScales * scale_bytes).store(stretch_.minimums[kScales * g + i]);
      }
    }
  }

  // Processes rows `begin` to `end`, counted from `tile`, P pairs at a time. The last pair may have only one row.
  template <int P>
  void run_rows(std::uint32_t tile, std::uint32_t begin, std::uint32_t end) {
    for (; begin + 2 * P <= end + 1; begin += 2 * P)
      for (std::uint32_t four = 0; four < 4; ++four)
        w_.has_minimums ? run_pairs<P, true>(tile, begin, four) : run_pairs<P, false>(tile, begin, four);
    if constexpr (P > 1) run_rows<P - 1>(tile, begin, end);
  }

  // Sums of products of a pair of rows with four outputs; each row has a separate register.
  struct Sums {
    int32x4_t of_row[2];
  };
  [[gnu::always_inline]] static Sums dots(const int8x16_t (&codes)[kEights][2], const std::int8_t* pair) {
    int32x4_t sum[2] = {vdupq_n_s32(0), vdupq_n_s32(0)};
    const auto add = [&](const std::int8_t* x) {
      for (int e = 0; e < kEights; ++e) {
        const int8x16_t eight = vld1q_s8(x + kPairRegister * e);
        for (int j = 0; j < 2; ++j) sum[j] = vmmlaq_s32(sum[j], eight, codes[e][j]);
      }
    };
    add(pair);
    if constexpr (kHalves) {
      for (int j = 0; j < 2; ++j) sum[j] = vshlq_n_s32(sum[j], 8);
      add(pair + kHalvesBytes);
    }
    const int64x2_t a = vreinterpretq_s64_s32(sum[0]), b = vreinterpretq_s64_s32(sum[1]);
    return {{vreinterpretq_s32_s64(vzip1q_s64(a, b)), vreinterpretq_s32_s64(vzip2q_s64(a, b))}};
  }

  // Multiplies the stretch with P pairs of rows and four outputs of the panel. Row tiles are whole, so memory of rows after the last one
  // exists; the results of these rows are not stored.
  template <int P, bool kMinimums>
  void run_pairs(std::uint32_t tile, std::uint32_t first, std::uint32_t four) {
    const std::uint32_t row = tile + first;
    const std::int8_t* x = x_.codes_at(row, stretch_.first_group, kBytes);
    std::size_t at = x_.group_at(row, stretch_.first_group);
    float32x4_t acc[P][2];
    unrolled<2 * P>([&](auto r) { acc[r / 2][r % 2] = vld1q_f32(acc_[first + r] + 4 * four); });
    for (std::uint32_t g = 0; g < stretch_.groups; ++g, x += kRowTile * kBytes, at += kRowTile) {
      unrolled<kScales>([&](auto i) {
        int8x16_t codes[kEights][2];
        unrolled<2 * kEights>([&](auto n) { codes[n / 2][n % 2] = vld1q_s8(stretch_.codes[four][g][i * kEights + n / 2][n % 2]); });
        const float32x4_t scale = vld1q_f32(stretch_.scales[kScales * g + i] + 4 * four);
        const float32x4_t minimum = kMinimums ? vld1q_f32(stretch_.minimums[kScales * g + i] + 4 * four) : scale;
        unrolled<P>([&](auto p) {
          const Sums sums = dots(codes, x + 2 * kBytes * p + kPairRegister * kEights * i);
          unrolled<2>([&](auto r) {
            const std::size_t here = at + 2 * p + r;
            const float32x4_t scaled = vmulq_n_f32(vcvtq_f32_s32(sums.of_row[r]), x_.scales[here]);
            acc[p][r] = vfmaq_f32(acc[p][r], scaled, scale);
            if constexpr (kMinimums) acc[p][r] = vfmaq_n_f32(acc[p][r], minimum, float_sum<kScales>(x_, here, i));
          });
        });
      });
    }
    unrolled<2 * P>([&](auto r) { vst1q_f32(acc_[first + r] + 4 * four, acc[r / 2][r % 2]); });
  }

  const PackedMatrix& w_;
  const Activations& x_;
  std::size_t y_stride_;
  StorePairs store_pairs_;
  alignas(64) float acc_[kCachedRows][kPanelRows];
  Stretch stretch_;
};

template <bool kHalves>
void multiply_matrices(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin,
                       std::uint32_t end) {
  if (w.scale_columns == kGroupColumns)
    Matrices<1, kHalves>(w, x, y_stride).run(y, begin, end);
  else
    Matrices<2, kHalves>(w, x, y_stride).run(y, begin, end);
}

}  // namespace

namespace neon_i8mm {

// Uses the NEON dot products for few rows, because rearranging the codes does not pay off.
void matmul(const PackedMatrix& w, const Activations& x, float* y, std::size_t y_stride, std::uint32_t begin, std::uint32_t end) {
  constexpr std::uint32_t kFewRows = 7;
  check_product(w, x, end);
  if (!uses_integers(w, x) || x.rows <= kFewRows)
    neon::matmul(w, x, y, y_stride, begin, end);
  else if (x.mode == ActivationMode::int16)
    multiply_matrices<true>(w, x, y, y_stride, begin, end);
  else
    multiply_matrices<false>(w, x, y, y_stride, begin, end);
}

}  // namespace neon_i8mm
}  // namespace quire
