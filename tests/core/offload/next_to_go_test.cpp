// Tests the predicted next victims of the policies with two queues. They come in queue order from the oldest on, and the queue that the
// policy would evict from now comes first.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"
#include "core/offload/offload_support.h"
#include "core/offload/slot_queues.h"
#include "support/rounds.h"

namespace quire::test {
namespace {

// Returns vLLM's picks in order: from T1 until it falls below its target, then only from T2.
Numbers expected_of_arc(NumberLedger& ledger, const PolicySnapshot& now) {
  const auto may_go = [&](const OffloadKey& key) { return ledger->ref_count(key) == 0; };
  Numbers next;
  for (const OffloadKey& key : now.lists[0])
    if (may_go(key) && now.lists[0].size() - next.size() >= static_cast<std::size_t>(now.target_t1_size)) next.push_back(number(key));
  for (const OffloadKey& key : now.lists[1])
    if (may_go(key)) next.push_back(number(key));
  return next;
}

Numbers expected_next(NumberLedger& ledger, OffloadPolicy policy, std::uint32_t num_slots) {
  const PolicySnapshot now = ledger->snapshot();
  if (policy == OffloadPolicy::arc) return expected_of_arc(ledger, now);
  const bool first_one = policy == OffloadPolicy::s3fifo ? now.lists[0].size() >= std::max(1U, num_slots / 10)
                                                         : static_cast<double>(now.lists[0].size()) > now.target_t1_size;
  Numbers next;
  for (const std::size_t list : {first_one ? 0U : 1U, first_one ? 1U : 0U})
    for (const OffloadKey& key : now.lists[list])
      if (ledger->ref_count(key) == 0) next.push_back(number(key));
  return next;
}

TEST(NextToGo, ListsOneQueueAndThenTheOther) {
  for (const OffloadPolicy policy : {OffloadPolicy::s3fifo, OffloadPolicy::arc_paper, OffloadPolicy::arc}) {
    std::size_t num_of_both = 0, num_of_second = 0, num_cut = 0;
    for (std::uint64_t seed = 1; seed <= rounds_of(20); ++seed) {
      Random random(seed);
      const auto num_slots = static_cast<std::uint32_t>(random.between(1, 30));
      NumberLedger ledger(policy, num_slots);
      Numbers loading;
      for (int i = 0; i < 150; ++i) {
        const int wanted = static_cast<int>(random.below(std::uint64_t{num_slots} * 2));
        if (random.chance(0.3)) policy == OffloadPolicy::arc ? ledger.touch({wanted}) : ledger->use(keys({wanted}));
        if (ledger->ref_count(key(wanted)) == 0 && random.chance(0.5)) {
          ASSERT_TRUE(ledger.load({wanted}).has_value());
          if (random.chance(0.8))
            ASSERT_TRUE(ledger.complete_load({wanted}));
          else
            loading.push_back(wanted);
        } else if (ledger->ref_count(key(wanted)) == std::nullopt) {
          if (ledger->prepare_store(keys({wanted}))) ledger->complete_store(keys({wanted}));
        }
        if (!loading.empty() && random.chance(0.2)) {
          ASSERT_TRUE(ledger.complete_load({loading.back()}));
          loading.pop_back();
        }
        const Numbers expected = expected_next(ledger, policy, num_slots);
        for (const std::size_t most :
             {std::size_t{0}, std::size_t{1}, static_cast<std::size_t>(random.below(num_slots + 2)), std::size_t{100}}) {
          std::vector<OffloadKey> next = keys({-1});
          ledger->append_next_victims(most, next);
          Numbers wanted_keys = {-1};
          for (std::size_t k = 0; k < std::min(most, expected.size()); ++k) wanted_keys.push_back(expected[k]);
          ASSERT_EQ(numbers(next), wanted_keys) << "seed " << seed << ", " << most << " of " << num_slots;
        }
        const PolicySnapshot now = ledger->snapshot();
        num_of_both += !now.lists[0].empty() && !now.lists[1].empty() ? 1 : 0;
        num_of_second += expected.empty() || now.lists[0].empty() ? 0 : expected[0] != number(now.lists[0][0]) ? 1 : 0;
        std::size_t num_evictable = 0;
        for (const OffloadKey& one : ledger->resident_keys()) num_evictable += ledger->ref_count(one) == 0 ? 1 : 0;
        num_cut += !expected.empty() && expected.size() < num_evictable ? 1 : 0;
      }
    }
    EXPECT_GT(num_of_both, rounds_of(20) * 20) << "both queues had keys";
    EXPECT_GT(num_of_second, rounds_of(20)) << "the second queue came first in some cases";
    if (policy == OffloadPolicy::arc) EXPECT_GT(num_cut, rounds_of(20)) << "some keys of T1 had to stay in some cases";
  }
}

TEST(SlotQueues, AppendsTheOldestSlotsToTheResult) {
  SlotQueues queues(6);
  const auto put = [&](SlotQueues::Queue queue, std::uint32_t slot) {
    queues.announce(queue);
    queues.insert(slot);
    queues.set_evictable(slot, true);
  };
  using enum SlotQueues::Queue;
  for (const std::uint32_t slot : {4U, 1U}) put(first, slot);
  for (const std::uint32_t slot : {5U, 0U, 3U}) put(second, slot);
  queues.set_evictable(0, false);
  const auto next = [&](SlotQueues::Queue queue, std::size_t most) {
    std::vector<std::uint32_t> slots = {9, 9, 9};
    queues.append_oldest(queue, most, slots);
    return std::vector<std::uint32_t>(slots.begin() + 3, slots.end());
  };
  using Slots = std::vector<std::uint32_t>;
  EXPECT_EQ(next(first, 1), (Slots{4}));
  EXPECT_EQ(next(first, 2), (Slots{4, 1}));
  EXPECT_EQ(next(first, 3), (Slots{4, 1, 5}));
  EXPECT_EQ(next(first, 9), (Slots{4, 1, 5, 3}));
  EXPECT_EQ(next(second, 1), (Slots{5}));
  EXPECT_EQ(next(second, 3), (Slots{5, 3, 4}));
  EXPECT_EQ(next(second, 0), Slots{});
}

}  // namespace
}  // namespace quire::test
