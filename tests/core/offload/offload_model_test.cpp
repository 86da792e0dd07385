// Compares the ledger with the naive manager, and its structures with naive ones, over seeded random calls.
#include <gtest/gtest.h>

#include <map>

#include "base/random.h"
#include "core/offload/offload_support.h"
#include "core/offload/recency_order.h"

namespace quire::test {
namespace {

struct Case {
  OffloadPolicy policy;
  int num_slots;
  int threshold;
  int max_tracked;
  int num_keys;
  double twice;  // share of stores with a key given twice
  bool restores = false;
};

class Driver {
 public:
  Driver(const Case& how, std::uint64_t seed)
      : how_(how),
        random_(seed),
        ledger_({.num_slots = how.num_slots,
                 .policy = how.policy,
                 .store_threshold = how.threshold,
                 .max_tracked_keys = how.max_tracked,
                 .enable_events = true,
                 .restores = how.restores}),
        model_(how.policy, how.num_slots, how.threshold, how.max_tracked, how.restores) {}

  void step() {
    const std::uint64_t kind = random_.below(100);
    if (!model_.unread.empty() && random_.chance(0.1)) {
      restore();
    } else if (kind < 20) {
      const Numbers some = draw();
      ASSERT_EQ(ledger_.lookup(some), model_.lookup(some));
    } else if (kind < 40) {
      const Numbers some = draw();
      ledger_.touch(some);
      model_.touch(some);
      if (random_.chance(0.5)) {
        ledger_->use(keys(some));
        model_.use(some);
      }
    } else if (kind < 55) {
      load();
    } else if (kind < 65) {
      complete_load();
    } else if (kind < 85) {
      store();
    } else {
      complete_store();
    }
    compare();
  }

 private:
  Numbers draw() {
    const int length = static_cast<int>(random_.between(1, static_cast<std::uint64_t>(std::max(2, how_.num_slots / 2))));
    const int first = static_cast<int>(random_.below(static_cast<std::uint64_t>(how_.num_keys)));
    Numbers some = range(first, first + length - 1);
    if (random_.chance(0.2)) std::swap(some.front(), some.back());
    return some;
  }

  // The ledger accepts slots in any order.
  void restore() {
    const int slot = model_.unread[random_.below(model_.unread.size())];
    const std::optional<int> held =
        random_.chance(0.7) ? std::optional(static_cast<int>(random_.below(static_cast<std::uint64_t>(how_.num_keys)))) : std::nullopt;
    const OffloadKey name = key(held.value_or(0));
    const bool is_taken = ledger_->restore(OffloadSlot{static_cast<std::uint32_t>(slot)}, held ? &name : nullptr);
    ASSERT_EQ(is_taken, model_.restore(slot, held));
    ASSERT_EQ(ledger_->num_unread(), model_.unread.size());
  }

  void load() {
    const Numbers some = draw();
    const bool can = model_.can_load(some);
    const auto slots = ledger_.load(some);
    ASSERT_EQ(slots.has_value(), can);
    if (can) {
      ASSERT_EQ(*slots, model_.load(some));
      loading_.push_back(some);
    }
  }

  void complete_load() {
    // Some calls complete a load that does not exist. It must change nothing.
    const bool known = !loading_.empty() && random_.chance(0.9);
    const std::size_t which = known ? random_.below(loading_.size()) : 0;
    const Numbers some = known ? loading_[which] : draw();
    const bool can = model_.can_complete_load(some);
    ASSERT_EQ(ledger_.complete_load(some), can);
    if (can) model_.complete_load(some);
    if (known) loading_.erase(loading_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void store() {
    Numbers some = draw();
    if (random_.chance(how_.twice)) some.push_back(some.front());
    const auto store = ledger_.store(some);
    ASSERT_EQ(store, model_.store(some));
    if (store) storing_.push_back(store->keys);
  }

  void complete_store() {
    if (storing_.empty()) return;
    const std::size_t which = random_.below(storing_.size());
    const bool success = random_.chance(0.85);
    ledger_.complete_store(storing_[which], success);
    model_.complete_store(storing_[which], success);
    storing_.erase(storing_.begin() + static_cast<std::ptrdiff_t>(which));
  }

  void compare() {
    ASSERT_EQ(ledger_.lists(), model_.lists());
    ASSERT_EQ(ledger_.target(), model_.target_t1_size());
    std::map<int, int> by_slot;
    for (const auto& [number, block] : model_.blocks) {
      ASSERT_EQ(ledger_->ref_count(key(number)), block.ref_count);
      by_slot[block.slot] = number;
    }
    Numbers resident;
    for (const auto& [slot, number] : by_slot) resident.push_back(number);
    ASSERT_EQ(numbers(ledger_->resident_keys()), resident);
    ASSERT_EQ(ledger_.events(), model_.events);
    if (random_.chance(0.1)) {
      ledger_->clear_events();
      model_.events.clear();
    }
    ledger_->check_invariants();
  }

  Case how_;
  Random random_;
  NumberLedger ledger_;
  NaiveOffload model_;
  std::vector<Numbers> loading_;
  std::vector<Numbers> storing_;
};

class OffloadModel : public testing::TestWithParam<Case> {};

TEST_P(OffloadModel, DecidesLikeTheNaiveManager) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    Driver driver(GetParam(), seed);
    for (int i = 0; i < 3000; ++i) {
      driver.step();
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << ", call " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, OffloadModel,
                         testing::Values(Case{OffloadPolicy::lru, 0, 0, 1, 5, 0}, Case{OffloadPolicy::lru, 1, 0, 1, 5, 0},
                                         Case{OffloadPolicy::lru, 20, 0, 1, 50, 0}, Case{OffloadPolicy::lru, 20, 2, 15, 50, 0},
                                         Case{OffloadPolicy::lru, 40, 0, 1, 60, 0.01}, Case{OffloadPolicy::arc, 0, 0, 1, 5, 0},
                                         Case{OffloadPolicy::arc, 1, 0, 1, 5, 0}, Case{OffloadPolicy::arc, 8, 0, 1, 12, 0},
                                         Case{OffloadPolicy::arc, 20, 0, 1, 50, 0}, Case{OffloadPolicy::arc, 20, 3, 100, 50, 0},
                                         Case{OffloadPolicy::arc, 40, 0, 1, 60, 0.01}, Case{OffloadPolicy::lru, 30, 0, 1, 50, 0, true},
                                         Case{OffloadPolicy::lru, 200, 2, 15, 250, 0, true},
                                         Case{OffloadPolicy::arc, 30, 0, 1, 50, 0, true},
                                         Case{OffloadPolicy::arc, 200, 0, 1, 250, 0.01, true}));

INSTANTIATE_TEST_SUITE_P(Textbook, OffloadModel,
                         testing::Values(Case{OffloadPolicy::arc_paper, 0, 0, 1, 5, 0}, Case{OffloadPolicy::arc_paper, 1, 0, 1, 5, 0},
                                         Case{OffloadPolicy::arc_paper, 8, 0, 1, 12, 0}, Case{OffloadPolicy::arc_paper, 20, 0, 1, 50, 0},
                                         Case{OffloadPolicy::arc_paper, 20, 3, 100, 50, 0},
                                         Case{OffloadPolicy::arc_paper, 60, 0, 1, 200, 0},
                                         Case{OffloadPolicy::arc_paper, 30, 0, 1, 50, 0, true}, Case{OffloadPolicy::s3fifo, 0, 0, 1, 5, 0},
                                         Case{OffloadPolicy::s3fifo, 1, 0, 1, 5, 0}, Case{OffloadPolicy::s3fifo, 8, 0, 1, 12, 0},
                                         Case{OffloadPolicy::s3fifo, 20, 0, 1, 50, 0}, Case{OffloadPolicy::s3fifo, 20, 3, 100, 50, 0},
                                         Case{OffloadPolicy::s3fifo, 60, 0, 1, 200, 0},
                                         Case{OffloadPolicy::s3fifo, 30, 0, 1, 50, 0, true}));

// A key given twice loses its first slot for good, as with vLLM's policies. The eviction order is then unspecified.
TEST(OffloadModelTest, TextbookPoliciesKeepTheirInvariantsWhenAKeyIsGivenTwice) {
  for (const OffloadPolicy policy : {OffloadPolicy::arc_paper, OffloadPolicy::s3fifo}) {
    NumberLedger ledger(policy, 40);
    Random random(11);
    for (int i = 0; i < 2000; ++i) {
      const int first = static_cast<int>(random.below(60));
      Numbers some = range(first, first + static_cast<int>(random.below(5)));
      ledger->use(keys(some));
      if (random.chance(0.01)) some.push_back(first);
      if (const auto store = ledger.store(some)) ledger.complete_store(store->keys, random.chance(0.9));
      ledger->check_invariants();
    }
    EXPECT_GT(ledger->num_lost(), 0U);
  }
}

TEST(RecencyOrder, EvictableSlotsKeepTheOrderOfAll) {
  constexpr int kSlots = 30;
  RecencyLinks links(kSlots);
  RecencyOrder order(links);
  Numbers model;
  std::map<int, bool> evictable;
  Random random(3);
  for (int i = 0; i < 20000; ++i) {
    const int slot = static_cast<int>(random.below(kSlots));
    const auto index = static_cast<std::uint32_t>(slot);
    const bool known = std::ranges::find(model, slot) != model.end();
    const std::uint64_t kind = random.below(10);
    if (!known) {
      const bool is_oldest = random.chance(0.3);
      is_oldest ? order.push_oldest(index) : order.push_newest(index);
      model.insert(is_oldest ? model.begin() : model.end(), slot);
      evictable[slot] = false;
    } else if (kind == 0) {
      order.remove(index);
      std::erase(model, slot);
    } else if (kind < 4) {
      order.touch(index);
      std::erase(model, slot);
      model.push_back(slot);
    } else {
      evictable[slot] = kind < 7;
      order.set_evictable(index, kind < 7);
    }
    order.check_invariants();
    const auto oldest = std::ranges::find_if(model, [&](int other) { return evictable[other]; });
    ASSERT_EQ(order.oldest_evictable(), oldest == model.end() ? kNoIndex : static_cast<std::uint32_t>(*oldest));
    ASSERT_EQ(order.size(), model.size());
  }
}

TEST(KeyIndex, FindsWhatWasInsertedAndNotRemoved) {
  constexpr int kEntries = 50;
  KeyIndex index(kEntries);
  std::map<int, int> model;  // key, entry
  std::vector<int> key_of(kEntries, -1);
  Random random(4);
  for (int i = 0; i < 20000; ++i) {
    const int entry = static_cast<int>(random.below(kEntries));
    const int number = static_cast<int>(random.below(80));
    if (key_of[entry] >= 0) {
      index.remove(static_cast<std::uint32_t>(entry));
      model.erase(key_of[entry]);
      key_of[entry] = -1;
    } else if (!model.contains(number)) {
      index.insert(key(number), static_cast<std::uint32_t>(entry));
      model[number] = entry;
      key_of[entry] = number;
    }
    const int asked = static_cast<int>(random.below(80));
    ASSERT_EQ(index.find(key(asked)), model.contains(asked) ? static_cast<std::uint32_t>(model[asked]) : kNoIndex);
    ASSERT_EQ(index.size(), model.size());
  }
}

TEST(KeyIndex, TheGroupIsPartOfTheKey) {
  KeyIndex index(2);
  OffloadKey other = key(7);
  other.group = 1;
  index.insert(key(7), 0);
  EXPECT_EQ(index.find(other), kNoIndex);
  index.insert(other, 1);
  EXPECT_EQ(index.find(key(7)), 0U);
  EXPECT_EQ(index.find(other), 1U);
}

}  // namespace
}  // namespace quire::test
