// Forbidden tokens: by masks, allowed_token_ids and bad words.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "runtime/sample/sampler_bench.h"

namespace quire {
namespace {

using test::flat_with;
using test::greedy;
using test::kVocab;
using test::mask_of;
using test::random_row;
using test::SamplerBench;
using test::seeded_params;

TEST(SamplerMask, GreedyPicksTheBestAllowedToken) {
  SamplerBench bench;
  bench.admit(0, greedy(), {1}, 1);
  const std::vector<float> row = flat_with({{7, 9.0F}, {300, 5.0F}, {499, 7.0F}});
  EXPECT_EQ(bench.sample(0, row, mask_of({3, 300, 499})).token, 499);
  EXPECT_EQ(bench.sample(0, row, mask_of({3, 300})).token, 300);
  EXPECT_EQ(bench.sample(0, row, mask_of({40, 41})).token, 40);
}

TEST(SamplerMask, NeverDrawsForbiddenTokens) {
  std::mt19937 random(11);
  for (std::uint32_t i = 0; i < 300; ++i) {
    SamplingParams params = seeded_params(i);
    params.temperature = i % 3 == 0 ? 0.0F : 1.5F;
    params.top_k = i % 4 == 1 ? 20 : 0;
    params.top_p = i % 5 == 2 ? 0.8F : 1.0F;
    params.min_p = i % 7 == 3 ? 0.05F : 0.0F;
    params.logprobs = 5;
    params.logit_bias = {{static_cast<TokenId>(random() % kVocab), 50.0F}};
    params.repetition_penalty = i % 2 == 0 ? 1.3F : 1.0F;
    std::vector<std::uint32_t> mask((kVocab + 31) / 32);
    const std::uint32_t share = 1 + i % 40;
    for (std::uint32_t token = 0; token < kVocab; ++token)
      if (random() % share == 0) mask[token / 32] |= 1U << token % 32;
    mask[0] |= 1;
    SamplerBench bench;
    bench.admit(0, params, {1, 2, 3}, 3);
    const SampleOutcome outcome = bench.sample(0, random_row(i), mask);
    ASSERT_EQ(outcome.status, SampleOutcome::Status::ok);
    for (const auto& entry : outcome.logprobs.entries) {
      const auto token = static_cast<std::uint32_t>(entry.token);
      EXPECT_TRUE(mask[token / 32] >> token % 32 & 1U) << token;
    }
    EXPECT_EQ(outcome.logprobs.entries[0].token, outcome.token);
  }
}

TEST(SamplerMask, AMaskThatAllowsEverythingChangesNoBit) {
  const std::vector<std::uint32_t> all((kVocab + 31) / 32, 0xFFFFFFFFU);
  for (std::uint32_t i = 0; i < 100; ++i) {
    SamplingParams params = seeded_params(i);
    params.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    params.top_p = i % 2 == 0 ? 0.9F : 1.0F;
    params.logprobs = 3;
    params.presence_penalty = i % 4 == 0 ? 0.5F : 0.0F;
    SamplerBench plain, masked;
    plain.admit(0, params, {1, 2}, 2);
    masked.admit(0, params, {1, 2}, 2);
    const SampleOutcome expected = plain.sample(0, random_row(i)), given = masked.sample(0, random_row(i), all);
    ASSERT_EQ(given.token, expected.token);
    ASSERT_EQ(given.logprobs.entries.size(), expected.logprobs.entries.size());
    for (std::size_t entry = 0; entry < expected.logprobs.entries.size(); ++entry) {
      EXPECT_EQ(given.logprobs.entries[entry].token, expected.logprobs.entries[entry].token);
      EXPECT_EQ(given.logprobs.entries[entry].logprob, expected.logprobs.entries[entry].logprob);
    }
  }
}

// The mask applies to the logits first, as in vLLM: the allowed tokens have the whole probability.
TEST(SamplerMask, LogprobsAreOverTheAllowedTokens) {
  SamplingParams params = greedy();
  params.logprobs = 4;
  SamplerBench bench;
  bench.admit(0, params, {1}, 1);
  const SampleOutcome outcome = bench.sample(0, flat_with({{7, 9.0F}}), mask_of({20, 30}));
  ASSERT_EQ(outcome.logprobs.entries.size(), 3U) << "the sampled token and the two allowed tokens";
  EXPECT_NEAR(outcome.logprobs.entries[0].logprob, std::log(0.5F), 1e-6F);
  EXPECT_EQ(outcome.logprobs.entries[2].token, 30);
}

TEST(SamplerMask, AMaskThatAllowsNothingFailsOnlyItsRow) {
  SamplerBench bench;
  std::vector<float> broken = random_row(1);
  broken[9] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> row = random_row(2);
  const std::vector<std::uint32_t> none = mask_of({}), some = mask_of({5});
  for (std::uint32_t slot = 0; slot < 3; ++slot) bench.admit(slot, greedy(), {1}, 1);
  const std::vector<SampleRow> rows{{Slot{0}, row, none}, {Slot{1}, row, some}, {Slot{2}, broken, some}};
  const std::vector<SampleOutcome> outcomes = bench.sample_all(rows);
  EXPECT_EQ(outcomes[0].status, SampleOutcome::Status::all_masked);
  EXPECT_EQ(outcomes[1].token, 5);
  EXPECT_EQ(outcomes[2].status, SampleOutcome::Status::not_finite) << "NaN fails the row even if its token is forbidden";
  EXPECT_DEATH(bench.sample(1, row, {1, 2}), "one bit per token");
}

TEST(Sampler, DrawsOnlyAllowedTokenIds) {
  SamplerBench bench;
  SamplingParams params;
  params.allowed_token_ids = {3, 7, 499};
  params.logprobs = 2;
  params.max_tokens = 1000;
  bench.admit(0, params, {1}, 1);
  std::map<TokenId, int> seen;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const SampleOutcome outcome = bench.sample(0, random_row(i));
    ++seen[outcome.token];
    EXPECT_GT(outcome.logprobs.entries[1].logprob, outcome.logprobs.entries[0].logprob - 20.0F)
        << "log probabilities ignore allowed_token_ids";
  }
  EXPECT_EQ(seen.size(), 3U);
  for (const TokenId token : params.allowed_token_ids) EXPECT_GT(seen[token], 10);
}

// With greedy sampling the likeliest token, 5, would repeat forever.
TEST(Sampler, BadWordsAreNotCompleted) {
  std::vector<float> row(kVocab, 0.0F);
  row[5] = 3.0F;
  row[6] = 2.0F;
  row[9] = 1.0F;
  const auto outputs = [&](std::vector<std::vector<TokenId>> words, const std::vector<TokenId>& tokens, std::uint32_t num_prompt) {
    SamplerBench bench;
    SamplingParams params;
    params.temperature = 0.0F;
    params.bad_words = std::move(words);
    params.max_tokens = 1000;
    bench.admit(0, params, tokens, num_prompt);
    std::vector<TokenId> drawn;
    for (int i = 0; i < 8; ++i) drawn.push_back(bench.sample(0, row).token);
    return drawn;
  };
  EXPECT_EQ(outputs({{5}}, {1}, 1), (std::vector<TokenId>{6, 6, 6, 6, 6, 6, 6, 6}));
  EXPECT_EQ(outputs({{5, 5}}, {5}, 1), (std::vector<TokenId>{5, 6, 5, 6, 5, 6, 5, 6})) << "only output tokens count, not the prompt";
  EXPECT_EQ(outputs({{5, 5, 5}}, {1}, 1), (std::vector<TokenId>{5, 5, 6, 5, 5, 6, 5, 5}));
  EXPECT_EQ(outputs({{5, 5, 5}}, {1, 5, 5}, 1), (std::vector<TokenId>{6, 5, 5, 6, 5, 5, 6, 5})) << "outputs from before a preemption count";
  EXPECT_EQ(outputs({{5}, {6, 6}}, {1}, 1), (std::vector<TokenId>{6, 9, 6, 9, 6, 9, 6, 9}));
}

}  // namespace
}  // namespace quire
