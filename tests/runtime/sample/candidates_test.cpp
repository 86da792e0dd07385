#include "runtime/sample/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "runtime/sample/philox.h"
#include "support/rounds.h"

namespace quire {
namespace {

constexpr double kTolerance = 1e-5;

// Computes the filtered distribution by sorting everything, in double.
std::map<TokenId, double> naive_distribution(const std::vector<float>& row, const DrawParams& params) {
  std::vector<std::pair<double, TokenId>> entries;
  for (std::size_t i = 0; i < row.size(); ++i)
    if (std::isfinite(row[i]))
      entries.emplace_back(-static_cast<double>(row[i]) / static_cast<double>(params.temperature), static_cast<TokenId>(i));
  std::ranges::sort(entries);
  const double best = entries.front().first;
  const auto weight = [&](std::size_t i) { return std::exp(best - entries[i].first); };
  std::size_t kept = entries.size();
  while (params.min_p > 0.0F && weight(kept - 1) < static_cast<double>(params.min_p)) --kept;
  if (params.top_k > 0 && static_cast<std::size_t>(params.top_k) < kept) {
    const double last = entries[static_cast<std::size_t>(params.top_k) - 1].first;
    while (entries[kept - 1].first > last) --kept;
  }
  double total = 0.0;
  for (std::size_t i = 0; i < kept; ++i) total += weight(i);
  double mass = 0.0;
  for (std::size_t i = 0; i < kept && params.top_p < 1.0F; ++i) {
    mass += weight(i);
    if (mass >= total * static_cast<double>(params.top_p)) {
      kept = i + 1;
      total = mass;
    }
  }
  std::map<TokenId, double> distribution;
  for (std::size_t i = 0; i < kept; ++i) distribution[entries[i].second] = weight(i) / total;
  return distribution;
}

std::vector<float> random_row(std::size_t size, std::uint32_t seed, float spread) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> row(size);
  std::ranges::generate(row, [&] { return normal(random); });
  return row;
}

// Returns Pearson's statistic of `draws` draws against the expected distribution, in standard deviations above its mean. Small cells are
// pooled.
double chi_square_excess(const std::vector<float>& row, const DrawParams& params, std::uint64_t seed, std::uint32_t draws) {
  const std::map<TokenId, double> expected = naive_distribution(row, params);
  std::map<TokenId, std::uint32_t> seen;
  DrawScratch scratch;
  const float max = row_max(row);
  for (std::uint32_t i = 0; i < draws; ++i) ++seen[draw_token(row, max, params, random_uniform(seed, i), scratch)];
  for (const auto& [token, count] : seen)
    EXPECT_TRUE(expected.contains(token)) << "token " << token << " was drawn " << count << " times but is filtered out";
  double statistic = 0.0, cells = 0.0, rest_expected = 0.0, rest_seen = 0.0;
  for (const auto& [token, probability] : expected) {
    const double mean = probability * draws;
    const double count = seen.contains(token) ? seen[token] : 0.0;
    if (mean < 8.0) {
      rest_expected += mean;
      rest_seen += count;
      continue;
    }
    statistic += (count - mean) * (count - mean) / mean;
    cells += 1.0;
  }
  if (rest_expected > 8.0) {
    statistic += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected;
    cells += 1.0;
  }
  return cells > 1.0 ? (statistic - (cells - 1.0)) / std::sqrt(2.0 * (cells - 1.0)) : 0.0;
}

TEST(Philox, GivesTheKnownAnswersOfItsAuthors) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (std::array<std::uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (std::array<std::uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Philox, UniformsFillTheUnitInterval) {
  double sum = 0.0;
  for (std::uint64_t i = 0; i < 100000; ++i) {
    const double u = random_uniform(42, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 100000.0, 0.5, 0.005);
}

TEST(SelectMass, FindsTheShortestPrefixOfTheSortedOrder) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<Scored> entries(1 + random() % 400);
    for (std::size_t i = 0; i < entries.size(); ++i)
      entries[i] = {static_cast<float>(1 + random() % 50), static_cast<TokenId>(i)};  // integers: sums are exact, and many are equal
    std::vector<Scored> sorted = entries;
    std::ranges::sort(sorted, [](const Scored& a, const Scored& b) { return a < b; });
    double total = 0.0;
    for (const Scored& entry : entries) total += static_cast<double>(entry.score);
    const double target = total * static_cast<double>(random() % 1001) / 1000.0;
    std::size_t expected = 0;
    for (double mass = 0.0; expected == 0 || mass < target; ++expected) mass += static_cast<double>(sorted[expected].score);
    const std::size_t kept = select_mass(entries, target);
    ASSERT_EQ(kept, expected);
    std::sort(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(kept));
    for (std::size_t i = 0; i < kept; ++i) ASSERT_EQ(entries[i].token, sorted[i].token);
  }
}

TEST(DrawToken, FollowsTheFilteredDistribution) {
  const DrawParams cases[] = {
      {1.0F, 0.0F, 0, 1.0F},  {0.5F, 0.0F, 0, 1.0F},  {2.0F, 0.0F, 0, 1.0F}, {1.0F, 0.0F, 5, 1.0F},    {1.0F, 0.0F, 300, 1.0F},
      {1.0F, 0.0F, 0, 0.9F},  {1.0F, 0.0F, 0, 0.05F}, {1.0F, 0.1F, 0, 1.0F}, {0.8F, 0.02F, 40, 0.95F}, {1.5F, 0.0F, 0, 0.999F},
      {1.0F, 0.0F, 50, 0.5F}, {1.0F, 1.0F, 0, 1.0F},  {1.0F, 0.0F, 1, 1.0F}, {1.0F, 0.05F, 700, 0.7F}, {1e-5F, 0.0F, 0, 0.9F},
  };
  std::uint64_t seed = 1;
  for (const DrawParams& params : cases) {
    for (const auto& [size, spread] : {std::pair{1000U, 3.0F}, std::pair{60U, 1.0F}, std::pair{1200U, 0.2F}}) {
      const std::vector<float> row = random_row(size, static_cast<std::uint32_t>(seed), spread);
      EXPECT_LT(chi_square_excess(row, params, seed, static_cast<std::uint32_t>(rounds_of(20000))), 4.0)
          << "T " << params.temperature << " min_p " << params.min_p << " k " << params.top_k << " p " << params.top_p << " n " << size;
      ++seed;
    }
  }
}

TEST(DrawToken, KeepsExactlyTheNaiveSet) {
  DrawScratch scratch;
  std::mt19937 random(9);
  for (int round = 0; round < static_cast<int>(rounds_of(300)); ++round) {
    const std::vector<float> row = random_row(1 + random() % 700, random(), 0.5F + static_cast<float>(random() % 8));
    const DrawParams params{0.3F + static_cast<float>(random() % 15) / 10.0F, round % 3 == 0 ? 0.01F : 0.0F,
                            round % 2 == 0 ? static_cast<std::int32_t>(random() % 400) : 0, round % 5 == 0 ? 1.0F : 0.8F};
    const std::map<TokenId, double> expected = naive_distribution(row, params);
    const float max = row_max(row);
    // A grid over the interval finds every entry with weight, and each point selects an entry of the set.
    std::map<TokenId, double> seen;
    constexpr int kPoints = 2000;
    for (int i = 0; i < kPoints; ++i) seen[draw_token(row, max, params, (i + 0.5) / kPoints, scratch)] += 1.0 / kPoints;
    for (const auto& [token, share] : seen) {
      ASSERT_TRUE(expected.contains(token)) << round;
      ASSERT_NEAR(share, expected.at(token), 1.0 / kPoints + kTolerance);
    }
    for (const auto& [token, probability] : expected) ASSERT_TRUE(probability < 1.0 / kPoints + kTolerance || seen.contains(token));
  }
}

TEST(DrawToken, MaskedEntriesAreNeverDrawn) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<float> row(2000, -kInf);
  row[700] = 0.0F;
  row[1999] = 0.0F;
  DrawScratch scratch;
  for (const DrawParams& params :
       {DrawParams{}, DrawParams{1.0F, 0.0F, 5, 1.0F}, DrawParams{1.0F, 0.0F, 0, 0.9F}, DrawParams{1.0F, 0.5F, 0, 1.0F}}) {
    for (const double u : {0.0, 0.25, 0.499999, 0.5, 0.75, std::nextafter(1.0, 0.0)})
      EXPECT_EQ(draw_token(row, 0.0F, params, u, scratch), u < 0.5 ? 700 : 1999) << u;
  }
}

TEST(DrawToken, TiesWithTheKthStay) {
  const std::vector<float> row{1.0F, 3.0F, 2.0F, 2.0F, 2.0F, 0.0F};
  EXPECT_LT(chi_square_excess(row, {1.0F, 0.0F, 2, 1.0F}, 3, 20000), 4.0);
}

}  // namespace
}  // namespace quire
