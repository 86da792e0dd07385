// Tests which token is sampled: parameters, seeds, draft tokens, and rows without a valid distribution.
#include "runtime/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "base/thread_pool.h"
#include "runtime/sample/row_math.h"
#include "runtime/sample/sampler_bench.h"

namespace quire {
namespace {

using test::flat_with;
using test::greedy;
using test::kVocab;
using test::random_row;
using test::SamplerBench;
using test::seeded_params;

TEST(Sampler, GreedyPicksTheFirstOfTheLargest) {
  SamplerBench bench;
  bench.admit(0, greedy(), {1}, 1);
  EXPECT_EQ(bench.sample(0, flat_with({{7, 5.0F}, {300, 5.0F}})).token, 7);
}

TEST(Sampler, LogitBiasChangesTheChoice) {
  SamplingParams params = greedy();
  params.logit_bias = {{9, 6.0F}, {7, -100.0F}};
  SamplerBench bench;
  bench.admit(0, params, {1}, 1);
  EXPECT_EQ(bench.sample(0, flat_with({{7, 50.0F}, {8, 5.0F}})).token, 9);
}

TEST(Sampler, EosAndStopIdsAreMaskedUntilMinTokens) {
  SamplingParams params = greedy();
  params.min_tokens = 2;
  params.stop_token_ids = {8};
  const std::vector<float> row = flat_with({{7, 9.0F}, {8, 8.0F}, {9, 7.0F}});
  SamplerBench bench({7});
  bench.admit(0, params, {1}, 1);
  EXPECT_EQ(bench.sample(0, row).token, 9);
  EXPECT_EQ(bench.sample(0, row).token, 9);
  EXPECT_EQ(bench.sample(0, row).token, 7);
  // The outputs that a resumed request already has count for min_tokens.
  bench.admit(1, params, {1, 5, 5}, 1);
  EXPECT_EQ(bench.sample(1, row).token, 7);
}

TEST(Sampler, PenaltiesFollowTheirFormulas) {
  SamplingParams params = greedy();
  params.repetition_penalty = 2.0F;
  params.frequency_penalty = 0.5F;
  params.presence_penalty = 0.25F;
  SamplerBench bench;
  // Token 3 is in the prompt, 4 twice in the output: 10/2 = 5; 10/2 - 2*0.5 - 0.25 = 3.75; negative logits are multiplied.
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

TEST(Sampler, OutputsCountTowardsPenalties) {
  SamplingParams params = greedy();
  params.frequency_penalty = 1.0F;
  SamplerBench bench;
  bench.admit(0, params, {1}, 1);
  const std::vector<float> row = flat_with({{7, 3.5F}, {8, 2.0F}});
  std::map<TokenId, int> seen;
  for (int i = 0; i < 5; ++i) ++seen[bench.sample(0, row).token];
  EXPECT_EQ(seen, (std::map<TokenId, int>{{7, 3}, {8, 2}}));
}

TEST(Sampler, RowsWithoutADistributionFailAloneAndDoNotCount) {
  SamplerBench bench;
  for (std::uint32_t slot = 0; slot < 4; ++slot) bench.admit(slot, seeded_params(5), {1}, 1);
  std::vector<float> nan_row = random_row(1);
  nan_row[499] = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> good = random_row(1);
  std::vector<float> dead = random_row(1);
  dead[3] = -kInfinity;  // a model never gives -Inf
  const std::vector<SampleOutcome> outcomes = bench.sample_all({{Slot{0}, nan_row}, {Slot{1}, good}, {Slot{2}, dead}});
  EXPECT_EQ(outcomes[0].status, SampleOutcome::Status::not_finite);
  EXPECT_EQ(outcomes[1].status, SampleOutcome::Status::ok);
  EXPECT_EQ(outcomes[2].status, SampleOutcome::Status::not_finite);
  EXPECT_EQ(bench.sample(0, good).token, outcomes[1].token);
}

TEST(Sampler, AMaskThatAllowsNothingFailsItsRequest) {
  std::vector<TokenId> all(kVocab);
  std::iota(all.begin(), all.end(), 0);
  SamplingParams params;
  params.min_tokens = 1;
  SamplerBench bench(all);
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
  // The logits of request r at output i are random_row(r * 100 + i).
  std::vector<std::vector<TokenId>> alone(params.size(), {1, 2});
  for (std::uint32_t r = 0; r < params.size(); ++r) {
    SamplerBench bench;
    bench.admit(0, params[r], alone[r], 2);
    for (std::uint32_t i = 0; i < 20; ++i) alone[r].push_back(bench.sample(0, random_row(r * 100 + i)).token);
  }
  SamplerBench bench({}, &pool);
  std::mt19937 random(3);
  std::vector<std::vector<TokenId>> together(params.size(), {1, 2});
  std::vector<std::int64_t> slot_of(params.size(), -1);
  std::vector<std::uint32_t> free_slots{3, 1, 4, 15, 9, 2, 6, 5, 0, 7, 8, 10, 11, 12, 13, 14};
  while (std::ranges::any_of(together, [](const auto& tokens) { return tokens.size() < 22; })) {
    std::vector<std::vector<float>> logits;
    std::vector<std::uint32_t> batch;
    for (std::uint32_t r = 0; r < params.size(); ++r) {
      if (slot_of[r] >= 0 && random() % 4 == 0) {  // preempts the request
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

TEST(Sampler, SeedsDetermineTokensAndTheRequestIdReplacesAMissingSeed) {
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

// Compares the rows of a pass with draft tokens with the same request one token at a time, for all kinds of parameters, with masks and
// without.
TEST(Sampler, DraftsChangeTheNumberOfTokensPerStepButNoToken) {
  ThreadPool pool(2);
  std::mt19937 random(77);
  constexpr std::uint32_t kRequests = 12, kTokens = 40;
  SamplerBench plain({5}), drafted({5}, &pool);
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
  EXPECT_GT(num_taken, num_steps * 2) << "drafts were accepted";
}

TEST(SamplerDeath, InvalidSlotsAbortTheProgram) {
  SamplerBench bench;
  bench.admit(0, SamplingParams{}, {1}, 1);
  EXPECT_DEATH(bench.admit(0, SamplingParams{}, {1}, 1), "an admitted request gets a free slot");
  EXPECT_DEATH(bench.sampler().release(Slot{1}), "a released slot is in use");
}

}  // namespace
}  // namespace quire
