// What no call from outside brings about: one private field is spoiled, and the check that guards it stops the program. The rules that
// callers can break are in invariants_test.cpp.
#include <gtest/gtest.h>

#include "core/offload/arc_paper_policy.h"
#include "core/offload/arc_policy.h"
#include "core/offload/lru_policy.h"
#include "core/offload/offload_ledger.h"
#include "core/offload/offload_support.h"
#include "core/offload/reuse_filter.h"
#include "core/offload/s3fifo_policy.h"

namespace quire {
namespace {

using test::key;
using test::keys;
using test::NumberLedger;

constexpr const char* kVictimsAreCounted = "victims are counted before they are taken";

// Of slots 0 to 3, with these numbers for keys, 2 and 3 were used again: T1 is 0, 1 and T2 is 2, 3. All may be evicted.
struct HalfUsedAgain {
  HalfUsedAgain() {
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      index.insert(key(static_cast<int>(slot)), slot);
      policy.insert(slot);
      policy.set_evictable(slot, true);
      if (slot >= 2) policy.touch(slot, true);
    }
    policy.check_invariants();
  }

  KeyIndex index{4};
  ArcPolicy policy{4, index};
};

TEST(SpoiledOffloadDeathTest, GhostsFitInTwoListsOfTheCapacity) {
  for (const GhostKeys::List list : {GhostKeys::List::b1, GhostKeys::List::b2}) {
    GhostKeys ghosts(2);
    ghosts.push(list, key(1));
    EXPECT_DEATH(
        {
          ghosts.capacity_ = 0;
          ghosts.check_invariants(KeyIndex(1));
        },
        "b1_.size\\(\\) <= capacity_ && b2_.size\\(\\) <= capacity_");
  }
}

TEST(SpoiledOffloadDeathTest, GhostsAndFreeEntriesAreAllEntries) {
  GhostKeys ghosts(2);
  ghosts.push(GhostKeys::List::b1, key(1));
  ghosts.check_invariants(KeyIndex(1));
  EXPECT_DEATH(
      {
        ++ghosts.index_.size_;
        ghosts.check_invariants(KeyIndex(1));
      },
      "index_.size\\(\\) == b1_.size\\(\\) . b2_.size\\(\\)");
  EXPECT_DEATH(
      {
        ghosts.free_.pop_back();
        ghosts.check_invariants(KeyIndex(1));
      },
      "index_.size\\(\\) . free_.size\\(\\) == links_.size\\(\\)");
}

TEST(SpoiledOffloadDeathTest, AGhostKnowsItsListAndIsFoundByItsKey) {
  GhostKeys ghosts(2);
  ghosts.push(GhostKeys::List::b1, key(1));
  const std::uint32_t entry = ghosts.find(key(1));
  const char* const message = "list_of_.entry. == list && index_.find\\(index_.key_of\\(entry\\)\\) == entry";
  EXPECT_DEATH(
      {
        ghosts.list_of_[entry] = GhostKeys::List::b2;
        ghosts.check_invariants(KeyIndex(1));
      },
      message);
  EXPECT_DEATH(
      {
        ghosts.index_.buckets_.assign(ghosts.index_.buckets_.size(), kNoIndex);
        ghosts.check_invariants(KeyIndex(1));
      },
      message);
}

TEST(SpoiledOffloadDeathTest, AResidentKeyIsNoGhost) {
  GhostKeys ghosts(2);
  ghosts.push(GhostKeys::List::b1, key(1));
  KeyIndex residents(1);
  residents.insert(key(1), 0);
  EXPECT_DEATH(ghosts.check_invariants(residents), "a resident key is remembered as evicted");
}

TEST(SpoiledOffloadDeathTest, ASlotOfArcKnowsWhetherItWasUsedAgain) {
  HalfUsedAgain arc;
  EXPECT_DEATH(
      {
        arc.policy.in_t2_[1] = 1;
        arc.policy.check_invariants();
      },
      "in_t2_.slot. == 0");
  EXPECT_DEATH(
      {
        arc.policy.in_t2_[3] = 0;
        arc.policy.check_invariants();
      },
      "in_t2_.slot. == 1");
}

TEST(SpoiledOffloadDeathTest, TheTargetOfArcIsWithinTheTier) {
  HalfUsedAgain arc;
  for (const double target : {-0.5, 4.5}) {
    EXPECT_DEATH(
        {
          arc.policy.target_t1_size_ = target;
          arc.policy.check_invariants();
        },
        "target_t1_size_ >= 0 && target_t1_size_ <= num_slots_");
  }
}

TEST(SpoiledOffloadDeathTest, VictimsAreThereWhereTheyAreCounted) {
  std::vector<std::uint32_t> slots;
  KeyIndex index(4);
  LruPolicy lru(4, index);
  lru.insert(0);
  EXPECT_DEATH(
      {
        lru.order_.evictable_.size_ = 1;
        lru.evict(1, {}, slots);
      },
      kVictimsAreCounted);
  HalfUsedAgain arc;
  EXPECT_DEATH(
      {
        arc.policy.t2_.evictable_.size_ = 3;
        arc.policy.evict(5, {}, slots);
      },
      kVictimsAreCounted);
}

// A policy with slots 0 and 1 of four, 1 of them used, and as keys their numbers.
template <class Policy>
struct HalfFull {
  HalfFull() {
    const std::vector<OffloadKey> both = keys({0, 1});
    std::vector<std::uint32_t> none;
    policy.evict(0, both, none);
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
      index.insert(both[slot], slot);
      policy.insert(slot);
    }
    policy.use(1);
    policy.check_invariants();
  }

  KeyIndex index{4};
  Policy policy{4, index};
};

TEST(SpoiledOffloadDeathTest, TextbookPoliciesTakeOnlyWhatIsThere) {
  const std::vector<OffloadKey> third = keys({2});
  std::vector<std::uint32_t> slots;
  HalfFull<ArcPaperPolicy> arc;
  EXPECT_DEATH(
      {
        arc.policy.queues_.orders_[0].evictable_.size_ = 1;
        arc.policy.evict(1, third, slots);
      },
      kVictimsAreCounted);
  HalfFull<S3FifoPolicy> s3fifo;
  EXPECT_DEATH(
      {
        s3fifo.policy.queues_.orders_[0].evictable_.size_ = 1;
        s3fifo.policy.evict(1, third, slots);
      },
      kVictimsAreCounted);
}

TEST(SpoiledOffloadDeathTest, WhatIsInsertedWasAnnounced) {
  HalfFull<S3FifoPolicy> s3fifo;
  EXPECT_DEATH(s3fifo.policy.insert(2), "what is inserted was announced");
}

TEST(SpoiledOffloadDeathTest, ASlotKnowsItsQueue) {
  HalfFull<S3FifoPolicy> s3fifo;
  EXPECT_DEATH(
      {
        s3fifo.policy.queues_.queue_of_[0] = SlotQueues::Queue::second;
        s3fifo.policy.check_invariants();
      },
      "a slot knows its queue");
}

TEST(SpoiledOffloadDeathTest, ArcOfThePaperRemembersTwiceTheTierAtMost) {
  HalfFull<ArcPaperPolicy> arc;
  EXPECT_DEATH(
      {
        arc.policy.num_slots_ = 0;
        arc.policy.check_invariants();
      },
      "ARC remembers too much");
  arc.policy.ghosts_.push(GhostKeys::List::b2, key(8));
  arc.policy.ghosts_.push(GhostKeys::List::b2, key(9));
  EXPECT_DEATH(
      {
        arc.policy.num_slots_ = 1;
        arc.policy.check_invariants();
      },
      "ARC remembers too much");
  for (const double target : {-0.5, 4.5}) {
    EXPECT_DEATH(
        {
          arc.policy.target_t1_size_ = target;
          arc.policy.check_invariants();
        },
        "a target beyond the tier");
  }
}

TEST(SpoiledOffloadDeathTest, AFreeSlotIsOneOfTheTier) {
  NumberLedger ledger(OffloadPolicy::lru, 1);
  ledger.put({1});
  EXPECT_DEATH(
      {
        ledger->free_.push_back(7);
        ledger.store({2});
      },
      "a slot of the tier");
}

TEST(SpoiledOffloadDeathTest, PendingEventsAreBounded) {
  NumberLedger ledger(OffloadOptions{.num_slots = 4, .enable_events = true, .max_pending_event_keys = 4});
  ledger.put({1, 2});
  EXPECT_DEATH(
      {
        ledger->max_pending_event_keys_ = 1;
        ledger.put({3});
      },
      "pending events are bounded");
}

TEST(SpoiledOffloadDeathTest, EverySlotOfTheLedgerIsAccountedFor) {
  NumberLedger ledger(OffloadPolicy::lru, 2);
  ledger.put({1});
  ledger->check_invariants();
  EXPECT_DEATH(
      {
        ledger->num_lost_ = 1;
        ledger->check_invariants();
      },
      "a slot leaked");
  EXPECT_DEATH(
      {
        ledger->num_slots_ = 0;
        ledger->check_invariants();
      },
      "a slot leaked");
}

TEST(SpoiledOffloadDeathTest, ASlotOfTheLedgerIsFreeOnce) {
  NumberLedger ledger(OffloadPolicy::lru, 2);
  ASSERT_TRUE(ledger.store({1, 2}).has_value());
  ledger.complete_store({1, 2}, false);
  ledger->check_invariants();
  ASSERT_EQ(ledger->free_.size(), 2U);
  for (const std::uint32_t wrong : {ledger->free_[1], 2U}) {
    EXPECT_DEATH(
        {
          ledger->free_[0] = wrong;
          ledger->check_invariants();
        },
        "free twice");
  }
}

TEST(SpoiledOffloadDeathTest, OnlyReadySlotsAreEvictable) {
  NumberLedger ledger(OffloadPolicy::lru, 2);
  ledger.put({1});
  for (const std::int32_t references : {-1, 1}) {
    EXPECT_DEATH(
        {
          ledger->ref_counts_[0] = references;
          ledger->check_invariants();
        },
        "only ready slots are evictable");
  }
}

TEST(SpoiledOffloadDeathTest, ResidentSlotsAreFoundByTheirKeys) {
  NumberLedger ledger(OffloadPolicy::lru, 2);
  ledger.put({1});
  EXPECT_DEATH(
      {
        ledger->index_.keys_[0] = key(2);
        ledger->check_invariants();
      },
      "num_resident == index_.size\\(\\)");
}

TEST(SpoiledOffloadDeathTest, AFullFilterHasAnOldestEntry) {
  const auto filter = ReuseFilter::create(2, 2).value();
  EXPECT_DEATH(
      {
        filter->order_.size_ = filter->index_.size_ = 2;
        filter->count(keys({1}));
      },
      "a filter has entries");
}

TEST(SpoiledOffloadDeathTest, AFilterCountsWhatItHasInOrder) {
  const auto filter = ReuseFilter::create(2, 2).value();
  filter->count(keys({1, 2}));
  filter->check_invariants();
  const char* const sizes = "index_.size\\(\\) == order_.size\\(\\) && order_.size\\(\\) <= links_.size\\(\\)";
  EXPECT_DEATH(
      {
        ++filter->index_.size_;
        filter->check_invariants();
      },
      sizes);
  EXPECT_DEATH(
      {
        filter->links_.pop_back();
        filter->check_invariants();
      },
      sizes);
  const char* const entries = "index_.find\\(index_.key_of\\(entry\\)\\) == entry && counts_.entry. > 0";
  EXPECT_DEATH(
      {
        filter->counts_[1] = 0;
        filter->check_invariants();
      },
      entries);
  EXPECT_DEATH(
      {
        filter->index_.keys_[1] = key(3);
        filter->check_invariants();
      },
      entries);
}

}  // namespace
}  // namespace quire
