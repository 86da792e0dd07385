#include "runtime/kernel/pack.h"

#include "runtime/kernel/kernel_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

TEST(MatrixPacker, UnpackedRowsAreTheWeights) {
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
  const auto bytes_per_row = [&](const WeightCase& kind) { return random_matrix(rng, kind, 16, 320).packed.bytes() / 16; };
  const std::vector<WeightCase> cases = weight_cases();
  EXPECT_EQ(bytes_per_row(cases[0]), 320 * 4U);
  EXPECT_EQ(bytes_per_row(cases[1]), 320 * 2U);
  EXPECT_EQ(bytes_per_row(cases[2]), 10 * (16U + 2 + 2));  // as Q4_1
  EXPECT_EQ(bytes_per_row(cases[5]), 10 * (32U + 2));      // as Q8_0
  EXPECT_EQ(bytes_per_row(cases[6]), 10 * (32U + 4 + 4));
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

TEST(MatrixPackerDeath, WrongSizesStopTheProgram) {
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

TEST(Half, Bf16RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0F), 0x3F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F808000U)), 0x3F80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F818000U)), 0x3F82);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3F808001U)), 0x3F81);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x7F800001U)) & 0x7FC0, 0x7FC0);  // NaN
}

}  // namespace
}  // namespace quire
