#include "runtime/sample/row_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace quire {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<float> random_row(std::size_t size, std::uint32_t seed, bool ties = false) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  std::vector<float> row(size);
  for (float& x : row) x = ties ? std::round(normal(random)) : normal(random);
  return row;
}

TEST(RowMath, ExpIsAccurateFromZeroDownToTheSmallestNormals) {
  for (float x = 0.0F; x > -87.0F; x -= 0.0137F) {
    const double exact = std::exp(static_cast<double>(x));
    EXPECT_NEAR(static_cast<double>(exp_nonpositive(x)) / exact, 1.0, 3e-7) << x;
  }
  EXPECT_EQ(exp_nonpositive(0.0F), 1.0F);
  EXPECT_EQ(exp_nonpositive(-kInf), 0.0F);
  EXPECT_EQ(exp_nonpositive(-1000.0F), 0.0F);
}

TEST(RowMath, MaxOfARowWithoutADistributionIsNaN) {
  for (const std::size_t size : {1U, 15U, 16U, 17U, 100U}) {
    for (std::size_t bad = 0; bad < size; ++bad) {
      std::vector<float> row = random_row(size, 1);
      EXPECT_EQ(row_max(row), *std::ranges::max_element(row));
      EXPECT_EQ(finite_row_max(row), row_max(row));
      row[bad] = std::numeric_limits<float>::quiet_NaN();
      EXPECT_TRUE(std::isnan(row_max(row))) << size << " " << bad;
      row[bad] = kInf;
      EXPECT_TRUE(std::isnan(row_max(row)));
      row[bad] = -kInf;
      EXPECT_EQ(std::isnan(row_max(row)), size == 1);
      EXPECT_TRUE(std::isnan(finite_row_max(row))) << size << " " << bad;
    }
  }
  EXPECT_TRUE(std::isnan(row_max(std::vector<float>(40, -kInf))));
}

TEST(RowMath, SumsMatchLongDoubleAndTheSumsOfTheirBlocks) {
  for (const std::size_t size : {1U, 511U, 512U, 513U, 49152U}) {
    const std::vector<float> row = random_row(size, static_cast<std::uint32_t>(size));
    const float max = row_max(row);
    long double exact = 0.0L;
    for (const float x : row) exact += std::exp((static_cast<long double>(x) - static_cast<long double>(max)) / 0.7L);
    std::vector<double> blocks(num_sum_blocks(size));
    const double sum = exp_sum(row, max, 1.0F / 0.7F, blocks);
    EXPECT_NEAR(sum / static_cast<double>(exact), 1.0, 2e-6);
    double total = 0.0;
    for (const double block : blocks) total += block;
    EXPECT_EQ(total, sum);
  }
}

TEST(RowMath, TopEntriesEqualASortedPrefix) {
  for (std::uint32_t round = 0; round < 60; ++round) {
    const std::size_t size = 1 + round * 37;
    std::vector<float> row = random_row(size, round, round % 2 == 0);
    row[round % size] = -kInf;
    std::vector<Scored> sorted;
    for (std::size_t i = 0; i < size; ++i)
      if (row[i] != -kInf) sorted.push_back({row[i], static_cast<TokenId>(i)});
    std::ranges::sort(sorted, [](const Scored& a, const Scored& b) { return a < b; });
    std::vector<Scored> best;
    for (const std::uint32_t count : {0U, 1U, 2U, 20U, 300U}) {
      top_entries(row, count, best);
      ASSERT_EQ(best.size(), std::min<std::size_t>(count, sorted.size()));
      for (std::size_t i = 0; i < best.size(); ++i) {
        EXPECT_EQ(best[i].token, sorted[i].token);
        EXPECT_EQ(best[i].score, sorted[i].score);
      }
    }
  }
}

TEST(RowMath, KthLargestIsTheSameByHeapAndBySelection) {
  std::vector<Scored> scratch;
  for (std::uint32_t round = 0; round < 20; ++round) {
    const std::vector<float> row = random_row(2000, round, round % 2 == 0);
    std::vector<float> sorted = row;
    std::ranges::sort(sorted, std::greater{});
    for (const std::uint32_t count : {1U, 2U, 255U, 256U, 257U, 1999U, 2000U})
      EXPECT_EQ(kth_largest(row, count, scratch), sorted[count - 1]);
  }
}

TEST(RowMath, KthLargestOfARowWithTooFewFiniteEntriesCutsNothing) {
  std::vector<float> row(1000, -kInf);
  row[3] = 1.0F;
  std::vector<Scored> scratch;
  EXPECT_EQ(kth_largest(row, 5, scratch), -kInf);
  EXPECT_EQ(kth_largest(row, 500, scratch), -kInf);
}

}  // namespace
}  // namespace quire
