#include "runtime/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "base/thread_pool.h"
#include "runtime/sample/row_math.h"

namespace quire {
namespace {

constexpr std::uint32_t kVocab = 500;

std::vector<float> random_row(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  std::vector<float> row(kVocab);
  std::ranges::generate(row, [&] { return normal(random); });
  return row;
}

class Bench {
 public:
  explicit Bench(std::vector<TokenId> eos = {}, ThreadPool* pool = nullptr) : sampler_(kVocab, 16, std::move(eos), pool) {}

  void admit(std::uint32_t slot, const SamplingParams& params, const std::vector<TokenId>& tokens, std::uint32_t num_prompt) {
    sampler_.admit({RequestId{slot + 100}, Slot{slot}, tokens, num_prompt, &params});
  }
  SampleOutcome sample(std::uint32_t slot, const std::vector<float>& logits) {
    const SampleRow row{Slot{slot}, logits};
    return sample_all({row}).at(0);
  }
  SampleOutcome sample(std::uint32_t slot, const std::vector<float>& logits, const std::vector<std::uint32_t>& allowed) {
    const SampleRow row{Slot{slot}, logits, allowed};
    return sample_all({row}).at(0);
  }
  std::vector<SampleOutcome> sample_all(const std::vector<SampleRow>& rows) {
    std::vector<SampleOutcome> outcomes;
    sampler_.sample(rows, outcomes, counts_);
    return outcomes;
  }
  [[nodiscard]] const std::vector<std::uint32_t>& counts() const { return counts_; }
  Sampler& sampler() { return sampler_; }

 private:
  Sampler sampler_;
  std::vector<std::uint32_t> counts_;
};

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0.0F;
  return params;
}

SamplingParams seeded_params(std::uint64_t seed) {
  SamplingParams params;
  params.seed = seed;
  return params;
}

std::vector<float> flat_with(std::initializer_list<std::pair<TokenId, float>> peaks) {
  std::vector<float> row(kVocab, 0.0F);
  for (const auto& [token, logit] : peaks) row[static_cast<std::size_t>(token)] = logit;
  return row;
}

// With garbage in the bits behind the vocabulary.
std::vector<std::uint32_t> mask_of(std::initializer_list<TokenId> allowed) {
  std::vector<std::uint32_t> mask((kVocab + 31) / 32);
  for (const TokenId token : allowed) mask[static_cast<std::size_t>(token) / 32] |= 1U << static_cast<std::uint32_t>(token) % 32;
  mask.back() |= 0xFFFFFFFFU << kVocab % 32;
  return mask;
}

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  Bench bench;
  bench.admit(0, greedy(), {1}, 1);
  EXPECT_EQ(bench.sample(0, flat_with({{7, 5.0F}, {300, 5.0F}})).token, 7);
}

TEST(SamplerMask, GreedyTakesTheBestThatIsAllowed) {
  Bench bench;
  bench.admit(0, greedy(), {1}, 1);
  const std::vector<float> row = flat_with({{7, 9.0F}, {300, 5.0F}, {499, 7.0F}});
  EXPECT_EQ(bench.sample(0, row, mask_of({3, 300, 499})).token, 499);
  EXPECT_EQ(bench.sample(0, row, mask_of({3, 300})).token, 300);
  EXPECT_EQ(bench.sample(0, row, mask_of({40, 41})).token, 40);
}

TEST(SamplerMask, WhatIsForbiddenIsNeverDrawn) {
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
    Bench bench;
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

TEST(SamplerMask, OneThatAllowsEverythingChangesNoBit) {
  const std::vector<std::uint32_t> all((kVocab + 31) / 32, 0xFFFFFFFFU);
  for (std::uint32_t i = 0; i < 100; ++i) {
    SamplingParams params = seeded_params(i);
    params.temperature = i % 3 == 0 ? 0.0F : 0.9F;
    params.top_p = i % 2 == 0 ? 0.9F : 1.0F;
    params.logprobs = 3;
    params.presence_penalty = i % 4 == 0 ? 0.5F : 0.0F;
    Bench plain, masked;
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

// As in vLLM, which masks the logits before it looks at them: what is allowed has the whole probability.
TEST(SamplerMask, LogprobsAreOfWhatIsAllowed) {
  SamplingParams params = greedy();
  params.logprobs = 4;
  Bench bench;
  bench.admit(0, params, {1}, 1);
  const SampleOutcome outcome = bench.sample(0, flat_with({{7, 9.0F}}), mask_of({20, 30}));
  ASSERT_EQ(outcome.logprobs.entries.size(), 3U) << "the token, and the two that there are";
  EXPECT_NEAR(outcome.logprobs.entries[0].logprob, std::log(0.5F), 1e-6F);
  EXPECT_EQ(outcome.logprobs.entries[2].token, 30);
}

TEST(SamplerMask, OneThatAllowsNothingFailsItsRowAndNoOther) {
  Bench bench;
  std::vector<float> broken = random_row(1);
  broken[9] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> row = random_row(2);
  const std::vector<std::uint32_t> none = mask_of({}), some = mask_of({5});
  for (std::uint32_t slot = 0; slot < 3; ++slot) bench.admit(slot, greedy(), {1}, 1);
  const std::vector<SampleRow> rows{{Slot{0}, row, none}, {Slot{1}, row, some}, {Slot{2}, broken, some}};
  const std::vector<SampleOutcome> outcomes = bench.sample_all(rows);
  EXPECT_EQ(outcomes[0].status, SampleOutcome::Status::all_masked);
  EXPECT_EQ(outcomes[1].token, 5);
  EXPECT_EQ(outcomes[2].status, SampleOutcome::Status::not_finite) << "also where the broken number is forbidden";
  EXPECT_DEATH(bench.sample(1, row, {1, 2}), "a bit per token");
}

TEST(Sampler, BiasMovesTheChoice) {
  SamplingParams params = greedy();
  params.logit_bias = {{9, 6.0F}, {7, -100.0F}};
  Bench bench;
  bench.admit(0, params, {1}, 1);
  EXPECT_EQ(bench.sample(0, flat_with({{7, 50.0F}, {8, 5.0F}})).token, 9);
}

TEST(Sampler, EosAndStopIdsAreMaskedUntilMinTokens) {
  SamplingParams params = greedy();
  params.min_tokens = 2;
  params.stop_token_ids = {8};
  const std::vector<float> row = flat_with({{7, 9.0F}, {8, 8.0F}, {9, 7.0F}});
  Bench bench({7});
  bench.admit(0, params, {1}, 1);
  EXPECT_EQ(bench.sample(0, row).token, 9);
  EXPECT_EQ(bench.sample(0, row).token, 9);
  EXPECT_EQ(bench.sample(0, row).token, 7);
  // A resumed request has its outputs counted.
  bench.admit(1, params, {1, 5, 5}, 1);
  EXPECT_EQ(bench.sample(1, row).token, 7);
}

TEST(Sampler, PenaltiesFollowTheirFormulas) {
  SamplingParams params = greedy();
  params.repetition_penalty = 2.0F;
  params.frequency_penalty = 0.5F;
  params.presence_penalty = 0.25F;
  Bench bench;
  // 3 is in the prompt, 4 twice in the output: 10/2 = 5; 10/2 - 2*0.5 - 0.25 = 3.75; negative logits are multiplied.
  const std::vector<TokenId> tokens{3, 3, 4, 4};
  const auto winner = [&](std::uint32_t slot, std::vector<float> row) {
    bench.admit(slot, params, tokens, 2);
    return bench.sample(slot, row).token;
  };
  EXPECT_EQ(winner(0, flat_with({{3, 10.0F}, {9, 4.9F}})), 3);
  EXPECT_EQ(winner(1, flat_with({{3, 10.0F}, {9, 5.1F}})), 9);
  EXPECT_EQ(winner(2, flat_with({{4, 10.0F}, {9, 3.7F}})), 4);
  EXPECT_EQ(winner(3, flat_with({{4, 10.0F}, {9, 3.8F}})), 9);
  std::vector<float> low(kVocab, -50.0F);
  low[3] = -10.0F;
  low[9] = -20.5F;
  EXPECT_EQ(winner(4, low), 3);
  low[9] = -19.5F;
  EXPECT_EQ(winner(5, low), 9);
}

TEST(Sampler, OwnOutputsCountTowardsPenalties) {
  SamplingParams params = greedy();
  params.frequency_penalty = 1.0F;
  Bench bench;
  bench.admit(0, params, {1}, 1);
  const std::vector<float> row = flat_with({{7, 3.5F}, {8, 2.0F}});
  std::map<TokenId, int> seen;
  for (int i = 0; i < 5; ++i) ++seen[bench.sample(0, row).token];
  EXPECT_EQ(seen, (std::map<TokenId, int>{{7, 3}, {8, 2}}));
}

TEST(Sampler, LogprobsAreOfTheRawDistribution) {
  SamplingParams params = greedy();
  params.logprobs = 3;
  params.logit_bias = {{40, 100.0F}};
  const std::vector<float> row = random_row(4);
  long double sum = 0.0L;
  for (const float x : row) sum += std::exp(static_cast<long double>(x));
  Bench bench;
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
  Bench bench;
  bench.admit(0, params, {1}, 1);
  EXPECT_EQ(bench.sample(0, random_row(1)).logprobs.entries.size(), 1U);
}

TEST(Sampler, RowsWithoutADistributionFailAloneAndDoNotCount) {
  Bench bench;
  for (std::uint32_t slot = 0; slot < 4; ++slot) bench.admit(slot, seeded_params(5), {1}, 1);
  std::vector<float> nan_row = random_row(1);
  nan_row[499] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> good = random_row(1);
  std::vector<float> dead = random_row(1);
  dead[3] = -kInfinity;  // a model gives no such number
  const std::vector<SampleOutcome> outcomes = bench.sample_all({{Slot{0}, nan_row}, {Slot{1}, good}, {Slot{2}, dead}});
  EXPECT_EQ(outcomes[0].status, SampleOutcome::Status::not_finite);
  EXPECT_EQ(outcomes[1].status, SampleOutcome::Status::ok);
  EXPECT_EQ(outcomes[2].status, SampleOutcome::Status::not_finite);
  EXPECT_EQ(bench.sample(0, good).token, outcomes[1].token);
}

TEST(Sampler, AMaskThatLeavesNothingIsAnErrorOfThatRequest) {
  std::vector<TokenId> all(kVocab);
  std::iota(all.begin(), all.end(), 0);
  SamplingParams params;
  params.min_tokens = 1;
  Bench bench(all);
  bench.admit(0, params, {1}, 1);
  EXPECT_EQ(bench.sample(0, random_row(1)).status, SampleOutcome::Status::all_masked);
}

std::vector<SamplingParams> varied_params() {
  std::vector<SamplingParams> all(12);
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    all[i].seed = i / 2;
    all[i].temperature = 0.5F + 0.1F * static_cast<float>(i);
    all[i].top_k = i % 3 == 0 ? 20 : 0;
    all[i].top_p = i % 4 == 0 ? 0.9F : 1.0F;
    all[i].min_p = i % 5 == 0 ? 0.05F : 0.0F;
    all[i].frequency_penalty = i % 2 == 0 ? 0.5F : 0.0F;
    all[i].max_tokens = 64;
  }
  return all;
}

TEST(Sampler, TokensDoNotDependOnBatchSlotThreadsOrPreemption) {
  ThreadPool pool(3);
  const std::vector<SamplingParams> params = varied_params();
  // logits of request r at output i: random_row(r * 100 + i)
  std::vector<std::vector<TokenId>> alone(params.size(), {1, 2});
  for (std::uint32_t r = 0; r < params.size(); ++r) {
    Bench bench;
    bench.admit(0, params[r], alone[r], 2);
    for (std::uint32_t i = 0; i < 20; ++i) alone[r].push_back(bench.sample(0, random_row(r * 100 + i)).token);
  }
  Bench bench({}, &pool);
  std::mt19937 random(3);
  std::vector<std::vector<TokenId>> together(params.size(), {1, 2});
  std::vector<std::int64_t> slot_of(params.size(), -1);
  std::vector<std::uint32_t> free_slots{3, 1, 4, 15, 9, 2, 6, 5, 0, 7, 8, 10, 11, 12, 13, 14};
  while (std::ranges::any_of(together, [](const auto& tokens) { return tokens.size() < 22; })) {
    std::vector<std::vector<float>> logits;
    std::vector<std::uint32_t> batch;
    for (std::uint32_t r = 0; r < params.size(); ++r) {
      if (slot_of[r] >= 0 && random() % 4 == 0) {  // preempt
        bench.sampler().release(Slot{static_cast<std::uint32_t>(slot_of[r])});
        free_slots.insert(free_slots.begin(), static_cast<std::uint32_t>(slot_of[r]));
        slot_of[r] = -1;
      } else if (slot_of[r] < 0 && together[r].size() < 22) {
        slot_of[r] = free_slots.back();
        free_slots.pop_back();
        bench.admit(static_cast<std::uint32_t>(slot_of[r]), params[r], together[r], 2);
      }
      if (slot_of[r] >= 0 && together[r].size() < 22) {
        batch.push_back(r);
        logits.push_back(random_row(static_cast<std::uint32_t>(r * 100 + together[r].size() - 2)));
      }
    }
    std::vector<SampleRow> rows;
    for (std::size_t i = 0; i < batch.size(); ++i) rows.push_back({Slot{static_cast<std::uint32_t>(slot_of[batch[i]])}, logits[i]});
    const std::vector<SampleOutcome> outcomes = bench.sample_all(rows);
    for (std::size_t i = 0; i < batch.size(); ++i) together[batch[i]].push_back(outcomes[i].token);
  }
  EXPECT_EQ(together, alone);
}

TEST(Sampler, SeedsDecideAndTheRequestIdStandsInForNone) {
  const auto run = [](const SamplingParams& params, std::uint64_t id) {
    Sampler sampler(kVocab, 1, {}, nullptr);
    const std::vector<TokenId> prompt{1};
    sampler.admit({RequestId{id}, Slot{0}, prompt, 1, &params});
    std::vector<TokenId> tokens;
    const std::vector<float> row(kVocab, 0.0F);
    const SampleRow one{Slot{0}, row};
    for (int i = 0; i < 8; ++i) {
      std::vector<SampleOutcome> outcomes;
      std::vector<std::uint32_t> counts;
      sampler.sample({&one, 1}, outcomes, counts);
      tokens.push_back(outcomes[0].token);
    }
    return tokens;
  };
  const SamplingParams seeded = seeded_params(1), other = seeded_params(2), none{};
  EXPECT_EQ(run(seeded, 1), run(seeded, 2));
  EXPECT_NE(run(seeded, 1), run(other, 1));
  EXPECT_NE(run(none, 1), run(none, 2));
}

// Rows of a request as a pass gives them, with its drafts, against its tokens one at a time: of every kind of parameters, masked or not.
TEST(Sampler, DraftsChangeHowManyTokensComeAtOnceAndNoToken) {
  ThreadPool pool(2);
  std::mt19937 random(77);
  constexpr std::uint32_t kRequests = 12, kTokens = 40;
  Bench plain({5}), drafted({5}, &pool);
  std::vector<std::vector<TokenId>> wanted(kRequests), got(kRequests);
  const auto logits_at = [](std::uint32_t request, std::size_t place) {
    std::vector<float> row = random_row(static_cast<std::uint32_t>(request * 1000 + place));
    for (float& logit : row) logit *= 2.0F;
    return row;
  };
  std::vector<std::uint32_t> odd((kVocab + 31) / 32, 0xAAAAAAAAU);
  for (std::uint32_t r = 0; r < kRequests; ++r) {
    SamplingParams params = r % 3 == 0 ? greedy() : seeded_params(r);
    if (r % 2 == 1) params.frequency_penalty = 1.5F, params.repetition_penalty = 1.2F;
    if (r % 4 == 2) params.min_tokens = 10;
    params.logprobs = 2;
    plain.admit(r, params, {1, 2}, 2);
    drafted.admit(r, params, {1, 2}, 2);
    for (std::size_t i = 0; i < kTokens; ++i)
      wanted[r].push_back(r % 5 == 1 ? plain.sample(r, logits_at(r, i), odd).token : plain.sample(r, logits_at(r, i)).token);
  }
  std::uint32_t num_steps = 0, num_taken = 0;
  while (std::ranges::any_of(got, [](const auto& tokens) { return tokens.size() < kTokens; })) {
    std::vector<std::vector<float>> logits(kRequests);
    std::vector<std::vector<TokenId>> drafts(kRequests);
    std::vector<std::vector<std::uint32_t>> masks(kRequests);
    std::vector<SampleRow> rows;
    std::vector<std::uint32_t> asked;
    for (std::uint32_t r = 0; r < kRequests; ++r) {
      const std::size_t known = got[r].size();
      if (known == kTokens) continue;
      for (std::size_t i = random() % std::min<std::size_t>(6, kTokens - known); i > 0; --i) {
        const TokenId right = wanted[r][known + drafts[r].size()];
        drafts[r].push_back(random() % 4 == 0 ? right / 2 : right);
      }
      for (std::size_t i = 0; i <= drafts[r].size(); ++i) {
        std::ranges::copy(logits_at(r, known + i), std::back_inserter(logits[r]));
        if (r % 5 == 1) masks[r].insert(masks[r].end(), odd.begin(), odd.end());
      }
      rows.push_back({Slot{r}, logits[r], masks[r], drafts[r]});
      asked.push_back(r);
    }
    const std::vector<SampleOutcome> outcomes = drafted.sample_all(rows);
    auto outcome = outcomes.begin();
    for (std::size_t i = 0; i < asked.size(); ++i)
      for (std::uint32_t j = 0; j < drafted.counts()[i]; ++j) {
        EXPECT_EQ(outcome->logprobs.entries.size(), 3U);
        EXPECT_EQ(outcome->logprobs.entries[0].token, outcome->token);
        got[asked[i]].push_back((outcome++)->token);
      }
    EXPECT_EQ(outcome, outcomes.end());
    num_taken += static_cast<std::uint32_t>(outcomes.size());
    num_steps += static_cast<std::uint32_t>(asked.size());
  }
  EXPECT_EQ(got, wanted);
  EXPECT_GT(num_taken, num_steps * 2) << "drafts were taken";
}

TEST(SamplerDeath, MisuseOfSlotsStopsTheProgram) {
  Bench bench;
  bench.admit(0, SamplingParams{}, {1}, 1);
  EXPECT_DEATH(bench.admit(0, SamplingParams{}, {1}, 1), "taken");
  EXPECT_DEATH(bench.sampler().release(Slot{1}), "free already");
}

// With the log probabilities that drawing the token would have, in a batch as alone.
TEST(Sampler, ScoresTokensThatAreKnown) {
  ThreadPool pool(2);
  Bench alone, threads({}, &pool);
  SamplingParams params = greedy();
  params.logprobs = 5;
  std::vector<std::vector<float>> logits;
  std::vector<FollowedRow> rows;
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

TEST(Sampler, ScoresNothingWhereARowIsNotFinite) {
  Bench bench;
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> row = random_row(1);
    row[300] = bad;
    const FollowedRow followed{row, 7, 3};
    PositionLogprobs scored{{{1, -1.0F, 1}}};
    bench.sampler().score({&followed, 1}, {&scored, 1});
    EXPECT_TRUE(scored.entries.empty()) << bad;
  }
}

TEST(Sampler, TheUnlikeliestTokenHasTheLastRank) {
  Bench bench;
  std::vector<float> row = random_row(2);
  row[300] = -50.0F;
  const FollowedRow followed{row, 300, 0};
  PositionLogprobs scored;
  bench.sampler().score({&followed, 1}, {&scored, 1});
  ASSERT_EQ(scored.entries.size(), 1U);
  EXPECT_EQ(scored.entries[0].rank, kVocab);
}

TEST(Sampler, DrawsOnlyWhatIsAllowed) {
  Bench bench;
  SamplingParams params;
  params.allowed_token_ids = {3, 7, 499};
  params.logprobs = 2;
  params.max_tokens = 1000;
  bench.admit(0, params, {1}, 1);
  std::map<TokenId, int> seen;
  for (std::uint32_t i = 0; i < 300; ++i) {
    const SampleOutcome outcome = bench.sample(0, random_row(i));
    ++seen[outcome.token];
    EXPECT_GT(outcome.logprobs.entries[1].logprob, outcome.logprobs.entries[0].logprob - 20.0F) << "of the distribution without it";
  }
  EXPECT_EQ(seen.size(), 3U);
  for (const TokenId token : params.allowed_token_ids) EXPECT_GT(seen[token], 10);
}

// Greedy: the likeliest token, 5, would come again and again.
TEST(Sampler, BadWordsAreNotCompleted) {
  std::vector<float> row(kVocab, 0.0F);
  row[5] = 3.0F;
  row[6] = 2.0F;
  row[9] = 1.0F;
  const auto outputs = [&](std::vector<std::vector<TokenId>> words, const std::vector<TokenId>& tokens, std::uint32_t num_prompt) {
    Bench bench;
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
  EXPECT_EQ(outputs({{5, 5}}, {5}, 1), (std::vector<TokenId>{5, 6, 5, 6, 5, 6, 5, 6})) << "of outputs, not of the prompt";
  EXPECT_EQ(outputs({{5, 5, 5}}, {1}, 1), (std::vector<TokenId>{5, 5, 6, 5, 5, 6, 5, 5}));
  EXPECT_EQ(outputs({{5, 5, 5}}, {1, 5, 5}, 1), (std::vector<TokenId>{6, 5, 5, 6, 5, 5, 6, 5})) << "of one that was preempted";
  EXPECT_EQ(outputs({{5}, {6, 6}}, {1}, 1), (std::vector<TokenId>{6, 9, 6, 9, 6, 9, 6, 9}));
}

}  // namespace
}  // namespace quire
