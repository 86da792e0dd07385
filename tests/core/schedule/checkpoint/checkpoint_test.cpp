// A core restored from a checkpoint makes the same decisions as the core that wrote it. Invalid bytes restore no core.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/schedule/checkpoint/checksum.h"
#include "core/schedule/checkpoint/sealed.h"
#include "core/schedule/checkpoint/twin_run.h"
#include "core/schedule/core_driver.h"
#include "quire/hash_function.h"
#include "support/decision_record.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

constexpr std::uint64_t kNumRecorded = 200;

void expect_recorded(const TwinRun& run) {
  static DecisionRecord record("tests/golden/decisions_twins.txt");
  run.has_all_hashes ? record.expect(run.digest()) : record.pass_over();
}

TEST(Checkpoint, MakesTheSameDecisionsAfterARestoreUnderVllm032Rules) {
  TwinsMet met;
  for (std::uint64_t seed = 5000; seed < 5000 + rounds_of(200); ++seed) {
    TwinRun run(seed, 600, RunOf::newer_twins);
    run.run(met);
    expect_recorded(run);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.checkpoints, rounds_of(5'000));
  EXPECT_GT(met.in_flight, rounds_of(2'000)) << "too few checkpoints with plans in flight";
  EXPECT_GT(met.encoder_outputs, rounds_of(100));
  EXPECT_GT(met.transfers, rounds_of(100));
  EXPECT_GT(met.sessions, rounds_of(300));
  EXPECT_GT(met.counters.num_preemptions, rounds_of(200));
}

TEST(Checkpoint, MakesTheSameDecisionsAfterARestoreWithTheLatestOptions) {
  TwinsMet met;
  for (std::uint64_t seed = 9000; seed < 9000 + rounds_of(400); ++seed) {
    TwinRun run(seed, 600, RunOf::latest_twins);
    run.run(met);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.checkpoints, rounds_of(10'000));
  EXPECT_GT(met.counters.num_preemptions, rounds_of(1'000));
  EXPECT_GT(met.counters.num_evicted_blocks, rounds_of(5'000));
}

TEST(Checkpoint, MakesTheSameDecisionsAfterARestore) {
  TwinsMet met;
  for (std::uint64_t seed = 0; seed < rounds_of(2000); ++seed) {
    TwinRun run(seed, 600);
    run.run(met);
    if (seed < kNumRecorded) expect_recorded(run);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  EXPECT_GT(met.checkpoints, rounds_of(50'000));
  EXPECT_GT(met.in_flight, rounds_of(20'000)) << "too few checkpoints with plans in flight";
  EXPECT_GT(met.placeholders, rounds_of(8'000));
  EXPECT_GT(met.drafts, rounds_of(5'000));
  EXPECT_GT(met.loading, rounds_of(3'000));
  EXPECT_GT(met.transfers, rounds_of(2'000));
  EXPECT_GT(met.swapped, rounds_of(2'000));
  EXPECT_GT(met.pinned, rounds_of(700));
  EXPECT_GT(met.sessions, rounds_of(3'000));
  EXPECT_GT(met.grammars, rounds_of(3'000));
  EXPECT_GT(met.encoder_outputs, rounds_of(3'000));
  EXPECT_GT(met.residency, rounds_of(8'000));
  EXPECT_GT(met.stopped, rounds_of(600));
  EXPECT_GT(met.gone, rounds_of(400));
  EXPECT_GT(met.windows, rounds_of(8'000));
  EXPECT_GT(met.priorities, rounds_of(3'000));
  EXPECT_GT(met.counters.num_steps, rounds_of(100'000));
  EXPECT_GT(met.counters.num_preemptions, rounds_of(5'000));
  EXPECT_GT(met.counters.num_evicted_blocks, rounds_of(25'000));
  EXPECT_GT(met.counters.num_forks, rounds_of(3'000));
  EXPECT_GT(met.counters.num_copied_blocks, rounds_of(100));
  EXPECT_GT(met.counters.num_swapped_in, rounds_of(248));
  EXPECT_GT(met.counters.num_swaps_lost, rounds_of(248));
  EXPECT_GT(met.counters.prefix_hit_tokens, rounds_of(6'000));
  EXPECT_GT(met.counters.external_hit_tokens, rounds_of(15'000));
}

TEST(Checkpoint, RestoresAnUnusedCore) {
  const CoreConfig config = sync_config();
  const auto core = Core::create(config).value();
  const std::vector<std::uint8_t> bytes = core->checkpoint();
  const auto again = Core::restore(config, {}, bytes).value();
  EXPECT_EQ(again->checkpoint(), bytes);
  EXPECT_TRUE(again->all_blocks_free());
}

TEST(Checkpoint, ContinuesAfterThePlanInFlight) {
  CoreDriver d(async_config());
  d.add(1, 10, 8);
  d.plan();
  d.plan();
  auto twin = Core::restore(async_config(), {}, d.core->checkpoint()).value();
  ASSERT_EQ(twin->num_outstanding_plans(), 2U);
  const StepPlan& first = twin->outstanding_plan(0);
  ASSERT_EQ(first.admitted.size(), 1U);
  EXPECT_EQ(Tokens(first.admitted[0].tokens.begin(), first.admitted[0].tokens.end()), CoreDriver::prompt(1, 10));
  EXPECT_EQ(first.scheduled[0].num_tokens, 10U);
  EXPECT_EQ(first.table_deltas[0].blocks.size(), 3U);
  EXPECT_EQ(twin->outstanding_plan(1).scheduled[0].num_computed_tokens, 10U);
  const SampledToken sampled[] = {{RequestId{1}, 40}};
  const StepOutcome& outcome = **twin->apply({.step = StepId{0}, .sampled = sampled});
  EXPECT_EQ(outcome.updates[0].tokens.size(), 1U);
  EXPECT_EQ(outcome.first_admissions.size(), 1U);
  EXPECT_EQ(twin->view(RequestId{1})->tokens.back(), 40);
}

TEST(Checkpoint, ContainsNoBlockHashWhenAPseudonymKeyIsGiven) {
  CoreDriver d(sync_config());
  d.add(1, 9, 8);
  d.step();
  const RequestView request = d.view(1);
  ASSERT_EQ(request.block_hashes.size(), 64U);
  const PseudonymKey key{.words = {3, 4}};
  for (const PseudonymKey* names : {static_cast<const PseudonymKey*>(nullptr), &key}) {
    const std::vector<std::uint8_t> bytes = d.core->checkpoint(CheckpointTokens::left_out, names);
    const bool contains_hash = !std::ranges::search(bytes, request.block_hashes.first(32)).empty();
    EXPECT_EQ(contains_hash, names == nullptr);
  }
}

TEST(Checkpoint, IsRefusedUnderAnotherConfiguration) {
  CoreDriver d(sync_config(32));
  d.add(1, 10, 8);
  const auto refused = Core::restore(sync_config(33), {}, d.core->checkpoint());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::invalid_argument);
  EXPECT_EQ(refused.error().field, "config");
  CoreConfig invalid = sync_config();
  invalid.kv.num_blocks = 0;
  EXPECT_FALSE(Core::restore(invalid, {}, d.core->checkpoint()).has_value()) << "create() refuses it too";
}

TEST(Checkpoint, ReportsTheByteWhereItIsInvalid) {
  CoreDriver d(sync_config());
  d.add(1, 10, 8);
  d.plan();
  const std::vector<std::uint8_t> good = d.core->checkpoint();
  const auto error = [](std::span<const std::uint8_t> bytes) {
    const auto restored = Core::restore(sync_config(), {}, bytes);
    return restored ? std::string() : restored.error().to_string();
  };
  EXPECT_EQ(error(good), "");
  EXPECT_NE(error({}).find("from byte 0 on"), std::string::npos) << error({});
  std::vector<std::uint8_t> other_version = good;
  other_version[3] = 77;
  EXPECT_NE(error(other_version).find("from byte 3 on"), std::string::npos) << error(other_version);
  EXPECT_NE(error(std::span(good).first(10)).find("ends at byte 10"), std::string::npos);
  EXPECT_NE(error(std::span(good).first(19)).find("ends at byte 19"), std::string::npos);
  EXPECT_NE(error(std::span(good).first(20)).find("is corrupted or truncated"), std::string::npos) << "its header is complete";
  std::vector<std::uint8_t> damaged = good;
  damaged[good.size() / 2] ^= 4U;
  EXPECT_NE(error(damaged).find("is corrupted or truncated"), std::string::npos) << error(damaged);
  EXPECT_NE(error(std::span(good).first(good.size() - 1)).find("is corrupted or truncated"), std::string::npos);
  std::vector<std::uint8_t> longer = good;
  longer.insert(longer.end() - kSumBytes, 0);
  seal(longer);
  EXPECT_NE(error(longer).find("this must hold: no bytes follow the state"), std::string::npos) << error(longer);
  std::vector<std::uint8_t> shorter = good;
  shorter.resize(good.size() - 3);
  seal(shorter);
  EXPECT_NE(error(shorter).find("is not a valid core state at byte"), std::string::npos) << error(shorter);
}

// Files of earlier versions contain these sums. The inputs are: no bytes, part of a word, one word, all lanes, and all lanes with a part.
TEST(Checkpoint, ComputesTheChecksumsOfEarlierVersions) {
  const std::vector<std::pair<std::size_t, std::uint64_t>> recorded = {
      {0, 0x1b055cc6b6ef8323}, {5, 0x907b37e795cb4b9a}, {8, 0x7b383571cfc92f84}, {32, 0xe96f4fae07c78163}, {37, 0x3b17352163462bd6}};
  for (const auto& [size, sum] : recorded) {
    std::vector<std::uint8_t> bytes(size);
    std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
    EXPECT_EQ(checksum(bytes), sum) << size << " bytes";
  }
}

}  // namespace
}  // namespace quire::test
