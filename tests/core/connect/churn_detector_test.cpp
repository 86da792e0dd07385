// Tests when a tier stops storing all blocks, and when it stores all blocks again.
#include "core/connect/churn_detector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace quire::test {
namespace {

constexpr std::uint64_t kWindow = ChurnDetector::kLeastWindow;

std::uint64_t num_taken(ChurnDetector& gauge, std::uint64_t count) {
  std::uint64_t taken = 0;
  for (std::uint64_t i = 0; i < count; ++i) taken += gauge.should_store_next() ? 1 : 0;
  return taken;
}

TEST(ChurnDetector, StoresAllUntilAFullTierOfBlocksIsEvictedWithoutALoad) {
  ChurnDetector gauge(4 * kWindow);
  gauge.evicted(4 * kWindow - 1);
  EXPECT_EQ(num_taken(gauge, 80), 80U);
  gauge.evicted(1);
  EXPECT_TRUE(gauge.is_churning());
  EXPECT_EQ(num_taken(gauge, 80), 80U / ChurnDetector::kEvery);
}

TEST(ChurnDetector, DoesNotChurnWhenOneBlockInSixteenIsLoaded) {
  for (const std::uint64_t num_found : {kWindow / 16 - 1, kWindow / 16}) {
    ChurnDetector gauge(1);
    gauge.loaded(num_found);
    gauge.evicted(kWindow);
    EXPECT_EQ(gauge.is_churning(), num_found < kWindow / 16);
  }
}

TEST(ChurnDetector, EndsChurnWhenLoadsAreFourTimesTheEvictions) {
  ChurnDetector gauge(1);
  gauge.evicted(kWindow);
  gauge.evicted(kWindow / 4);
  gauge.loaded(kWindow - 1);
  EXPECT_TRUE(gauge.is_churning());
  gauge.loaded(1);
  EXPECT_FALSE(gauge.is_churning());
}

// Loads of a sixteenth of the tier's blocks end the churn. Fewer loads do not.
TEST(ChurnDetector, EndsChurnWhenASixteenthOfATierIsLoaded) {
  ChurnDetector gauge(1);
  gauge.evicted(kWindow);
  gauge.loaded(kWindow / ChurnDetector::kEvery - 1);
  EXPECT_TRUE(gauge.is_churning());
  gauge.loaded(1);
  EXPECT_FALSE(gauge.is_churning());
}

// An LRU tier serves requests that repeat in turn. First there are more requests than the tier holds, then half as many.
TEST(ChurnDetector, KeepsSomeRequestsWhenTheTierIsTooSmallAndAllWhenTheyFit) {
  constexpr std::size_t kPlaces = 256, kBlocks = 8;
  for (const std::size_t times : {2, 5, 10}) {
    for (const bool thins : {false, true}) {
      ChurnDetector gauge(kPlaces * kBlocks);
      std::deque<std::size_t> held;  // the most recently used request is at the back
      std::uint64_t num_found = 0, num_written = 0;
      const auto ask = [&](std::size_t request) {
        if (const auto at = std::ranges::find(held, request); at != held.end()) {
          held.erase(at);
          gauge.loaded(kBlocks);
          ++num_found;
        } else if (thins && held.size() == kPlaces && !gauge.should_store_next()) {
          return;
        } else {
          ++num_written;
          if (held.size() == kPlaces) {
            held.pop_front();
            gauge.evicted(kBlocks);
          }
        }
        held.push_back(request);
      };
      constexpr std::uint64_t kPasses = 20;
      for (std::uint64_t pass = 0; pass < kPasses; ++pass)
        for (std::size_t request = 0; request < times * kPlaces; ++request) ask(request);
      const std::uint64_t num_asked = kPasses * times * kPlaces;
      if (!thins) {
        EXPECT_EQ(num_found, 0U) << "each request is evicted before it repeats";
        continue;
      }
      EXPECT_LT(num_written, num_asked * 6 / 10) << times;
      EXPECT_GT(num_found, num_asked * 3 / 100) << times;
      num_found = 0;
      for (std::uint64_t pass = 0; pass < kPasses; ++pass)
        for (std::size_t request = 0; request < kPlaces / 2; ++request) ask(1'000'000 + request);
      EXPECT_GT(num_found, kPasses * kPlaces / 2 * 4 / 10) << "a workload that fits is stored soon";
    }
  }
}

}  // namespace
}  // namespace quire::test
