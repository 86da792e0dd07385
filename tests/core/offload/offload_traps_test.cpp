// Tests surprising decisions of vLLM 0.19.0's offloading managers: traps 40 (manager) and 41 (ARC).
#include <gtest/gtest.h>

#include "core/offload/offload_support.h"

namespace quire::test {
namespace {

// Keys 0..3 evicted into B1, B2 empty, the tier full of 10..13 in T1.
NumberLedger with_ghosts() {
  NumberLedger ledger(OffloadPolicy::arc, 4);
  ledger.put(range(0, 3));
  ledger.put(range(10, 13));
  return ledger;
}

TEST(Trap40, TouchesBackwardsSoThatTheEndOfAPrefixIsEvictedFirst) {
  NumberLedger ledger(OffloadPolicy::lru, 3);
  ledger.put({1, 2, 3});
  ledger.touch({1, 2, 3});
  EXPECT_EQ(ledger.lists(), std::vector<Numbers>({{3, 2, 1}}));
  EXPECT_EQ(ledger.store({4})->evicted, Numbers{3});
}

TEST(Trap40, FreshSlotsComeFirstThenTheLastFreed) {
  NumberLedger ledger(OffloadPolicy::lru, 5);
  ASSERT_EQ(ledger.store({1, 2, 3})->slots, (Numbers{0, 1, 2}));
  ledger.complete_store({1, 2, 3}, false);
  EXPECT_EQ(ledger.store({4, 5, 6, 7})->slots, (Numbers{3, 4, 2, 1})) << "two fresh ones, then 2, freed after 1 and 0";
}

TEST(Trap40, TheSlotOfTheLastVictimIsTakenFirst) {
  NumberLedger ledger(OffloadPolicy::lru, 3);
  ledger.put({1, 2, 3});
  const auto store = ledger.store({4, 5});
  EXPECT_EQ(store->evicted, (Numbers{1, 2}));
  EXPECT_EQ(store->slots, (Numbers{1, 0}));
}

TEST(Trap40, KeysStoredAlreadyAreDroppedBeforeEvictionsAreCounted) {
  NumberLedger ledger(OffloadPolicy::lru, 3);
  ledger.put({1, 2, 3});
  EXPECT_EQ(ledger.store({1, 2, 3}), (NaiveStore{})) << "a store of no keys succeeds";
  EXPECT_EQ(ledger.store({3, 4})->evicted, Numbers{1}) << "one key is missing, so one is evicted";
}

TEST(Trap40, AKeyStillBeingStoredCountsAsStored) {
  NumberLedger ledger(OffloadPolicy::lru, 3);
  ASSERT_TRUE(ledger.store({1}));
  EXPECT_EQ(ledger.store({1, 2})->keys, Numbers{2});
  EXPECT_EQ(ledger.lookup({1, 2}), 0) << "the key cannot be loaded yet";
}

TEST(Trap40, AllKeysAreStoredOrNone) {
  NumberLedger ledger(OffloadPolicy::lru, 3);
  ledger.put({1, 2, 3});
  ASSERT_TRUE(ledger.load({2}));
  EXPECT_FALSE(ledger.store({4, 5, 6})) << "only two keys are evictable";
  EXPECT_EQ(ledger.lists(), std::vector<Numbers>({{1, 2, 3}}));
  EXPECT_EQ(ledger.store({4, 5})->evicted, (Numbers{1, 3}));
}

TEST(Trap40, EveryKeyOfTheCallIsProtected) {
  NumberLedger ledger(OffloadPolicy::lru, 3);
  ledger.put({1, 2, 3});
  EXPECT_EQ(ledger.store({1, 4})->evicted, Numbers{2}) << "1 is the oldest";
  ledger.complete_store({4});
  EXPECT_FALSE(ledger.store({1, 3, 4, 5})) << "all other keys are in the call";
  EXPECT_EQ(ledger.store({6})->evicted, Numbers{1}) << "a key is protected for that call only";
}

TEST(Trap40, AStoreOutlivesItsRequest) {
  NumberLedger ledger(OffloadPolicy::lru, 2);
  ASSERT_TRUE(ledger.store({1, 2}));
  EXPECT_FALSE(ledger.store({3})) << "its slots are being written even if the request has ended";
  ledger.complete_store({1, 2});
  EXPECT_EQ(ledger.lookup({1, 2}), 2);
}

TEST(Trap40, AFailedStoreTakesBackOnlyWhatWasBeingStored) {
  NumberLedger ledger(OffloadPolicy::lru, 3);
  ledger.put({1});
  ASSERT_TRUE(ledger.store({1, 2}));
  ledger.complete_store({1, 2, 9}, false);
  EXPECT_EQ(ledger.lookup({1}), 1);
  EXPECT_FALSE(ledger->contains(key(2)));
}

TEST(Trap40, TheFilterCountsLookupsOnly) {
  NumberLedger ledger(OffloadOptions{.num_slots = 4, .store_threshold = 2, .max_tracked_keys = 10});
  ledger.lookup({1, 2});
  ledger.touch({1, 2});
  EXPECT_EQ(ledger.store({1, 2}), (NaiveStore{})) << "touches and stores do not count";
  EXPECT_EQ(ledger.store({1, 2}), (NaiveStore{}));
  ledger.lookup({2, 3});
  EXPECT_EQ(ledger.store({1, 2, 3})->keys, Numbers{2});
}

TEST(Trap40, TheFilterCountsKeysAfterTheFirstMiss) {
  NumberLedger ledger(OffloadOptions{.num_slots = 4, .store_threshold = 2, .max_tracked_keys = 10});
  EXPECT_EQ(ledger.lookup({1, 2, 3}), 0);
  EXPECT_EQ(ledger.lookup({1, 2, 3}), 0);
  EXPECT_EQ(ledger.store({1, 2, 3})->keys, (Numbers{1, 2, 3}));
}

TEST(Trap40, TheFilterForgetsTheLeastRecentlyLookedUp) {
  NumberLedger ledger(OffloadOptions{.num_slots = 4, .store_threshold = 2, .max_tracked_keys = 2});
  ledger.lookup({1, 2});
  ledger.lookup({1, 3, 2});
  EXPECT_EQ(ledger.store({1, 2, 3})->keys, Numbers{}) << "2 was forgotten for 3, then 1 for 2";
  ledger.lookup({2});
  EXPECT_EQ(ledger.store({1, 2, 3})->keys, Numbers{2});
}

TEST(Trap40, AFilteredKeyIsNotProtected) {
  NumberLedger ledger(OffloadOptions{.num_slots = 2, .store_threshold = 2, .max_tracked_keys = 4});
  ledger.lookup({1, 2, 3});
  ledger.lookup({1, 2, 3});
  ledger.put({1, 2});
  ledger.lookup({8, 9, 10});  // 1 is forgotten; 2 and 3 are next to it
  ledger.lookup({3});
  EXPECT_EQ(ledger.store({1, 3})->evicted, Numbers{1}) << "a key that the filter drops counts as not given";
}

TEST(Trap40, EventsAreForgottenWhenReadToTheEndAndNotBefore) {
  NumberLedger ledger(OffloadOptions{.num_slots = 2, .enable_events = true});
  ledger.put({1, 2});
  ledger.put({3});
  const std::vector<NaiveEvent> all{{{1, 2}, false}, {{1}, true}, {{3}, false}};
  EXPECT_EQ(ledger.events(), all);
  EXPECT_EQ(ledger.events(), all);
  ledger->clear_events();
  EXPECT_TRUE(ledger.events().empty());
}

TEST(Trap41, ANewKeyEntersT1AlsoWhenAGhostRemembersIt) {
  NumberLedger ledger = with_ghosts();
  ASSERT_EQ(ledger.lists(), (std::vector<Numbers>{range(10, 13), {}, range(0, 3), {}}));
  ledger.put({2});
  EXPECT_EQ(ledger.lists(), (std::vector<Numbers>{{11, 12, 13, 2}, {}, {1, 3, 10}, {}})) << "0 was trimmed for 10 before 2 left";
  EXPECT_EQ(ledger.target(), 0) << "only a touch moves the target";
}

TEST(Trap41, ABlockBeingStoredStaysInT1WhenTouched) {
  NumberLedger ledger(OffloadPolicy::arc, 3);
  ASSERT_TRUE(ledger.store({1, 2, 3}));
  ledger.touch({1, 2});
  EXPECT_EQ(ledger.lists()[0], (Numbers{3, 2, 1}));
  ledger.complete_store({1, 2, 3});
  ledger.touch({1, 2});
  EXPECT_EQ(ledger.lists(), (std::vector<Numbers>{{3}, {2, 1}, {}, {}}));
}

TEST(Trap41, ABlockBeingLoadedIsPromoted) {
  NumberLedger ledger(OffloadPolicy::arc, 2);
  ledger.put({1, 2});
  ASSERT_TRUE(ledger.load({1}));
  ledger.touch({1});
  EXPECT_EQ(ledger.lists(), (std::vector<Numbers>{{2}, {1}, {}, {}}));
  EXPECT_FALSE(ledger.store({3, 4})) << "the key still cannot be evicted";
  ASSERT_TRUE(ledger.complete_load({1}));
  EXPECT_EQ(ledger.store({3, 4})->evicted, (Numbers{2, 1}));
}

TEST(Trap41, TheTargetMovesByTheRatioOfTheGhostsButAtLeastByOne) {
  NumberLedger ledger(OffloadPolicy::arc, 8);
  ledger.put(range(0, 7));
  ledger.touch(range(3, 7));  // T2: 7 6 5 4 3
  ledger.put(range(10, 17));  // B1: 0 1 2, B2: 7 6 5 4 3
  ASSERT_EQ(ledger.lists(), (std::vector<Numbers>{range(10, 17), {}, {0, 1, 2}, {7, 6, 5, 4, 3}}));
  ledger.touch({1});
  EXPECT_EQ(ledger.target(), 5.0 / 3.0);
  ledger.touch({4});
  EXPECT_EQ(ledger.target(), 5.0 / 3.0 - 1.0) << "3/5 is less than one";
  ledger.touch({4});
  EXPECT_EQ(ledger.target(), 0.0) << "never below zero";
  ledger.touch({0, 0, 0, 0, 0, 0});
  EXPECT_EQ(ledger.target(), 8.0) << "never above the capacity";
  EXPECT_EQ(ledger.lists()[2], (Numbers{2, 1, 0})) << "a touched ghost is the newest";
}

TEST(Trap41, TheTargetIsTruncatedAgainstASimulatedT1) {
  NumberLedger ledger(OffloadPolicy::arc, 6);
  ledger.put(range(0, 5));
  ledger.touch({3, 4, 5});           // T1: 0 1 2, T2: 5 4 3
  ledger.put({10, 11, 12, 13, 14});  // B1: 0 1 2, B2: 5 4
  ledger.put({15});
  ASSERT_EQ(ledger.lists(), (std::vector<Numbers>{{11, 12, 13, 14, 15}, {3}, {0, 1, 2, 10}, {5, 4}}));
  ledger.touch({0, 1, 2});  // three steps of one
  ledger.touch({0});
  ASSERT_EQ(ledger.target(), 4.0);
  // T1 has 5: one above the target, and one more as the size then equals it; 3 goes next although T1 has others.
  EXPECT_EQ(ledger.store({20, 21, 22})->evicted, (Numbers{11, 12, 3}));
}

TEST(Trap41, AFractionOfTheTargetIsCutOff) {
  NumberLedger ledger(OffloadPolicy::arc, 8);
  ledger.put(range(0, 7));
  ledger.touch(range(3, 7));
  ledger.put(range(10, 17));
  ledger.touch({11, 12, 13, 14, 15, 16, 17});  // T1: 10, T2: the others
  ledger.touch({1});
  ASSERT_EQ(ledger.target(), 5.0 / 3.0);
  EXPECT_EQ(ledger.store({20})->evicted, Numbers{10}) << "T1 has 1, which is not below int(1.67)";
}

TEST(Trap41, DoesNotReturnToT1) {
  NumberLedger ledger = with_ghosts();
  ledger.touch({13});          // T1: 10 11 12, T2: 13
  ledger.touch({0, 1, 2, 3});  // target 4
  ASSERT_EQ(ledger.target(), 4.0);
  EXPECT_FALSE(ledger.store({20, 21})) << "T1 is below the target and T2 has one block; the three blocks of T1 are not considered";
  EXPECT_EQ(ledger.store({20})->evicted, Numbers{13});
  ledger.complete_store({20});
  EXPECT_EQ(ledger.lists()[0], (Numbers{10, 11, 12, 20}));
  EXPECT_EQ(ledger.store({21})->evicted, Numbers{10}) << "T1 has reached the target";
}

TEST(Trap41, EvictsTheRestFromT2WhenT1HasNoVictim) {
  NumberLedger ledger(OffloadPolicy::arc, 4);
  ledger.put({1, 2, 3, 4});
  ledger.touch({1, 2});  // T1: 3 4, T2: 2 1
  ASSERT_TRUE(ledger.load({4}));
  EXPECT_EQ(ledger.store({5, 6, 7})->evicted, (Numbers{3, 2, 1}));
}

TEST(Trap41, GhostsAreTrimmedToTheCapacityAfterAnEviction) {
  NumberLedger ledger(OffloadPolicy::arc, 3);
  ledger.put({1, 2, 3});
  ledger.put({4, 5});
  ledger.put({6, 7, 8});
  EXPECT_EQ(ledger.lists(), (std::vector<Numbers>{{6, 7, 8}, {}, {3, 4, 5}, {}})) << "1 and 2 are forgotten";
}

TEST(Trap41, AFailedStoreLeavesNoGhost) {
  NumberLedger ledger = with_ghosts();
  ASSERT_EQ(ledger.store({1})->evicted, Numbers{10});
  ledger.complete_store({1}, false);
  EXPECT_EQ(ledger.lists(), (std::vector<Numbers>{{11, 12, 13}, {}, {2, 3, 10}, {}}))
      << "neither the key that failed nor 0, trimmed for 10";
}

TEST(Trap41, AFailedEvictionLeavesTheGhosts) {
  NumberLedger ledger = with_ghosts();
  ASSERT_TRUE(ledger.load({10}));
  EXPECT_FALSE(ledger.store({1, 20, 21, 22}));
  EXPECT_EQ(ledger.lists(), (std::vector<Numbers>{range(10, 13), {}, range(0, 3), {}}));
}

}  // namespace
}  // namespace quire::test
