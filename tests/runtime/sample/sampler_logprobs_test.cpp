// Log probabilities and ranks of sampled tokens and of known tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/thread_pool.h"
#include "runtime/sample/sampler_bench.h"

namespace quire {
namespace {

using test::greedy;
using test::kVocab;
using test::random_row;
using test::SamplerBench;

TEST(Sampler, LogprobsAreOfTheRawDistribution) {
  SamplingParams params = greedy();
  params.logprobs = 3;
  params.logit_bias = {{40, 100.0F}};
  const std::vector<float> row = random_row(4);
  long double sum = 0.0L;
  for (const float x : row) sum += std::exp(static_cast<long double>(x));
  SamplerBench bench;
  bench.admit(0, params, {1}, 1);
  const SampleOutcome outcome = bench.sample(0, row);
  EXPECT_EQ(outcome.token, 40);
  ASSERT_EQ(outcome.logprobs.entries.size(), 4U);
  std::vector<float> sorted = row;
  std::ranges::sort(sorted, std::greater{});
  EXPECT_EQ(outcome.logprobs.entries[0].token, 40);
  EXPECT_EQ(outcome.logprobs.entries[0].rank, 1 + std::ranges::find(sorted, row[40]) - sorted.begin());
  for (std::uint32_t i = 0; i < 4; ++i) {
    const TokenLogprob& entry = outcome.logprobs.entries[i];
    const float logit = row[static_cast<std::size_t>(entry.token)];
    EXPECT_NEAR(entry.logprob, static_cast<double>(logit - std::log(sum)), 1e-5);
    if (i > 0) {
      EXPECT_EQ(logit, sorted[i - 1]);
      EXPECT_EQ(entry.rank, i);
    }
  }
}

TEST(Sampler, ZeroLogprobsGiveTheSampledTokenOnly) {
  SamplingParams params = greedy();
  params.logprobs = 0;
  SamplerBench bench;
  bench.admit(0, params, {1}, 1);
  EXPECT_EQ(bench.sample(0, random_row(1)).logprobs.entries.size(), 1U);
}

// A known token must get the log probabilities that sampling it would give, in a batch as alone.
TEST(Sampler, ScoresKnownTokens) {
  ThreadPool pool(2);
  SamplerBench alone, threads({}, &pool);
  SamplingParams params = greedy();
  params.logprobs = 5;
  std::vector<std::vector<float>> logits;
  std::vector<PromptLogprobRow> rows;
  std::vector<PositionLogprobs> wanted;
  for (std::uint32_t i = 0; i < 12; ++i) logits.push_back(random_row(i));
  for (std::uint32_t i = 0; i < 12; ++i) {
    alone.admit(i, params, {1, 2}, 2);
    const SampleOutcome drawn = alone.sample(i, logits[i]);
    wanted.push_back(drawn.logprobs);
    rows.push_back({logits[i], drawn.token, 5});
  }
  std::vector<PositionLogprobs> scored(12), in_threads(12);
  alone.sampler().score(rows, scored);
  threads.sampler().score(rows, in_threads);
  for (std::uint32_t i = 0; i < 12; ++i) {
    ASSERT_EQ(scored[i].entries.size(), 6U);
    for (std::uint32_t k = 0; k < 6; ++k) {
      for (const TokenLogprob& got : {scored[i].entries[k], in_threads[i].entries[k]}) {
        EXPECT_EQ(got.token, wanted[i].entries[k].token);
        EXPECT_EQ(got.logprob, wanted[i].entries[k].logprob);
        EXPECT_EQ(got.rank, wanted[i].entries[k].rank);
      }
    }
  }
}

TEST(Sampler, ScoresNothingWhenARowIsNotFinite) {
  SamplerBench bench;
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> row = random_row(1);
    row[300] = bad;
    const PromptLogprobRow followed{row, 7, 3};
    PositionLogprobs scored{{{1, -1.0F, 1}}};
    bench.sampler().score({&followed, 1}, {&scored, 1});
    EXPECT_TRUE(scored.entries.empty()) << bad;
  }
}

TEST(Sampler, TheUnlikeliestTokenHasTheLastRank) {
  SamplerBench bench;
  std::vector<float> row = random_row(2);
  row[300] = -50.0F;
  const PromptLogprobRow followed{row, 300, 0};
  PositionLogprobs scored;
  bench.sampler().score({&followed, 1}, {&scored, 1});
  ASSERT_EQ(scored.entries.size(), 1U);
  EXPECT_EQ(scored.entries[0].rank, kVocab);
}

// Log probabilities follow openai-whisper: of the tokens that all rules allow, and before the temperature.
TEST(Sampler, LogprobsFollowTheTimestampRules) {
  SamplingParams params = greedy();
  params.logprobs = 0;
  params.timestamps = {.first_time = 400, .end = 7, .has_timestamps = false, .not_first = {9}, .begins = {{8}}};
  SamplerBench bench;
  bench.admit(0, params, {1}, 1);
  std::vector<float> row(kVocab, -100.0F);
  row[8] = row[9] = row[10] = row[11] = 0.0F;
  const SampleOutcome before = bench.sample(0, row);  // tokens before the text: the model's distribution
  EXPECT_EQ(before.token, 8);
  EXPECT_NEAR(before.logprobs.entries.at(0).logprob, std::log(0.25F), 1e-6F);
  const SampleOutcome first = bench.sample(0, row);
  EXPECT_EQ(first.token, 8);
  EXPECT_NEAR(first.logprobs.entries.at(0).logprob, std::log(1.0F / 3.0F), 1e-6F) << "9 is forbidden as the first token";
  EXPECT_NEAR(bench.sample(0, row).logprobs.entries.at(0).logprob, std::log(0.25F), 1e-6F);
}

}  // namespace
}  // namespace quire
