// Tests rates and gaps of arrivals.
#include "traffic/arrivals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

// Returns the squared deviation of the gaps divided by their squared mean: 1 for a Poisson process, 1 / burstiness in general.
double gap_variation(const std::vector<double>& times) {
  std::vector<double> gaps;
  for (std::size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  double mean = 0.0, squares = 0.0;
  for (const double gap : gaps) mean += gap / static_cast<double>(gaps.size());
  for (const double gap : gaps) squares += (gap - mean) * (gap - mean) / static_cast<double>(gaps.size());
  return squares / (mean * mean);
}

TEST(ArrivalTimes, AreZeroAtAnInfiniteRate) {
  EXPECT_EQ(arrival_times(3, {.rate_per_s = INFINITY}), (std::vector<double>{0.0, 0.0, 0.0}));
  EXPECT_TRUE(arrival_times(0, {.rate_per_s = 2.0}).empty());
}

TEST(ArrivalTimes, EndAtCountDividedByRate) {
  for (const double burstiness : {0.2, 1.0, 5.0, static_cast<double>(INFINITY)}) {
    const auto times = arrival_times(500, {.rate_per_s = 8.0, .burstiness = burstiness, .seed = 3});
    ASSERT_EQ(times.size(), 500U);
    EXPECT_TRUE(std::ranges::is_sorted(times));
    EXPECT_GT(times.front(), 0.0);
    EXPECT_NEAR(times.back(), 500 / 8.0, 1e-6);
  }
}

TEST(ArrivalTimes, VaryAsTheBurstinessSays) {
  EXPECT_NEAR(gap_variation(arrival_times(100'000, {.rate_per_s = 1.0, .burstiness = 1.0, .seed = 1})), 1.0, 0.05);
  EXPECT_NEAR(gap_variation(arrival_times(100'000, {.rate_per_s = 1.0, .burstiness = 0.25, .seed = 1})), 4.0, 0.3);
  EXPECT_NEAR(gap_variation(arrival_times(100'000, {.rate_per_s = 1.0, .burstiness = 10.0, .seed = 1})), 0.1, 0.01);
  EXPECT_NEAR(gap_variation(arrival_times(100, {.rate_per_s = 1.0, .burstiness = INFINITY})), 0.0, 1e-9);
}

TEST(ArrivalTimes, DependOnTheSeedOnly) {
  const auto times = arrival_times(50, {.rate_per_s = 2.0, .seed = 7});
  EXPECT_EQ(times, arrival_times(50, {.rate_per_s = 2.0, .seed = 7}));
  EXPECT_NE(times, arrival_times(50, {.rate_per_s = 2.0, .seed = 8}));
}

}  // namespace
}  // namespace quire
