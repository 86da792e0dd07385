// When a tier stops storing all, and when it stores all again.
#include "core/connect/churn_gauge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>

namespace quire {
namespace {

constexpr std::uint64_t kWindow = ChurnGauge::kLeastWindow;

std::uint64_t num_taken(ChurnGauge& gauge, std::uint64_t count) {
  std::uint64_t taken = 0;
  for (std::uint64_t i = 0; i < count; ++i) taken += gauge.takes_next() ? 1 : 0;
  return taken;
}

TEST(ChurnGauge, AllIsStoredUntilATierfulHasLeftUnfound) {
  ChurnGauge gauge(4 * kWindow);
  gauge.evicted(4 * kWindow - 1);
  EXPECT_EQ(num_taken(gauge, 80), 80U);
  gauge.evicted(1);
  EXPECT_TRUE(gauge.churns());
  EXPECT_EQ(num_taken(gauge, 80), 80U / ChurnGauge::kEvery);
}

TEST(ChurnGauge, OneFoundInSixteenIsEnough) {
  for (const std::uint64_t num_found : {kWindow / 16 - 1, kWindow / 16}) {
    ChurnGauge gauge(1);
    gauge.loaded(num_found);
    gauge.evicted(kWindow);
    EXPECT_EQ(gauge.churns(), num_found < kWindow / 16);
  }
}

TEST(ChurnGauge, WhatIsFoundFourTimesBeforeItLeavesEndsIt) {
  ChurnGauge gauge(1);
  gauge.evicted(kWindow);
  gauge.evicted(kWindow / 4);
  gauge.loaded(kWindow - 1);
  EXPECT_TRUE(gauge.churns());
  gauge.loaded(1);
  EXPECT_FALSE(gauge.churns());
}

// A sixteenth of a tierful is enough to see that it is found again, and less is not.
TEST(ChurnGauge, AFewThatAreFoundEndItAndFewerDoNot) {
  ChurnGauge gauge(1);
  gauge.evicted(kWindow);
  gauge.loaded(kWindow / ChurnGauge::kEvery - 1);
  EXPECT_TRUE(gauge.churns());
  gauge.loaded(1);
  EXPECT_FALSE(gauge.churns());
}

// A tier of some requests, the least recently used of which goes, under requests that come again and again in turn, more than it holds;
// then half as many.
TEST(ChurnGauge, ATierThatIsTooSmallKeepsSomeAndOneThatFitsKeepsAll) {
  constexpr std::size_t kPlaces = 256, kBlocks = 8;
  for (const std::size_t times : {2, 5, 10}) {
    for (const bool thins : {false, true}) {
      ChurnGauge gauge(kPlaces * kBlocks);
      std::deque<std::size_t> held;  // the most recently used at the back
      std::uint64_t num_found = 0, num_written = 0;
      const auto ask = [&](std::size_t request) {
        if (const auto at = std::ranges::find(held, request); at != held.end()) {
          held.erase(at);
          gauge.loaded(kBlocks);
          ++num_found;
        } else if (thins && held.size() == kPlaces && !gauge.takes_next()) {
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
        EXPECT_EQ(num_found, 0U) << "in turn, each goes before it comes again";
        continue;
      }
      EXPECT_LT(num_written, num_asked * 6 / 10) << times;
      EXPECT_GT(num_found, num_asked * 3 / 100) << times;
      num_found = 0;
      for (std::uint64_t pass = 0; pass < kPasses; ++pass)
        for (std::size_t request = 0; request < kPlaces / 2; ++request) ask(1'000'000 + request);
      EXPECT_GT(num_found, kPasses * kPlaces / 2 * 4 / 10) << "a workload that fits is kept soon";
    }
  }
}

}  // namespace
}  // namespace quire
