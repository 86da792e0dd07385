// Tests FixOptions::early_loads: which requests load while the batch is full, when, with which blocks, and when these blocks are released.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/schedule/named_tier.h"
#include "core/schedule/requests/turns.h"
#include "quire/base/events.h"
#include "support/scripted_connector.h"

namespace quire::test {
namespace {

// Makes a config that runs one request at a time, with a pool of 20 blocks of 4 tokens.
CoreConfig early_config(bool early_loads = true) {
  CoreConfig config = sync_config(21);
  config.scheduler.max_num_seqs = 1;
  config.kv_load_failure = KvLoadFailurePolicy::recompute;
  config.fixes.early_loads = early_loads;
  return config;
}

struct EarlyDriver {
  explicit EarlyDriver(const CoreConfig& config) : d(config, {.connector = &tier, .events = &gave_way}) {}
  // Runs a step. Its loads finish with its result.
  void step(TransferOutcome outcome = TransferOutcome::done) {
    d.plan();
    std::vector<TransferCompletion> over = std::exchange(tier.begun, {});
    for (TransferCompletion& completion : over) completion.outcome = outcome;
    d.apply({}, {.completions = over});
  }
  [[nodiscard]] Ids waiting() const { return values(d.snapshot().waiting); }

  NamedTier tier;
  EventLog gave_way{EventKind::gave_way};
  CoreDriver d;
};

TEST(EarlyLoads, LoadsTheBlocksOfAWaitingRequestWhileTheBatchIsFull) {
  for (const bool early : {false, true}) {
    EarlyDriver e(early_config(early));
    e.tier.tokens[3] = 12;
    e.d.add(1, 8, 6);
    e.d.add(2, 8, 1);
    e.d.add(3, 13, 1);
    e.step();
    EXPECT_EQ(e.tier.asked, early ? Ids({1, 2}) : Ids({1})) << "the core queries one request per step, in queue order";
    e.d.plan();
    EXPECT_EQ(e.d.view(3).status, early ? RequestStatus::waiting_for_remote_kv : RequestStatus::waiting);
    EXPECT_EQ(e.waiting(), Ids({2, 3})) << "the request keeps its position in the queue";
    EXPECT_EQ(e.d.core->counters().num_awaiting_transfers, early ? 1U : 0U);
    e.d.apply({}, {.completions = std::exchange(e.tier.begun, {})});
    e.step();
    EXPECT_EQ(e.d.view(3).status, RequestStatus::waiting);
    EXPECT_EQ(e.d.view(3).num_computed_tokens, early ? 12U : 0U);
    while (e.d.known(1)) e.step();
    e.step();
    EXPECT_EQ(e.d.scheduled(2), 8U);
    e.d.plan();
    EXPECT_EQ(e.d.scheduled(3), early ? 1U : 0U) << "without early loads the request loads only now";
    e.d.apply({}, {.completions = std::exchange(e.tier.begun, {})});
    while (e.d.core->has_work()) e.step();
    EXPECT_EQ(e.tier.loaded, Ids({3}));
    EXPECT_TRUE(e.d.core->all_blocks_free());
  }
}

TEST(EarlyLoads, LoadsARequestWhenTheTokenBudgetIsUsedUp) {
  CoreConfig config = early_config();
  config.scheduler.max_num_seqs = 8;
  config.scheduler.max_num_batched_tokens = 8;
  EarlyDriver e(config);
  e.tier.tokens[2] = 12;
  e.d.add(1, 20, 1);
  e.d.add(2, 13, 1);
  e.step();
  EXPECT_EQ(e.tier.loaded, Ids({2}));
  e.step();
  e.d.plan();
  EXPECT_EQ(e.d.scheduled(1), 4U);
  EXPECT_EQ(e.d.scheduled(2), 1U);
  e.d.apply();
}

// Request 1 holds three blocks and needs one more. Two blocks stay free (an eighth of the pool). Request 2 needs ten or eleven blocks for
// its prompt, and request 3 needs four.
TEST(EarlyLoads, LeavesRoomForAllEarlierRequests) {
  for (const std::uint32_t num_tokens : {40U, 41U}) {
    EarlyDriver e(early_config());
    e.tier.tokens[3] = 12;
    e.d.add(1, 8, 30);
    e.d.add(2, num_tokens, 1);
    e.d.add(3, 13, 1);
    e.step();
    e.step();
    EXPECT_EQ(e.tier.asked, Ids({1, 2, 3}));
    EXPECT_EQ(e.tier.loaded, num_tokens == 40 ? Ids({3}) : Ids()) << "the last block of request 3 needs room too";
  }
}

// Request 1 computes its prompt of eleven blocks in chunks and needs one more block. Two blocks stay free. Request 2 needs six or seven.
TEST(EarlyLoads, LeavesRoomForTheRestOfARunningPrompt) {
  for (const std::uint32_t num_tokens : {24U, 25U}) {
    CoreConfig config = early_config();
    config.scheduler.max_num_batched_tokens = 8;
    EarlyDriver e(config);
    e.tier.tokens[2] = 20;
    e.d.add(1, 41, 1);
    e.d.add(2, num_tokens, 1);
    for (int i = 0; i < 3; ++i) e.step();
    EXPECT_EQ(e.tier.asked, Ids({1, 2}));
    EXPECT_EQ(e.tier.loaded, num_tokens == 24 ? Ids({2}) : Ids());
  }
}

TEST(EarlyLoads, ReleasesLoadedBlocksWhenARunningRequestNeedsThem) {
  EarlyDriver e(early_config());
  e.tier.tokens[2] = 40;
  e.d.add(1, 8, 70);
  e.d.add(2, 41, 1);
  while (e.d.known(1) && e.gave_way.all.empty()) e.step();
  ASSERT_EQ(e.gave_way.all.size(), 1U);
  EXPECT_EQ(e.gave_way.all[0].owner, RequestId{2});
  EXPECT_EQ(e.gave_way.all[0].beneficiary, RequestId{1});
  EXPECT_EQ(e.gave_way.all[0].amount, 10U);
  EXPECT_EQ(e.d.view(2).status, RequestStatus::waiting);
  EXPECT_EQ(e.d.view(2).num_computed_tokens, 0U);
  while (e.d.core->has_work()) e.step();
  EXPECT_EQ(e.d.core->counters().num_preemptions, 0U);
  EXPECT_EQ(e.tier.loaded, Ids({2, 2})) << "the request loads again at its turn";
}

TEST(EarlyLoads, ReleasesLoadedBlocksForARequestOfHigherPriority) {
  CoreConfig config = early_config();
  config.scheduler.policy = SchedulingPolicy::priority;
  config.scheduler.max_num_seqs = 2;
  EarlyDriver e(config);
  e.tier.tokens[3] = 40;
  e.d.add_with_priority(1, 4, 0, 0.0, 4);
  e.d.add_with_priority(2, 4, 0, 1.0, 30);
  e.d.add_with_priority(3, 41, 0, 2.0, 1);
  e.step();
  ASSERT_EQ(e.tier.loaded, Ids({3}));
  e.d.add_with_priority(4, 36, -1, 3.0, 1);  // needs nine blocks; request 2 holds two of the 20
  while (e.d.known(1)) e.step();
  e.d.plan();
  EXPECT_EQ(e.d.scheduled(2), 1U);
  EXPECT_EQ(e.d.scheduled(4), 36U);
  ASSERT_EQ(e.gave_way.all.size(), 1U);
  EXPECT_EQ(e.gave_way.all[0].beneficiary, RequestId{4});
  e.d.apply();
}

// Otherwise request 3 would lose its four blocks and request 4 would still have too few. Request 2 holds ten of 20 blocks.
TEST(EarlyLoads, KeepsLoadedBlocksWhenReleasingThemIsNotEnough) {
  for (const std::uint32_t num_tokens : {40U, 41U, 60U}) {
    CoreConfig config = early_config();
    config.scheduler.policy = SchedulingPolicy::priority;
    config.scheduler.max_num_seqs = 2;
    EarlyDriver e(config);
    e.tier.tokens[3] = 16;
    e.d.add_with_priority(1, 4, 0, 0.0, 4);
    e.d.add_with_priority(2, 36, 0, 1.0, 30);
    e.d.add_with_priority(3, 17, 0, 2.0, 1);
    e.step();
    ASSERT_EQ(e.tier.loaded, Ids({3}));
    e.d.add_with_priority(4, num_tokens, -1, 3.0, 1);
    while (e.d.known(1)) e.step();
    e.step();
    ASSERT_EQ(e.d.blocks(2).size(), 10U);
    EXPECT_EQ(e.d.scheduled(4), num_tokens == 40 ? 40U : 0U) << "request 4 needs ten or more blocks and six are free";
    EXPECT_EQ(e.gave_way.all.size(), num_tokens == 40 ? 1U : 0U);
    EXPECT_EQ(e.d.view(3).num_computed_tokens, num_tokens == 40 ? 0U : 16U);
  }
}

TEST(EarlyLoads, SharesLoadedBlocksWithOtherRequests) {
  EarlyDriver e(early_config());
  e.tier.tokens[2] = e.tier.tokens[3] = 12;
  e.d.add(1, 8, 9);
  const Tokens prompt = CoreDriver::prompt(2, 13);
  e.d.add(CoreDriver::request(2, prompt, 1));
  e.d.add(CoreDriver::request(3, prompt, 1));
  while (e.d.core->has_work()) e.step();
  EXPECT_EQ(e.tier.loaded, Ids({2}));
}

TEST(EarlyLoads, RetriesAFailedLoadLater) {
  EarlyDriver e(early_config());
  e.tier.tokens[2] = 12;
  e.d.add(1, 8, 60);
  e.d.add(2, 13, 1);
  e.step(TransferOutcome::failed);
  for (int i = 0; i < 16; ++i) {
    EXPECT_EQ(e.tier.asked, Ids({1, 2})) << i;
    e.step();
  }
  EXPECT_EQ(e.tier.asked, Ids({1, 2, 2}));
  EXPECT_EQ(e.d.view(2).num_computed_tokens, 12U);
}

TEST(EarlyLoads, QueriesTheConnectorInOrderOfPriority) {
  CoreConfig config = early_config();
  config.scheduler.policy = SchedulingPolicy::priority;
  EarlyDriver e(config);
  e.d.add_with_priority(1, 4, 0, 0.0, 20);
  e.step();
  e.d.add_with_priority(2, 4, 5, 1.0);
  e.d.add_with_priority(3, 4, 1, 3.0);
  e.d.add_with_priority(4, 4, 1, 2.0);
  for (int i = 0; i < 3; ++i) e.step();
  EXPECT_EQ(e.tier.asked, Ids({1, 4, 3, 2}));
}

TEST(EarlyLoads, QueriesTheConnectorInOrderOfJobs) {
  CoreConfig config = continuum_config(32);
  config.scheduler.max_num_seqs = 1;
  config.fixes.early_loads = true;
  EarlyDriver e(config);
  add_turn(e.d, 1, 4, {.job = "runs"}, 20);
  e.step();
  for (const auto& [id, job] : std::vector<std::pair<std::uint64_t, std::string>>{{2, "a"}, {3, "b"}, {4, "a"}}) {
    e.d.now += 0.5;
    add_turn(e.d, id, 4, {.job = job});
  }
  for (int i = 0; i < 3; ++i) e.step();
  EXPECT_EQ(e.tier.asked, Ids({1, 2, 4, 3}));
}

TEST(EarlyLoads, ReleasesLoadedBlocksWhenTheCacheIsReset) {
  EarlyDriver e(early_config());
  e.tier.tokens[2] = 12;
  e.d.add(1, 8, 9);
  e.d.add(2, 13, 1);
  e.step();
  EXPECT_GT(e.d.blocks(2).size(), 0U);
  const auto reset = e.d.core->reset_prefix_cache(true);
  ASSERT_TRUE(reset.has_value()) << reset.error().to_string();
  EXPECT_TRUE(*reset);
  EXPECT_TRUE(e.d.core->all_blocks_free());
  ASSERT_EQ(e.gave_way.all.size(), 1U);
  EXPECT_EQ(e.gave_way.all[0].cause, EventCause::ended_by_host);
  e.d.core->check_invariants();
  while (e.d.core->has_work()) e.step();
}

// The request ends while its blocks are loading. The blocks stay allocated until the load is complete.
TEST(EarlyLoads, FreesTheBlocksOfARequestThatEndsWhileItLoads) {
  EarlyDriver e(early_config());
  e.tier.tokens[2] = 12;
  e.d.add(1, 8, 3);
  e.d.add(2, 13, 1);
  e.d.plan();
  e.d.core->finish(RequestId{2}, RequestStatus::finished_aborted);
  e.d.core->check_invariants();
  EXPECT_EQ(e.waiting(), Ids());
  EXPECT_EQ(e.d.core->counters().num_awaiting_transfers, 1U);
  e.d.apply({}, {.completions = std::exchange(e.tier.begun, {})});
  while (e.d.core->has_work()) e.step();
  EXPECT_TRUE(e.d.core->all_blocks_free());
}

// Requests 1 and 2 hold five of 20 blocks each, which is not above the mark. Request 3 holds one.
TEST(EarlyLoads, ReleasesLoadedBlocksBeforePressurePreemptsARequest) {
  CoreConfig config = early_config();
  config.scheduler.max_num_seqs = 2;
  config.pressure = {.pressure_high = 0.5, .pressure_low = 0.1, .pressure_preempts = true};
  EarlyDriver e(config);
  e.tier.tokens[3] = 4;
  e.d.add(1, 16, 20);
  e.d.add(2, 16, 20);
  e.d.add(3, 5, 1);
  e.step();
  ASSERT_EQ(e.tier.loaded, Ids({3}));
  e.step();
  ASSERT_EQ(e.d.blocks(3).size(), 1U);
  e.step();
  ASSERT_EQ(e.gave_way.all.size(), 1U);
  EXPECT_EQ(e.gave_way.all[0].owner, RequestId{3});
  EXPECT_EQ(e.d.core->counters().num_pressure_preemptions, 0U);
  EXPECT_EQ(e.d.scheduled(2), 1U);
}

TEST(EarlyLoads, LoadsNothingWhileAdmissionIsStopped) {
  CoreConfig config = early_config();
  config.pressure = {.pressure_high = 0.5, .pressure_low = 0.4};
  EarlyDriver e(config);
  e.tier.tokens[2] = 12;
  e.d.add(1, 44, 9);
  e.d.add(2, 13, 1);
  for (e.step(); e.d.known(1); e.step()) EXPECT_EQ(e.tier.asked, Ids({1}));
}

}  // namespace
}  // namespace quire::test
