#include "base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace quire {
namespace {

TEST(Random, GivesThePublishedSequenceOfSplitMix64) {
  Random random(1234567);
  EXPECT_EQ(random.next(), 6457827717110365317ULL);
  EXPECT_EQ(random.next(), 3203168211198807973ULL);
  EXPECT_EQ(random.next(), 9817491932198370423ULL);
}

TEST(Random, StaysWithinItsBoundsAndReachesThem) {
  Random random(7);
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 1000; ++i) {
    const double unit = random.unit();
    EXPECT_GE(unit, 0.0);
    EXPECT_LT(unit, 1.0);
    seen.insert(random.between(3, 6));
  }
  EXPECT_EQ(seen, (std::set<std::uint64_t>{3, 4, 5, 6}));
}

}  // namespace
}  // namespace quire
