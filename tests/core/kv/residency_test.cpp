#include "core/kv/residency.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <optional>

#include "base/random.h"

namespace quire::test {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::vector<KvEvictionEvent> take(KvResidency& residency) {
  std::vector<KvEvictionEvent> events;
  residency.take_events(events);
  return events;
}

TEST(KvResidency, ReportsLifetimeIdleTimeAndGapsExactly) {
  KvResidency residency(8, 1.0);
  residency.begin(5 * kSecond, 0);
  residency.on_allocated(BlockId{3});
  for (std::int64_t second : {6, 8, 11}) {
    residency.begin(second * kSecond, 0);
    residency.on_accessed(BlockId{3});
  }
  residency.begin(12 * kSecond + 500, 0);
  residency.on_evicted(BlockId{3});
  const auto events = take(residency);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].lifetime, 7.0000005);
  EXPECT_EQ(events[0].idle, 1.0000005);
  EXPECT_EQ(events[0].reuse_gaps, (std::vector<double>{2.0, 3.0}));
  EXPECT_TRUE(take(residency).empty()) << "events are taken once";
}

TEST(KvResidency, ReportsABlockNeverUsedAgainAsIdleAllItsLife) {
  KvResidency residency(8, 1.0);
  residency.on_allocated(BlockId{0});
  EXPECT_EQ(residency.followed().at(0).block, BlockId{0});
  residency.begin(2 * kSecond, 0);
  residency.on_evicted(BlockId{0});
  const auto events = take(residency);
  EXPECT_EQ(events.at(0).lifetime, 2.0);
  EXPECT_EQ(events.at(0).idle, 2.0);
  EXPECT_TRUE(events.at(0).reuse_gaps.empty());
}

TEST(KvResidency, DoesNotFollowAnEvictedBlockUntilItIsAllocatedAgain) {
  KvResidency residency(8, 1.0);
  residency.on_allocated(BlockId{1});
  residency.on_evicted(BlockId{1});
  residency.on_evicted(BlockId{1});
  residency.on_accessed(BlockId{1});
  EXPECT_EQ(take(residency).size(), 1U);
}

TEST(KvResidency, FollowsBlocksWithoutMakingEventsWhenEventsAreDisabled) {
  KvResidency residency(8, 1.0, false);
  residency.on_allocated(BlockId{1});
  EXPECT_EQ(residency.followed().size(), 1U);
  residency.on_evicted(BlockId{1});
  EXPECT_TRUE(residency.followed().empty());
  EXPECT_TRUE(take(residency).empty());
}

TEST(KvResidency, ResetForgetsBlocksAndEvents) {
  KvResidency residency(8, 1.0);
  residency.on_allocated(BlockId{1});
  residency.on_allocated(BlockId{2});
  residency.on_evicted(BlockId{1});
  residency.reset();
  residency.on_evicted(BlockId{2});
  EXPECT_TRUE(take(residency).empty());
}

TEST(KvResidency, RateZeroFollowsNothing) {
  KvResidency residency(8, 0.0);
  residency.on_allocated(BlockId{1});
  residency.on_accessed(BlockId{1});
  residency.on_evicted(BlockId{1});
  residency.reset();
  EXPECT_TRUE(take(residency).empty());
}

TEST(KvResidency, FollowsTheRequestedShare) {
  KvResidency residency(1, 0.25);
  Random random(7);
  int num_followed = 0;
  for (int i = 0; i < 20000; ++i) {
    residency.begin(i, random.next());
    residency.on_allocated(BlockId{0});
    residency.on_evicted(BlockId{0});
    num_followed += static_cast<int>(take(residency).size());
  }
  EXPECT_NEAR(num_followed, 5000, 300);
}

// Uses vLLM's structure: a dictionary of lifetimes, each with a bounded queue of accesses.
struct NaiveResidency {
  struct Life {
    std::int64_t birth, last;
    std::deque<std::int64_t> accesses;
  };
  std::map<std::uint32_t, Life> lives;

  std::optional<KvEvictionEvent> evict(std::uint32_t block, std::int64_t now) {
    const auto found = lives.find(block);
    if (found == lives.end()) return std::nullopt;
    const auto seconds = [](std::int64_t ns) { return static_cast<double>(ns) / 1e9; };
    KvEvictionEvent event{.lifetime = seconds(now - found->second.birth), .idle = seconds(now - found->second.last), .reuse_gaps = {}};
    const auto& accesses = found->second.accesses;
    for (std::size_t i = 1; i < accesses.size(); ++i) event.reuse_gaps.push_back(seconds(accesses[i] - accesses[i - 1]));
    lives.erase(found);
    return event;
  }
};

TEST(KvResidency, EqualsTheNaiveModelOverRandomEvents) {
  Random random(11);
  KvResidency residency(12, 1.0);
  NaiveResidency naive;
  std::int64_t now = 0;
  std::size_t num_events = 0;
  for (int i = 0; i < 20000; ++i) {
    now += static_cast<std::int64_t>(random.below(3 * kSecond));
    residency.begin(now, random.next());
    const auto block = static_cast<std::uint32_t>(random.below(12));
    switch (random.below(8)) {
      case 0:
        residency.on_allocated(BlockId{block});
        naive.lives[block] = {now, now, {}};
        break;
      case 1: {
        residency.on_evicted(BlockId{block});
        const auto expected = naive.evict(block, now);
        const auto events = take(residency);
        ASSERT_EQ(events.size(), expected ? 1U : 0U);
        if (expected) {
          ++num_events;
          EXPECT_EQ(events[0].lifetime, expected->lifetime);
          EXPECT_EQ(events[0].idle, expected->idle);
          EXPECT_EQ(events[0].reuse_gaps, expected->reuse_gaps);
        }
        break;
      }
      default:
        residency.on_accessed(BlockId{block});
        if (const auto found = naive.lives.find(block); found != naive.lives.end()) {
          found->second.last = now;
          found->second.accesses.push_back(now);
          if (found->second.accesses.size() > 4) found->second.accesses.pop_front();
        }
    }
  }
  EXPECT_GT(num_events, 500U);
}

}  // namespace
}  // namespace quire::test
