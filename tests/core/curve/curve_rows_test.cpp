// Compares the rates for other cache sizes with sums done by hand, in seeded random cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "quire/lab/curve.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

// Sizes are 25, 50, 100 (the cache size), 200 and 400. 1000 tokens are queried within 10 s.
HitRateCurve some_curve() {
  return {.num_blocks = 100, .block_size = 16, .sizes = {25, 50, 100, 200, 400}, .seconds = 10.0};
}

CurveCounts some_counts() {
  return {.num_requests = 4.0,
          .query_tokens = 1000.0,
          .found_tokens = 300.0,
          .external_tokens = 500.0,
          .hit_tokens = {100.0, 150.0, 280.0, 400.0, 600.0}};
}

// Sizes are half octaves from an eighth to sixteen times the cache size, and the requested sizes.
TEST(CurveOptions, FollowTheGroupsAndUseSizesAroundTheCacheSize) {
  CoreConfig config;
  config.block_size = 4;
  config.scheduler.max_model_len = 100;
  config.kv.num_blocks = 65;
  const auto add_group = [&](std::uint32_t block_size) {
    FullAttentionSpec spec;
    spec.block_size = block_size;
    config.kv.groups.push_back({.layer_names = {"layer"}, .spec = spec, .layer_specs = {}});
  };
  add_group(4);
  CurveOptions options = CurveOptions::of(config);
  EXPECT_EQ(options.num_blocks, 64U) << "the null block does not count";
  EXPECT_EQ(options.block_size, 4U);
  EXPECT_EQ(options.hash_block_size, 4U);
  EXPECT_EQ(options.pool_blocks_per_block, 1.0);
  EXPECT_EQ(options.max_tracked, 131072U);
  EXPECT_EQ(options.sizes, (std::vector<std::uint64_t>{8, 11, 16, 23, 32, 45, 64, 91, 128, 181, 256, 362, 512, 724, 1024}));
  add_group(8);
  add_group(100);  // one state per sequence
  add_group(10);   // not a multiple of the hash block size
  config.kv.num_blocks = 5;
  options = CurveOptions::of(config, 7, {3, 2000});
  EXPECT_EQ(options.block_size, 8U);
  EXPECT_EQ(options.hash_block_size, 4U);
  EXPECT_EQ(options.pool_blocks_per_block, 3.0) << "two blocks of the first group and one of the second";
  EXPECT_EQ(options.max_tracked, 7U);
  EXPECT_EQ(options.sizes, (std::vector<std::uint64_t>{1, 2, 3, 4, 6, 8, 11, 16, 23, 32, 45, 64, 2000}));
}

TEST(CurveRows, ShowTheMeasuredRateAtTheCacheSizeAndDifferencesElsewhere) {
  const std::vector<CurveRow> rows = curve_rows(some_curve(), some_counts(), {.block_bytes = 7, .prefill_tokens_per_s = 50.0});
  ASSERT_EQ(rows.size(), 5U);
  const std::vector<double> rates = {0.12, 0.17, 0.3, 0.42, 0.62};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].num_blocks, some_curve().sizes[i]);
    EXPECT_EQ(rows[i].num_bytes, some_curve().sizes[i] * 7);
    EXPECT_EQ(rows[i].label, i == 2 ? "now" : "");
    EXPECT_DOUBLE_EQ(rows[i].hit_rate, rates[i]);
    EXPECT_DOUBLE_EQ(rows[i].saved_tokens_per_s, (rates[i] - 0.3) * 100.0) << "a share of 100 tokens per second";
    ASSERT_TRUE(rows[i].saved_s_per_s.has_value());
    EXPECT_DOUBLE_EQ(rows[i].saved_s_per_s.value_or(-1.0), (rates[i] - 0.3) * 2.0);
  }
  EXPECT_LT(rows[0].saved_tokens_per_s, 0.0) << "a smaller cache saves less";
}

TEST(CurveRows, CountTierHitsAsTheMinimumAtTheTierSizeAndAbove) {
  const CurveCosts costs{.block_bytes = 1, .named = {{"now + dram", 200}}};
  const std::vector<CurveRow> rows = curve_rows(some_curve(), some_counts(), costs);
  const std::vector<double> rates = {0.12, 0.17, 0.3, 0.8, 0.8};
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_DOUBLE_EQ(rows[i].hit_rate, rates[i]) << i;
    EXPECT_FALSE(rows[i].saved_s_per_s.has_value()) << "the prefill speed is unknown";
  }
  EXPECT_EQ(rows[3].label, "now + dram");
  EXPECT_EQ(rows[4].label, "");
}

TEST(CurveRows, CountTheHitsOfAllTiersAtTheLastTier) {
  const CurveCosts costs{.block_bytes = 1, .named = {{"dram", 200}, {"disk", 400}}};
  const std::vector<CurveRow> rows = curve_rows(some_curve(), some_counts(), costs);
  EXPECT_DOUBLE_EQ(rows[3].hit_rate, 0.42) << "the tier of each hit is unknown";
  EXPECT_DOUBLE_EQ(rows[4].hit_rate, 0.8);
  EXPECT_EQ(rows[3].label, "dram");
  EXPECT_EQ(rows[4].label, "disk");
}

TEST(CurveRows, FindNoMoreTokensThanWereQueried) {
  CurveCounts counts = some_counts();
  counts.external_tokens = 5000.0;
  const std::vector<CurveRow> rows = curve_rows(some_curve(), counts, {.named = {{"dram", 50}}});
  EXPECT_DOUBLE_EQ(rows[0].hit_rate, 0.12);
  for (std::size_t i = 1; i < rows.size(); ++i) EXPECT_DOUBLE_EQ(rows[i].hit_rate, 1.0);
  EXPECT_DOUBLE_EQ(rows[4].saved_tokens_per_s, 0.0) << "all tokens are found at the cache size already";
}

TEST(CurveRows, CountTierHitsAsTheMinimumOfEachSizeAboveTheTier) {
  const std::vector<CurveRow> rows = curve_rows(some_curve(), some_counts(), {.named = {{"dram", 1}}});
  ASSERT_EQ(rows.size(), 5U);
  for (const CurveRow& row : rows) EXPECT_DOUBLE_EQ(row.hit_rate, 0.8);
}

// Counts are halved repeatedly.
TEST(CurveRows, CountFractionsOfAToken) {
  CurveCounts counts = some_counts();
  for (double* count : {&counts.query_tokens, &counts.found_tokens, &counts.external_tokens}) *count /= 1024.0;
  for (double& tokens : counts.hit_tokens) tokens /= 1024.0;
  const std::vector<CurveRow> rows = curve_rows(some_curve(), counts, {.named = {{"dram", 200}}});
  const std::vector<double> rates = {0.12, 0.17, 0.3, 0.8, 0.8};
  for (std::size_t i = 0; i < rows.size(); ++i) EXPECT_DOUBLE_EQ(rows[i].hit_rate, rates[i]) << i;
}

TEST(CurveRows, LabelANamedSizeThatIsTheCacheSizeWithBoth) {
  const std::vector<CurveRow> rows = curve_rows(some_curve(), some_counts(), {.named = {{"a", 100}, {"b", 100}, {"c", 60}}});
  EXPECT_EQ(rows[2].label, "now, a, b");
  EXPECT_EQ(rows[1].label, "");
}

TEST(CurveRows, FindAndSaveNothingWithoutTraffic) {
  HitRateCurve curve = some_curve();
  CurveCounts none{.hit_tokens = std::vector<double>(5, 0.0)};
  const CurveCosts costs{.block_bytes = 3, .prefill_tokens_per_s = 10.0, .named = {{"dram", 200}}};
  for (const CurveRow& row : curve_rows(curve, none, costs)) {
    EXPECT_EQ(row.hit_rate, 0.0);
    EXPECT_EQ(row.saved_tokens_per_s, 0.0);
    EXPECT_EQ(row.saved_s_per_s, 0.0);
  }
  none.external_tokens = 5.0;
  for (const CurveRow& row : curve_rows(curve, none, costs)) EXPECT_EQ(row.hit_rate, 0.0) << "without queries the rate is 0";
  // A tenant without hit counts has no estimate.
  EXPECT_EQ(hit_rates(curve, CurveCounts{.query_tokens = 100.0}), std::vector<double>(5, 0.0));
  curve.seconds = 0.0;
  for (const CurveRow& row : curve_rows(curve, some_counts(), costs)) {
    EXPECT_GT(row.hit_rate, 0.0);
    EXPECT_EQ(row.saved_tokens_per_s, 0.0) << "no time has passed yet";
  }
}

// Applies the definition to each size separately. Only a falling rate depends on the previous size.
TEST(CurveRows, MatchTheDefinitionInRandomCases) {
  for (std::uint64_t seed = 1; seed <= rounds_of(200); ++seed) {
    Random random(seed);
    HitRateCurve curve;
    for (std::uint64_t i = random.between(1, 9), size = 0; i > 0; --i) curve.sizes.push_back(size += random.between(1, 50));
    const std::size_t own = random.below(curve.sizes.size());
    curve.num_blocks = static_cast<std::uint32_t>(curve.sizes[own]);
    curve.seconds = static_cast<double>(random.between(1, 100));
    CurveCounts counts{.query_tokens = static_cast<double>(random.between(100, 1000))};
    double sum = 0.0;
    for (std::size_t i = 0; i < curve.sizes.size(); ++i) {
      sum += static_cast<double>(random.below(60));
      counts.hit_tokens.push_back(sum);
    }
    counts.found_tokens = static_cast<double>(random.below(static_cast<std::uint64_t>(counts.query_tokens) + 1));
    counts.external_tokens = static_cast<double>(random.below(200));
    CurveCosts costs{.block_bytes = random.between(1, 9), .prefill_tokens_per_s = static_cast<double>(random.below(3))};
    const std::uint64_t tier = random.chance(0.5) ? curve.sizes[random.between(own, curve.sizes.size() - 1)] : 0;
    if (tier > 0) costs.named = {{"tier", tier}};
    const std::vector<CurveRow> rows = curve_rows(curve, counts, costs);
    ASSERT_EQ(rows.size(), curve.sizes.size());
    std::vector<double> rates;
    double before = 0.0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const double hits = counts.hit_tokens[i] - counts.hit_tokens[own] + counts.found_tokens;
      before = std::min(1.0, std::max(before, hits / counts.query_tokens));
      rates.push_back(before);
    }
    for (std::size_t i = 0; tier > 0 && i < rows.size(); ++i)
      if (curve.sizes[i] >= tier)
        rates[i] = std::max(rates[i], std::min(1.0, (counts.found_tokens + counts.external_tokens) / counts.query_tokens));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      ASSERT_NEAR(rows[i].hit_rate, rates[i], 1e-12) << seed;
      const double saved = (rates[i] - rates[own]) * counts.query_tokens / curve.seconds;
      ASSERT_NEAR(rows[i].saved_tokens_per_s, saved, 1e-9) << seed;
      ASSERT_EQ(rows[i].saved_s_per_s.has_value(), costs.prefill_tokens_per_s > 0.0);
      if (rows[i].saved_s_per_s) ASSERT_NEAR(*rows[i].saved_s_per_s, saved / costs.prefill_tokens_per_s, 1e-9);
      ASSERT_EQ(rows[i].num_bytes, curve.sizes[i] * costs.block_bytes);
      ASSERT_EQ(rows[i].label.find("now") == 0, i == own);
      ASSERT_EQ(rows[i].label.find("tier") != std::string::npos, curve.sizes[i] == tier);
    }
  }
}

}  // namespace
}  // namespace quire::test
