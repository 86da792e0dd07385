// Tests guarantees beyond vLLM's decisions: errors are values, sizes are bounded and a full tier allocates no memory.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "core/offload/offload_support.h"
#include "support/count_allocations.h"

namespace quire::test {
namespace {

TEST(OffloadOptions, OutOfRangeIsAnErrorThatNamesTheField) {
  auto field = [](const OffloadOptions& options) { return OffloadLedger::create(options).error().field; };
  EXPECT_EQ(field({.num_slots = -1}), "num_slots");
  EXPECT_EQ(field({.num_slots = 1LL << 40}), "num_slots");
  EXPECT_EQ(field({.num_slots = 1, .store_threshold = 2, .max_tracked_keys = 0}), "max_tracked_keys");
  EXPECT_EQ(field({.num_slots = 1, .max_pending_event_keys = -1}), "max_pending_event_keys");
  EXPECT_TRUE(OffloadLedger::create({.num_slots = 1, .store_threshold = 1, .max_tracked_keys = 0})) << "without a filter no key is tracked";
  EXPECT_TRUE(OffloadLedger::create({.num_slots = 1, .max_pending_event_keys = 0})) << "each event is lost, and counted";
  EXPECT_EQ(ReuseFilter::create(1, 10).error().field, "store_threshold");
}

TEST(OffloadOptions, PoliciesHaveVllmsNames) {
  EXPECT_EQ(parse_offload_policy("lru"), OffloadPolicy::lru);
  EXPECT_EQ(parse_offload_policy("arc"), OffloadPolicy::arc);
  EXPECT_EQ(parse_offload_policy("arc_paper"), OffloadPolicy::arc_paper);
  EXPECT_EQ(parse_offload_policy("s3fifo"), OffloadPolicy::s3fifo);
  EXPECT_EQ(parse_offload_policy("LRU").error().field, "eviction_policy");
}

class OffloadLedgerTest : public testing::TestWithParam<OffloadPolicy> {};
INSTANTIATE_TEST_SUITE_P(Policies, OffloadLedgerTest,
                         testing::Values(OffloadPolicy::lru, OffloadPolicy::arc, OffloadPolicy::arc_paper, OffloadPolicy::s3fifo));

TEST_P(OffloadLedgerTest, LookupCountsUpToTheFirstGap) {
  NumberLedger ledger(GetParam(), 4);
  ledger.put({1, 2, 4});
  EXPECT_EQ(ledger.lookup({1, 2, 3, 4}), 2);
  EXPECT_EQ(ledger.lookup({}), 0);
}

TEST_P(OffloadLedgerTest, ARefusedLoadHoldsNothing) {
  NumberLedger ledger(GetParam(), 3);
  ledger.put({1, 2});
  ASSERT_TRUE(ledger.store({3}));
  const auto absent = ledger->prepare_load(keys({1, 9}));
  ASSERT_FALSE(absent);
  EXPECT_EQ(absent.error().field, "keys[1]");
  EXPECT_FALSE(ledger.load({1, 3})) << "3 is being stored";
  EXPECT_EQ(ledger->ref_count(key(1)), 0);
}

TEST_P(OffloadLedgerTest, ARefusedCompletionChangesNothing) {
  NumberLedger ledger(GetParam(), 2);
  ledger.put({1, 2});
  ASSERT_TRUE(ledger.load({1, 1, 2}));
  EXPECT_FALSE(ledger.complete_load({1, 2, 2}));
  EXPECT_EQ(ledger->ref_count(key(1)), 2);
  EXPECT_EQ(ledger->ref_count(key(2)), 1);
  EXPECT_TRUE(ledger.complete_load({1, 2}));
  EXPECT_FALSE(ledger.store({3, 4})) << "key 1 has another load";
  EXPECT_EQ(ledger.store({3})->evicted, Numbers{2});
  ledger->check_invariants();
}

TEST_P(OffloadLedgerTest, AnsweredKeysCanBeHandedBack) {
  NumberLedger ledger(GetParam(), 4);
  const auto store = ledger->prepare_store(keys({1, 2, 3}));
  ledger->complete_store(store->keys);
  EXPECT_EQ(ledger.lookup({1, 2, 3}), 3);
}

TEST_P(OffloadLedgerTest, AKeyGivenTwiceLosesASlotAsInVllm) {
  NumberLedger ledger(GetParam(), 4);
  EXPECT_EQ(ledger.store({1, 2, 1}), (NaiveStore{{1, 2, 1}, {0, 1, 2}, {}}));
  EXPECT_EQ(ledger.lists()[0], (Numbers{1, 2}));
  ledger.complete_store({1, 2, 1});
  EXPECT_EQ(ledger.load({1}), Numbers{2});
  EXPECT_EQ(ledger->num_lost(), 1U);
  EXPECT_EQ(ledger->num_free(), 1U);
  ledger->check_invariants();
}

TEST_P(OffloadLedgerTest, MoreKeysThanSlotsAreRefused) {
  NumberLedger ledger(GetParam(), 2);
  EXPECT_FALSE(ledger.store({1, 2, 3}));
  EXPECT_EQ(ledger->num_free(), 2U);
  NumberLedger none(GetParam(), 0);
  EXPECT_FALSE(none.store({1}));
  EXPECT_EQ(none.store({}), (NaiveStore{}));
}

TEST_P(OffloadLedgerTest, EventsBeyondTheBoundAreLostAndCounted) {
  NumberLedger ledger(OffloadOptions{.num_slots = 4, .policy = GetParam(), .enable_events = true, .max_pending_event_keys = 3});
  ledger.put({1, 2});
  ledger.put({3, 4});
  EXPECT_EQ(ledger.events(), (std::vector<NaiveEvent>{{{1, 2}, false}}));
  EXPECT_EQ(ledger->num_lost_event_keys(), 2U);
  ledger.put({5});
  EXPECT_EQ(ledger.events(), (std::vector<NaiveEvent>{{{1, 2}, false}, {{1}, true}})) << "one more event fits, then no further one";
  EXPECT_EQ(ledger->num_lost_event_keys(), 3U);
  ledger->clear_events();
  ledger.put({6});
  EXPECT_EQ(ledger->num_events(), 2U) << "one event was removed and one was added";
}

TEST_P(OffloadLedgerTest, DiscardedKeysLeaveLikeEvictedOnes) {
  NumberLedger ledger(OffloadOptions{.num_slots = 3, .policy = GetParam(), .enable_events = true});
  ledger.put({1, 2});
  ASSERT_TRUE(ledger.store({3}));
  ASSERT_TRUE(ledger.load({2}));
  ledger->clear_events();
  EXPECT_FALSE(ledger->discard(key(2))) << "the key is being loaded";
  EXPECT_FALSE(ledger->discard(key(3))) << "the key is being stored";
  EXPECT_FALSE(ledger->discard(key(4))) << "the key is not stored";
  EXPECT_EQ(ledger->num_events(), 0U);
  EXPECT_TRUE(ledger->discard(key(1)));
  EXPECT_EQ(ledger.events(), (std::vector<NaiveEvent>{{{1}, true}}));
  EXPECT_EQ(numbers(ledger->resident_keys()), (Numbers{2, 3}));
  EXPECT_EQ(ledger.store({4}), (NaiveStore{{4}, {0}, {}})) << "its slot is free";
  ledger->check_invariants();
}

// The predicted key is evicted unless a use saves it (arc_paper and s3fifo count uses).
TEST_P(OffloadLedgerTest, ReportsTheNextVictimsInAdvance) {
  NumberLedger ledger(GetParam(), 8);
  Random random(5);
  int num_right = 0, num_evictions = 0;
  for (int i = 0; i < 400; ++i) {
    const Numbers wanted = {static_cast<int>(random.below(40))};
    if (random.chance(0.3)) ledger->touch(keys({static_cast<int>(random.below(40))}));
    std::vector<OffloadKey> all, first;
    ledger->append_next_victims(100, all);
    ledger->append_next_victims(1, first);
    EXPECT_LE(all.size(), 8U);
    for (std::size_t k = 0; k < all.size(); ++k) {
      EXPECT_EQ(ledger->ref_count(all[k]), 0) << "only evictable keys";
      EXPECT_EQ(std::ranges::count(all, all[k]), 1);
    }
    if (!all.empty()) EXPECT_EQ(number(first.at(0)), number(all[0]));
    const std::optional<PreparedStore> store = ledger->prepare_store(keys(wanted));
    if (store && !store->evicted.empty()) {
      ++num_evictions;
      num_right += number(store->evicted[0]) == number(all.at(0)) ? 1 : 0;
    }
    ledger->complete_store(keys(wanted));
  }
  EXPECT_GT(num_evictions, 100);
  const bool is_certain = GetParam() == OffloadPolicy::lru || GetParam() == OffloadPolicy::arc;
  EXPECT_GE(num_right, is_certain ? num_evictions : 1);
}

TEST_P(OffloadLedgerTest, KeepsNoEventsWhenEventsAreDisabled) {
  NumberLedger ledger(GetParam(), 1);
  ledger.put({1});
  ledger.put({2});
  EXPECT_EQ(ledger->num_events(), 0U);
}

TEST_P(OffloadLedgerTest, TheGroupIsPartOfTheKey) {
  NumberLedger ledger(GetParam(), 2);
  ledger.put({1});
  OffloadKey other = key(1);
  other.group = 1;
  EXPECT_FALSE(ledger->contains(other));
}

// Plays one round on a full tier: look up, load, touch, store with evictions, complete, read events.
void play_round(OffloadLedger& ledger, std::span<const OffloadKey> next) {
  ledger.lookup(next);
  ledger.lookup(next);
  ledger.touch(next);
  const auto store = ledger.prepare_store(next);
  ledger.complete_store(next, store.has_value());
  const std::uint32_t hits = ledger.lookup(next);
  if (ledger.prepare_load(next.first(hits))) {
    ledger.touch(next);
    EXPECT_TRUE(ledger.complete_load(next.first(hits)));
  }
  ledger.clear_events();
}

TEST_P(OffloadLedgerTest, AllocatesNoMemoryWhenTheTierIsFull) {
  NumberLedger ledger(
      OffloadOptions{.num_slots = 64, .policy = GetParam(), .store_threshold = 2, .max_tracked_keys = 100, .enable_events = true});
  std::vector<std::vector<OffloadKey>> rounds;
  for (int i = 0; i < 200; ++i) rounds.push_back(keys(range(11 * (i % 30), 11 * (i % 30) + 15)));
  for (int i = 0; i < 60; ++i) play_round(*ledger, rounds[static_cast<std::size_t>(i)]);
  const std::uint64_t before = num_allocations.load();
  for (const auto& round : rounds) play_round(*ledger, round);
  if (QUIRE_COUNTS_ALLOCATIONS == 0) GTEST_SKIP() << "this build does not count allocations";
  EXPECT_EQ(num_allocations.load(), before);
  ledger->check_invariants();
}

// Thousands of blocks in transfer precede the evictable ones. Completions arrive in any order.
TEST_P(OffloadLedgerTest, SkipsBlocksInTransferBeforeTheVictim) {
  constexpr int kHalf = 5000;
  NumberLedger ledger(GetParam(), 2 * kHalf);
  ASSERT_TRUE(ledger.store(range(0, kHalf - 1)));
  ledger.put(range(kHalf, 2 * kHalf - 1));
  EXPECT_EQ(ledger.store({20000, 20001})->evicted, (Numbers{kHalf, kHalf + 1}));
  for (int i = 0; i < kHalf; ++i) ledger.complete_store({(i * 2467) % kHalf});
  ledger->check_invariants();
  EXPECT_EQ(ledger.store({30000, 30001})->evicted, (Numbers{0, 1})) << "keys are ordered by their store, not by its completion";
}

// A tier that keeps blocks of an earlier run restores its slots one by one, from the most recently stored block on.
TEST_P(OffloadLedgerTest, FindsRestoredBlocksAndEvictsThemFirst) {
  NumberLedger ledger(OffloadOptions{.num_slots = 4, .policy = GetParam(), .restores = true});
  EXPECT_FALSE(ledger.store({9})) << "no slot is restored yet";
  const OffloadKey newer = key(1), older = key(2);
  EXPECT_FALSE(ledger->restore(OffloadSlot{3}, nullptr));
  EXPECT_EQ(ledger.store({9}), (NaiveStore{{9}, {3}, {}}));
  ledger.complete_store({9});
  EXPECT_TRUE(ledger->restore(OffloadSlot{2}, &newer));
  EXPECT_EQ(ledger.lookup({1}), 1);
  EXPECT_EQ(ledger.lookup({2}), 0) << "the key is not restored yet";
  EXPECT_FALSE(ledger.store({8})) << "slots that are not restored are older than all evictable keys";
  EXPECT_TRUE(ledger->restore(OffloadSlot{0}, &older));
  EXPECT_FALSE(ledger->restore(OffloadSlot{1}, &newer)) << "an older copy of a block that is there";
  EXPECT_EQ(ledger->num_unread(), 0U);
  EXPECT_EQ(ledger.load({2}), (Numbers{0}));
  EXPECT_TRUE(ledger.complete_load({2}));
  EXPECT_EQ(ledger.store({10, 11}), (NaiveStore{{10, 11}, {0, 1}, {2}}));
  EXPECT_EQ(ledger.store({12}), (NaiveStore{{12}, {2}, {1}}));
  ledger->check_invariants();
}

TEST(OffloadLedgerRestoreDeathTest, ASlotIsRestoredOnce) {
  NumberLedger ledger(OffloadOptions{.num_slots = 2, .restores = true});
  ledger->restore(OffloadSlot{1}, nullptr);
  EXPECT_DEATH(ledger->restore(OffloadSlot{1}, nullptr), "a slot is restored once");
  NumberLedger without(OffloadOptions{.num_slots = 2});
  EXPECT_DEATH(without->restore(OffloadSlot{1}, nullptr), "a slot is restored once");
}

}  // namespace
}  // namespace quire::test
