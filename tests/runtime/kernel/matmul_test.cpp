#include "runtime/kernel/matmul.h"

#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel_fixtures.h"
#include "runtime/kernel/packed_layout.h"

namespace quire {
namespace {

using namespace kernel_test;

constexpr ActivationMode kModes[] = {ActivationMode::int16, ActivationMode::int8, ActivationMode::f32, ActivationMode::bf16};

// Returns y[m][rows] of one table, written with a row stride larger than the row; the gap must stay untouched.
std::vector<float> multiply(const Kernels& kernels, const PackedMatrix& w, ActivationMode mode, std::span<const float> x, std::uint32_t m,
                            std::uint32_t panels_per_call = 1000) {
  constexpr float kUntouched = 12345.0F;
  const std::uint32_t k = w.columns;
  AlignedVector<std::byte> scratch(activation_scratch_bytes(mode, m, k));
  const Activations prepared = make_activations(mode, x.data(), k, m, k, scratch);
  kernels.prepare(prepared, 0, m / 2);
  const std::uint32_t groups = k / kGroupColumns;  // the other rows are computed in two parts
  kernels.prepare_groups(prepared, m / 2, m, groups / 2, groups);
  kernels.prepare_groups(prepared, m / 2, m, 0, groups / 2);
  const std::size_t stride = w.rows + 3;
  std::vector<float> padded(m * stride, kUntouched);
  for (std::uint32_t p = 0; p < w.num_panels(); p += panels_per_call)
    kernels.matmul(w, prepared, padded.data(), stride, p, std::min(w.num_panels(), p + panels_per_call));
  std::vector<float> y;
  for (std::uint32_t row = 0; row < m; ++row) {
    const float* from = padded.data() + row * stride;
    y.insert(y.end(), from, from + w.rows);
    for (std::size_t i = w.rows; i < stride; ++i) EXPECT_EQ(from[i], kUntouched);
  }
  return y;
}

bool accepts(const WeightCase& kind, std::uint32_t columns) {
  return columns % 32 == 0 || kind.format == WeightFormat::f32 || kind.format == WeightFormat::bf16;
}

struct Shape {
  std::uint32_t m, rows, columns;
};

// Returns the code that the packer received.
std::uint32_t code_in_file(const PackedMatrix& m, std::uint32_t row, std::uint32_t column) {
  const std::uint32_t code = code_at(m, row, column) + (m.format == WeightFormat::q6 ? 96 : 0);
  return m.format != WeightFormat::q4_table ? code : static_cast<std::uint32_t>(std::ranges::find(m.table, code) - m.table.begin());
}

Shape random_shape(Rng& rng, const WeightCase& kind) {
  Shape shape{1 + random_below(rng, 70), 1 + random_below(rng, 90), 1 + random_below(rng, 200)};
  if (kind.units) shape.columns = 256 * (1 + shape.columns % 3);
  if (!accepts(kind, shape.columns)) shape.columns = (shape.columns + 31) / 32 * 32;
  return shape;
}

TEST(Matmul, EveryTableHasTheBitsOfTheReference) {
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
  Rng rng(11);
  for (const WeightCase& kind : weight_cases()) {
    for (int round = 0; round < 25; ++round) {
      const Shape shape = random_shape(rng, kind);
      const MatrixCase matrix = random_matrix(rng, kind, shape.rows, shape.columns);
      const std::vector<float> x = random_floats(rng, std::size_t{shape.m} * shape.columns, 2.0F);
      for (const ActivationMode mode : kModes) {
        if (mode != ActivationMode::f32 && shape.columns % 32 != 0) continue;
        const std::vector<float> expected = multiply(select_kernels(KernelIsa::reference), matrix.packed, mode, x, shape.m);
        for (const Kernels* kernels : fast_kernels()) {
          const std::vector<float> y = multiply(*kernels, matrix.packed, mode, x, shape.m, 1 + random_below(rng, 3));
          ASSERT_TRUE(same_bits(y, expected)) << kind.name << " " << kernels->name << " m " << shape.m << " n " << shape.rows << " k "
                                              << shape.columns << " mode " << static_cast<int>(mode);
        }
      }
    }
  }
}

// Numbers have all magnitudes, so products, sums and rounded values also become subnormal.
TEST(Matmul, RoundedActivationsHaveTheBitsOfTheReferenceForTinyNumbers) {
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
  Rng rng(20);
  constexpr std::uint32_t kRows = 21, kOutputs = 70, kColumns = 96;
  const auto tiny_floats = [&](std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values)
      value = std::ldexp(static_cast<float>(1 + random_below(rng, 1000)) - 500.5F, -60 - static_cast<int>(random_below(rng, 90)));
    return values;
  };
  std::uint32_t num_normal = 0, num_zero = 0;
  for (int round = 0; round < 20; ++round) {
    MatrixPacker packer(WeightFormat::bf16, kOutputs, kColumns);
    for (std::uint32_t row = 0; row < kOutputs; ++row) packer.put_f32(row, tiny_floats(kColumns));
    const PackedMatrix w = packer.finish();
    const std::vector<float> x = tiny_floats(std::size_t{kRows} * kColumns);
    const std::vector<float> expected = multiply(select_kernels(KernelIsa::reference), w, ActivationMode::bf16, x, kRows);
    for (const float value : expected) (value == 0.0F ? num_zero : num_normal) += 1;
    for (const Kernels* kernels : fast_kernels())
      ASSERT_TRUE(same_bits(multiply(*kernels, w, ActivationMode::bf16, x, kRows), expected)) << kernels->name << " round " << round;
    for (const float value : expected) ASSERT_NE(std::fpclassify(value), FP_SUBNORMAL);
  }
  EXPECT_GT(num_normal, 100U);
  EXPECT_GT(num_zero, 100U);
}

// Kernels that rearrange codes do it for a range of columns at a time, which need not begin at a unit.
TEST(Matmul, LongRowsHaveTheBitsOfTheReference) {
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
  Rng rng(19);
  constexpr std::uint32_t kRows = 19, kOutputs = 20, kColumns = 7 * 256;
  for (const WeightCase& kind : weight_cases()) {
    const MatrixCase matrix = random_matrix(rng, kind, kOutputs, kColumns);
    const std::vector<float> x = random_floats(rng, std::size_t{kRows} * kColumns, 2.0F);
    for (const ActivationMode mode : kModes) {
      const std::vector<float> expected = multiply(select_kernels(KernelIsa::reference), matrix.packed, mode, x, kRows);
      for (const Kernels* kernels : fast_kernels())
        EXPECT_TRUE(same_bits(multiply(*kernels, matrix.packed, mode, x, kRows), expected)) << kind.name << " " << kernels->name;
    }
  }
}

TEST(Matmul, UnitsChangeTheLayoutOfScalesButNoBit) {
  for (const WeightCase& kind : weight_cases()) {
    if (!kind.units) continue;
    Rng rng(17);
    const MatrixCase matrix = random_matrix(rng, kind, 40, 768);
    ASSERT_EQ(matrix.packed.scale_bytes, 1U) << kind.name;
    MatrixPacker packer(packer_format(kind.format), 40, 768, kTestTable);
    const std::size_t per_row = packer_format(kind.format) == WeightFormat::q8 ? 48 : 24;
    std::vector<std::uint8_t> codes(768);
    std::vector<float> scales(per_row), minimums(per_row);
    for (std::uint32_t row = 0; row < 40; ++row) {
      for (std::uint32_t k = 0; k < 768; ++k) codes[k] = static_cast<std::uint8_t>(code_in_file(matrix.packed, row, k));
      for (std::uint32_t i = 0; i < per_row; ++i) {
        scales[i] = scale_at(matrix.packed, row, i * 768 / static_cast<std::uint32_t>(per_row));
        minimums[i] = minimum_at(matrix.packed, row, i * 768 / static_cast<std::uint32_t>(per_row));
      }
      packer_format(kind.format) == WeightFormat::q8 ? packer.put_q8(row, codes, scales, minimums)
                                                     : packer.put_q4(row, codes, scales, minimums);
    }
    const PackedMatrix plain = packer.finish();
    ASSERT_EQ(plain.scale_bytes, 4U) << kind.name;
    EXPECT_LT(matrix.packed.bytes(), plain.bytes()) << kind.name;
    const std::vector<float> x = random_floats(rng, std::size_t{21} * 768, 2.0F);
    for (const Kernels* kernels : available_kernels())
      for (const ActivationMode mode : kModes)
        EXPECT_TRUE(same_bits(multiply(*kernels, matrix.packed, mode, x, 21), multiply(*kernels, plain, mode, x, 21)))
            << kind.name << " " << kernels->name << " mode " << static_cast<int>(mode);
  }
}

// One code that needs eight bits makes the packer use eight bits for the whole matrix.
TEST(Matmul, SixBitCodesGiveTheBitsOfEightBitCodes) {
  Rng rng(18);
  for (const bool halves : {false, true}) {
    MatrixPacker six(WeightFormat::q8, 48, 192), eight(WeightFormat::q8, 49, 192);
    std::vector<std::uint8_t> codes(192);
    std::vector<float> scales(12), minimums(12);
    for (std::uint32_t row = 0; row < 49; ++row) {
      for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(96 + rng() % 64);
      for (std::size_t i = 0; i < 12; ++i) {
        scales[i] = !halves && i % 2 == 1 ? scales[i - 1] : random_scale(rng, {}, 0.01F);
        minimums[i] = !halves && i % 2 == 1 ? minimums[i - 1] : random_scale(rng, {}, 0.05F);
      }
      if (row < 48) six.put_q8(row, codes, scales, minimums);
      if (row == 48) codes[7] = 160;
      eight.put_q8(row, codes, scales, minimums);
    }
    const PackedMatrix narrow = six.finish(), wide = eight.finish();
    ASSERT_EQ(narrow.format, WeightFormat::q6);
    ASSERT_EQ(wide.format, WeightFormat::q8);
    const std::vector<float> x = random_floats(rng, std::size_t{21} * 192, 2.0F);
    for (const Kernels* kernels : available_kernels())
      for (const ActivationMode mode : kModes) {
        const std::vector<float> y = multiply(*kernels, narrow, mode, x, 21), expected = multiply(*kernels, wide, mode, x, 21);
        for (std::size_t row = 0; row < 21; ++row)
          EXPECT_TRUE(same_bits(std::span(y).subspan(row * 48, 48), std::span(expected).subspan(row * 49, 48)))
              << kernels->name << " mode " << static_cast<int>(mode) << " row " << row;
      }
  }
}

TEST(Matmul, ARowDoesNotDependOnOtherRows) {
  Rng rng(12);
  for (const WeightCase& kind : weight_cases()) {
    const MatrixCase matrix = random_matrix(rng, kind, 50, 96);
    constexpr std::uint32_t kRows = 70;
    const std::vector<float> x = random_floats(rng, std::size_t{kRows} * 96);
    for (const Kernels* kernels : available_kernels()) {
      const std::vector<float> together = multiply(*kernels, matrix.packed, ActivationMode::int16, x, kRows);
      for (std::uint32_t row = 0; row < kRows; ++row) {
        const std::vector<float> alone =
            multiply(*kernels, matrix.packed, ActivationMode::int16, std::span(x).subspan(std::size_t{row} * 96, 96), 1);
        ASSERT_TRUE(same_bits(alone, std::span(together).subspan(std::size_t{row} * 50, 50))) << kind.name << " " << kernels->name;
      }
    }
  }
}

TEST(Matmul, IsCloseToDoublePrecision) {
  Rng rng(13);
  for (const WeightCase& kind : weight_cases()) {
    const MatrixCase matrix = random_matrix(rng, kind, 40, 576);
    const std::vector<float> x = random_floats(rng, 576 * 3);
    for (const ActivationMode mode : {ActivationMode::int16, ActivationMode::f32}) {
      const std::vector<float> y = multiply(select_kernels(KernelIsa::best), matrix.packed, mode, x, 3);
      for (std::size_t i = 0; i < y.size(); ++i) {
        double exact = 0.0;
        double magnitude = 0.0;
        for (std::size_t k = 0; k < 576; ++k) {
          const double product = static_cast<double>(matrix.weights[i % 40 * 576 + k]) * static_cast<double>(x[i / 40 * 576 + k]);
          exact += product;
          magnitude += std::fabs(product);
        }
        ASSERT_NEAR(y[i], exact, magnitude * 5e-5) << kind.name << " mode " << static_cast<int>(mode);
      }
    }
  }
}

TEST(Matmul, ZerosAndExtremeInputsKeepTheContract) {
  Rng rng(14);
  for (const WeightCase& kind : weight_cases()) {
    const MatrixCase matrix = random_matrix(rng, kind, 17, 64);
    std::vector<float> x(64 * 4, 0.0F);
    for (std::size_t i = 64; i < 128; ++i) x[i] = (i % 2 == 0 ? 3e38F : -3e38F) * 0.01F;
    for (std::size_t i = 128; i < 192; ++i) x[i] = 1e-42F;
    for (std::size_t i = 192; i < 256; ++i) x[i] = i % 3 == 0 ? 1.0F : -1.0F;
    const std::vector<float> expected = multiply(select_kernels(KernelIsa::reference), matrix.packed, ActivationMode::int16, x, 4);
    for (std::size_t i = 0; i < 17; ++i) EXPECT_EQ(expected[i], 0.0F);
    for (const Kernels* kernels : fast_kernels())
      EXPECT_TRUE(same_bits(multiply(*kernels, matrix.packed, ActivationMode::int16, x, 4), expected)) << kind.name << kernels->name;
  }
  if (fast_kernels().empty()) GTEST_SKIP() << kNothingToCompare;
}

TEST(Matmul, SixteenBitActivationsReachTheirRange) {
  // All weights are 1 and inputs are at full scale: code sums of 32 * 32639 must be exact.
  MatrixPacker packer(WeightFormat::q8, 1, 32);
  packer.put_q8(0, std::vector<std::uint8_t>(32, 255), std::vector<float>{1.0F, 1.0F}, std::vector<float>(2, 0.0F));
  const PackedMatrix w = packer.finish();
  for (const float sign : {1.0F, -1.0F}) {
    const std::vector<float> x(32, sign * 32639.0F);
    for (const Kernels* kernels : available_kernels())
      EXPECT_EQ(multiply(*kernels, w, ActivationMode::int16, x, 1)[0], sign * static_cast<float>(127 * 32 * 32639)) << kernels->name;
  }
}

TEST(MatmulDeath, MismatchedInputsAbortTheProgram) {
  Rng rng(15);
  const MatrixCase matrix = random_matrix(rng, weight_cases()[0], 16, 64);
  const std::vector<float> x(32);
  std::vector<float> y(16);
  const Activations narrow = make_activations(ActivationMode::f32, x.data(), 32, 1, 32, {});
  EXPECT_DEATH(select_kernels(KernelIsa::best).matmul(matrix.packed, narrow, y.data(), 16, 0, 1), "the same number of columns");
  EXPECT_DEATH(make_activations(ActivationMode::int16, x.data(), 32, 1, 32, {}), "the scratch buffer is large enough");
  AlignedVector<std::byte> scratch(activation_scratch_bytes(ActivationMode::int8, 20, 32));
  const Activations rows = make_activations(ActivationMode::int8, x.data(), 0, 20, 32, scratch);
  EXPECT_DEATH(static_cast<void>(rows.slice(8, 4)), "a slice begins at a tile");
}

}  // namespace
}  // namespace quire
