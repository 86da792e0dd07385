#include "runtime/kernel/pack.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "runtime/kernel/kernel_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

TEST(MatrixPacker, UnpackedRowsEqualTheWeights) {
  Rng rng(21);
  for (const WeightCase& kind : weight_cases()) {
    for (const std::uint32_t rows : {1U, 15U, 16U, 17U, 33U}) {
      const MatrixCase matrix = random_matrix(rng, kind, rows, 96);
      std::vector<float> row(96);
      for (std::uint32_t r = 0; r < rows; ++r) {
        unpack_row(matrix.packed, r, row);
        ASSERT_TRUE(same_bits(row, std::span(matrix.weights).subspan(std::size_t{r} * 96, 96))) << kind.name << " row " << r;
      }
    }
  }
}

TEST(MatrixPacker, TakesNoMoreBytesThanTheFormatNeeds) {
  Rng rng(22);
  const std::vector<WeightCase> cases = weight_cases();
  const auto bytes_per_row = [&](std::string_view name) {
    return random_matrix(rng, *std::ranges::find(cases, name, &WeightCase::name), 16, 320).packed.bytes() / 16;
  };
  EXPECT_EQ(bytes_per_row("f32"), 320 * 4U);
  EXPECT_EQ(bytes_per_row("bf16"), 320 * 2U);
  EXPECT_EQ(bytes_per_row("q4"), 10 * (16U + 2 + 2));  // like Q4_1
  EXPECT_EQ(bytes_per_row("q4_table"), 10 * (16U + 2 + 2));
  EXPECT_EQ(bytes_per_row("q4_table_f32_scales"), 10 * (16U + 4));  // like IQ4_XS
  EXPECT_EQ(bytes_per_row("q8"), 10 * (32U + 2));                   // like Q8_0
  EXPECT_EQ(bytes_per_row("q8_halves"), 10 * (32U + 4 + 4));
}

TEST(MatrixPacker, RowsMayComeInAnyOrder) {
  MatrixPacker packer(WeightFormat::bf16, 3, 2);
  const std::vector<std::uint16_t> one(2, float_to_bf16(1.0F));
  packer.put_bf16(2, one);
  packer.put_f32(0, std::vector<float>{2.0F, 3.0F});
  const PackedMatrix packed = packer.finish();
  std::vector<float> row(2);
  unpack_row(packed, 0, row);
  EXPECT_EQ(row, (std::vector<float>{2.0F, 3.0F}));
  unpack_row(packed, 1, row);
  EXPECT_EQ(row, (std::vector<float>{0.0F, 0.0F}));
  unpack_row(packed, 2, row);
  EXPECT_EQ(row, (std::vector<float>{1.0F, 1.0F}));
}

TEST(MatrixPacker, RoundsToBf16AndWidensFromIt) {
  const std::vector<float> values{1.00390625F, -1.01171875F, 0.1F};  // two ties, rounded to even: one down and one up
  MatrixPacker narrow(WeightFormat::bf16, 1, 3);
  narrow.put_f32(0, values);
  std::vector<float> row(3);
  unpack_row(narrow.finish(), 0, row);
  EXPECT_EQ(row, (std::vector<float>{1.0F, -1.015625F, bf16_to_float(float_to_bf16(0.1F))}));
  MatrixPacker wide(WeightFormat::f32, 1, 3);
  wide.put_bf16(0, std::vector<std::uint16_t>{0x3F80, 0xC000, 0x3DCD});
  unpack_row(wide.finish(), 0, row);
  EXPECT_EQ(row, (std::vector<float>{1.0F, -2.0F, bf16_to_float(0x3DCD)}));
}

TEST(MatrixPacker, MergesPairsOfScalesOnlyWhenAllPairsAreEqual) {
  const std::vector<std::uint8_t> codes(64, 130);
  for (const float last : {0.5F, 0.25F}) {
    MatrixPacker packer(WeightFormat::q8, 2, 64);
    packer.put_q8(0, codes, std::vector<float>(4, 0.5F), std::vector<float>(4, 0.0F));
    packer.put_q8(1, codes, std::vector<float>{0.5F, 0.5F, 0.5F, last}, std::vector<float>(4, 0.0F));
    const PackedMatrix packed = packer.finish();
    EXPECT_EQ(packed.scale_columns, last == 0.5F ? 32U : 16U);
    EXPECT_EQ(packed.scale_bytes, 2U);
    EXPECT_FALSE(packed.has_minimums);
    std::vector<float> row(64);
    unpack_row(packed, 1, row);
    EXPECT_EQ(row[0], 1.0F);
    EXPECT_EQ(row[63], 2.0F * last);
  }
}

TEST(MatrixPacker, KeepsUnitsOnlyWhenEveryScaleIsAMultiple) {
  const std::vector<std::uint8_t> codes(256, 3);
  for (const float last : {63 * 0.25F, 63.5F * 0.25F, 128 * 0.25F, std::numeric_limits<float>::quiet_NaN()}) {
    MatrixPacker packer(WeightFormat::q4, 2, 256);
    std::vector<float> scales(8, 0.75F), minimums(8, -0.5F);
    packer.put_q4(0, codes, scales, minimums);
    packer.put_units(0, std::vector<float>{0.25F, -0.125F});
    scales[7] = last;
    packer.put_q4(1, codes, scales, minimums);
    packer.put_units(1, std::vector<float>{0.25F, -0.5F});
    const PackedMatrix packed = packer.finish();
    EXPECT_EQ(packed.scale_bytes == 1, last == 63 * 0.25F) << last;
    std::vector<float> row(256);
    unpack_row(packed, 0, row);
    EXPECT_EQ(row[0], 1.75F);
    unpack_row(packed, 1, row);
    EXPECT_EQ(row[0], 1.75F);
    if (!std::isnan(last)) EXPECT_EQ(row[255], 3 * last - 0.5F);
  }
}

TEST(MatrixPacker, DropsMinimumsOnlyWhenAllAreMinusEightScales) {
  const std::vector<std::uint8_t> codes(64, 11);
  for (const float last : {-2.0F, -1.9375F}) {
    MatrixPacker packer(WeightFormat::q4, 1, 64);
    packer.put_q4(0, codes, std::vector<float>{0.5F, 0.25F}, std::vector<float>{-4.0F, last});
    const PackedMatrix packed = packer.finish();
    EXPECT_EQ(packed.format, last == -2.0F ? WeightFormat::q4_signed : WeightFormat::q4);
    EXPECT_EQ(packed.has_minimums, last != -2.0F);
    std::vector<float> row(64);
    unpack_row(packed, 0, row);
    EXPECT_EQ(row[0], 1.5F);
    EXPECT_EQ(row[63], 2.75F + last);
  }
}

TEST(MatrixPacker, PanelsStartOnCacheLinesAndRowsPastTheEndAreZero) {
  Rng rng(23);
  for (const WeightCase& kind : weight_cases()) {
    const MatrixCase matrix = random_matrix(rng, kind, 5, 64);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(matrix.packed.storage.data()) % kCacheLineBytes, 0U) << kind.name;
    EXPECT_EQ(matrix.packed.panel_bytes % kCacheLineBytes, 0U) << kind.name;
    if (kind.format != WeightFormat::f32 && kind.format != WeightFormat::bf16) continue;
    const std::size_t element = kind.format == WeightFormat::f32 ? 4 : 2;
    for (std::size_t i = 0; i < matrix.packed.storage.size(); ++i) {
      if (i / element % kPanelRows < 5) continue;
      ASSERT_EQ(matrix.packed.storage[i], 0) << kind.name;
    }
  }
}

TEST(MatrixPackerDeath, WrongSizesAbortTheProgram) {
  EXPECT_DEATH(MatrixPacker(WeightFormat::q4, 1, 33), "multiple of 32");
  MatrixPacker packer(WeightFormat::f32, 1, 4);
  EXPECT_DEATH(packer.put_f32(1, std::vector<float>(4)), "put_f32");
  EXPECT_DEATH(packer.put_f32(0, std::vector<float>(3)), "put_f32");
}

TEST(Half, EveryF16RoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    if ((bits & 0x7C00U) == 0x7C00U && (bits & 0x3FFU) != 0) continue;  // NaN
    const float value = f16_to_float(static_cast<std::uint16_t>(bits));
    ASSERT_EQ(float_to_f16_truncated(value), bits);
    ASSERT_TRUE(is_exact_in_f16(value));
  }
  EXPECT_EQ(f16_to_float(0x3C00), 1.0F);
  EXPECT_EQ(f16_to_float(0x0001), 0x1p-24F);
  EXPECT_FALSE(is_exact_in_f16(0.1F));
  EXPECT_FALSE(is_exact_in_f16(65536.0F));
  EXPECT_FALSE(is_exact_in_f16(0x1p-26F));
}

TEST(Half, EveryBf16RoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_float(static_cast<std::uint16_t>(bits));
    if (std::isnan(value))
      ASSERT_TRUE(std::isnan(bf16_to_float(float_to_bf16(value))));
    else
      ASSERT_EQ(float_to_bf16(value), bits);
  }
}

TEST(Half, F16HasInfinitiesAndNan) {
  EXPECT_EQ(f16_to_float(0x7C00), INFINITY);
  EXPECT_EQ(f16_to_float(0xFC00), -INFINITY);
  EXPECT_TRUE(std::isnan(f16_to_float(0x7E01)));
  EXPECT_EQ(f16_to_float(0x8001), -0x1p-24F);
  EXPECT_EQ(f16_to_float(0x7BFF), 65504.0F);
}

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0F), 0x3F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F808000U)), 0x3F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F818000U)), 0x3F82);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7F800001U)) & 0x7FC0, 0x7FC0);  // NaN
}

}  // namespace
}  // namespace quire
