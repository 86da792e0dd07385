// Tests prepare_store_of_leading(): it stores as many leading keys as fit and evicts no key that must be kept.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "core/offload/offload_support.h"

namespace quire::test {
namespace {

struct Leading {
  Numbers keys, evicted, left;
};

Leading store_leading(NumberLedger& ledger, const Numbers& which, const Numbers& kept = {}) {
  const PreparedStore store = ledger->prepare_store_of_leading(keys(which), keys(kept));
  EXPECT_EQ(store.keys.size(), store.slots.size());
  return {numbers(store.keys), numbers(store.evicted), numbers(store.left)};
}

class LeadingTest : public testing::TestWithParam<OffloadPolicy> {};
INSTANTIATE_TEST_SUITE_P(Policies, LeadingTest,
                         testing::Values(OffloadPolicy::lru, OffloadPolicy::arc, OffloadPolicy::arc_paper, OffloadPolicy::s3fifo));

TEST_P(LeadingTest, StoresTheFirstKeysWhenTheyExceedTheTier) {
  NumberLedger ledger(GetParam(), 5);
  const Leading first = store_leading(ledger, range(1, 8));
  EXPECT_EQ(first.keys, range(1, 5));
  EXPECT_EQ(first.left, range(6, 8));
  ledger.complete_store(range(1, 5));
  // A second request evicts the first one's blocks, and not its own.
  const Leading second = store_leading(ledger, range(21, 23));
  EXPECT_EQ(second.keys, range(21, 23));
  EXPECT_EQ(second.evicted.size(), 3U);
  ledger.complete_store(second.keys);
  const Leading rest = store_leading(ledger, range(24, 29), range(21, 23));
  EXPECT_EQ(rest.keys, range(24, 25));
  EXPECT_EQ(rest.left, range(26, 29));
  ledger.complete_store(rest.keys);
  EXPECT_EQ(ledger.lookup(range(21, 29)), 5);
  const Leading none = store_leading(ledger, {26}, range(21, 25));
  EXPECT_TRUE(none.keys.empty() && none.evicted.empty());
  EXPECT_EQ(none.left, (Numbers{26}));
  ledger->check_invariants();
}

TEST_P(LeadingTest, UsesFreeSlotsWhileOthersAreInTransfer) {
  NumberLedger ledger(GetParam(), 6);
  ASSERT_TRUE(ledger.store(range(1, 4)));
  const Leading stored = store_leading(ledger, {1, 11, 12, 13, 14});
  EXPECT_EQ(stored.keys, (Numbers{11, 12})) << "key 1 is stored already, and two slots are free";
  EXPECT_EQ(stored.left, (Numbers{13, 14}));
  ledger.complete_store(range(1, 4));
  ledger.complete_store(stored.keys);
  ledger->check_invariants();
}

TEST(LeadingTest, EvictsNothingWhileSlotsAreUnread) {
  NumberLedger ledger(OffloadOptions{.num_slots = 4, .restores = true});
  const OffloadKey old = key(9);
  ledger->restore(OffloadSlot{0}, &old);
  ledger->restore(OffloadSlot{1}, nullptr);
  const Leading stored = store_leading(ledger, range(1, 3));
  EXPECT_EQ(stored.keys, (Numbers{1}));
  EXPECT_TRUE(stored.evicted.empty());
  EXPECT_EQ(stored.left, (Numbers{2, 3}));
}

// The expected count is the free slots plus the slots that can be evicted without requested or kept keys.
TEST_P(LeadingTest, StoresAsManyAsAreFreeOrCanBeEvicted) {
  std::uint64_t num_whole = 0, num_cut = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    const auto num_slots = static_cast<int>(random.between(1, 12));
    NumberLedger ledger(GetParam(), num_slots);
    std::vector<Numbers> open;
    for (int step = 0; step < 60; ++step) {
      const auto first = static_cast<int>(random.below(40));
      const Numbers wanted = range(first, first + static_cast<int>(random.below(9)));
      const Numbers kept = random.chance(0.4) ? range(first - static_cast<int>(random.below(4)), first - 1) : Numbers{};
      if (random.chance(0.3)) ledger.touch(wanted);
      Numbers missing, resident = numbers(ledger->resident_keys());
      for (const int number : wanted)
        if (!ledger->contains(key(number))) missing.push_back(number);
      const auto can_go = [&](int number) {
        return ledger->ref_count(key(number)) == 0 && std::ranges::count(wanted, number) + std::ranges::count(kept, number) == 0;
      };
      const auto room = ledger->num_free() + static_cast<std::size_t>(std::ranges::count_if(resident, can_go));
      const std::size_t most = std::min(missing.size(), room);
      const Leading stored = store_leading(ledger, wanted, kept);
      // vLLM's ARC may find no victim where there are some.
      if (GetParam() != OffloadPolicy::arc) ASSERT_EQ(stored.keys.size(), most) << "seed " << seed << ", step " << step;
      ASSERT_LE(stored.keys.size(), most);
      Numbers all = stored.keys;
      all.insert(all.end(), stored.left.begin(), stored.left.end());
      ASSERT_EQ(all, missing) << "keys are stored in order";
      ++(stored.left.empty() ? num_whole : num_cut);
      for (const int number : stored.evicted) {
        EXPECT_EQ(std::ranges::count(resident, number), 1);
        EXPECT_EQ(std::ranges::count(wanted, number) + std::ranges::count(kept, number), 0) << number;
      }
      open.push_back(stored.keys);
      if (random.chance(0.7)) {
        const auto which = static_cast<std::size_t>(random.below(open.size()));
        ledger.complete_store(open[which], random.chance(0.9));
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
      }
      ledger->check_invariants();
    }
  }
  EXPECT_GT(num_whole, 500U) << "the test covers too few cases";
  EXPECT_GT(num_cut, 200U);
}

}  // namespace
}  // namespace quire::test
