// Tests products over scattered rows (RowProduct): all tables have the bits of the reference kernel, which follows the documented chain.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/kernel/kernel_fixtures.h"

namespace quire {
namespace {

using namespace kernel_test;

// The inputs and outputs of a product; rows that it must not touch lie between them.
struct RowCase {
  MatrixCase matrix;
  std::vector<std::uint32_t> rows;  // scattered, ascending from first_row
  std::uint32_t first_row;
  RowProduct::Side side;
  bool adds;
  std::vector<float> x, y;
  std::size_t x_stride, y_stride;

  RowCase(Rng& rng, WeightFormat format) : first_row(random_below(rng, 50)) {
    const std::uint32_t outputs = 1 + random_below(rng, 70), inputs = 1 + random_below(rng, 90);
    matrix = random_matrix(rng, {.format = format}, outputs, inputs);
    side = random_below(rng, 2) == 0 ? RowProduct::Side::inputs : RowProduct::Side::outputs;
    adds = random_below(rng, 2) == 0;
    constexpr std::uint32_t kAll = 40;
    std::vector<std::uint32_t> all(kAll);
    std::iota(all.begin(), all.end(), first_row);
    std::ranges::sample(all, std::back_inserter(rows), random_below(rng, kAll + 1), rng);
    x_stride = inputs + random_below(rng, 5);
    y_stride = outputs + random_below(rng, 5);
    x = random_floats(rng, kAll * x_stride, 2.0F);
    y = random_floats(rng, kAll * y_stride, 2.0F);
  }

  [[nodiscard]] std::vector<float> made_by(const Kernels& kernels, std::uint32_t panels_at_once) const {
    std::vector<float> out = y;
    const RowProduct product{.x = x.data(),
                             .x_stride = x_stride,
                             .y = out.data(),
                             .y_stride = y_stride,
                             .rows = rows.data(),
                             .first_row = first_row,
                             .count = static_cast<std::uint32_t>(rows.size()),
                             .scattered = side,
                             .adds = adds};
    const std::uint32_t panels = matrix.packed.num_panels();
    for (std::uint32_t p = 0; p < panels; p += panels_at_once)
      kernels.multiply_rows(matrix.packed, product, p, std::min(panels, p + panels_at_once));
    return out;
  }

  [[nodiscard]] std::vector<float> expected() const {
    std::vector<float> out = y;
    const std::size_t columns = matrix.packed.columns;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::size_t scattered = rows[i] - first_row;
      const float* from = x.data() + (side == RowProduct::Side::inputs ? scattered : i) * x_stride;
      float* to = out.data() + (side == RowProduct::Side::outputs ? scattered : i) * y_stride;
      for (std::size_t n = 0; n < matrix.packed.rows; ++n) {
        float sum = adds ? to[n] : 0.0F;
        for (std::size_t k = 0; k < columns; ++k) sum = std::fma(matrix.weights[n * columns + k], from[k], sum);
        to[n] = sum;
      }
    }
    return out;
  }
};

TEST(RowProducts, EveryTableHasTheBitsOfTheReference) {
  Rng rng(21);
  for (const WeightFormat format : {WeightFormat::f32, WeightFormat::bf16}) {
    for (int round = 0; round < 150; ++round) {
      const RowCase one(rng, format);
      const std::vector<float> expected = one.expected();
      for (const Kernels* kernels : available_kernels())
        ASSERT_TRUE(same_bits(one.made_by(*kernels, 1 + random_below(rng, 4)), expected)) << kernels->name << ", round " << round;
    }
  }
}

TEST(RowProductsDeathTest, IntegerWeightsAbortTheProgram) {
  Rng rng(22);
  const MatrixCase matrix = random_matrix(rng, {.format = WeightFormat::q4}, 16, 32);
  for (const Kernels* kernels : available_kernels())
    EXPECT_DEATH(kernels->multiply_rows(matrix.packed, {}, 0, 1), "the weights are f32 or bf16");
}

}  // namespace
}  // namespace quire
