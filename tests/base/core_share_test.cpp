// How much a thread in the background takes of cores that others want.
#include "base/core_share.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// A thread that always has something to do, a millisecond at a time, and waits for a core so long before each.
struct Busy {
  ShareLimit limit{0.015, 2};
  double now_s = 1000.0, computed_s = 5.0, waited_s = 7.0;

  // Seconds that it computes in so many.
  double run(double seconds, double wait_s) {
    const double before_s = computed_s;
    for (const double end_s = now_s + seconds; now_s < end_s; now_s += 0.001) {
      if (!limit.may_go_on(now_s, computed_s, waited_s)) continue;
      now_s += wait_s;
      waited_s += wait_s;
      computed_s += 0.001;
    }
    return computed_s - before_s;
  }
};

TEST(ShareLimit, CoresThatAreFreeAreTaken) {
  Busy busy;
  EXPECT_NEAR(busy.run(10.0, 0.0), 10.0, 0.1);
}

TEST(ShareLimit, OfCoresThatOthersWantItTakesItsShare) {
  Busy busy;
  EXPECT_NEAR(busy.run(100.0, 0.002), 0.015 * 2 * 100.0, 0.2) << "and what its first pause was worth";
  EXPECT_NEAR(busy.run(100.0, 0.002), 0.015 * 2 * 100.0, 0.01);
}

TEST(ShareLimit, ItGoesOnWhenTheOthersHaveEnded) {
  Busy busy;
  busy.run(100.0, 0.002);
  EXPECT_GT(busy.run(20.0, 0.0), 15.0);
  EXPECT_LT(busy.run(100.0, 0.002), 0.015 * 2 * 100.0 + 0.2) << "what free cores gave is neither owed nor owned";
}

// What can wait takes half of the credit at most where cores are wanted, and all that it needs where they are free.
TEST(ShareLimit, WhatCanWaitLeavesHalfOfTheCredit) {
  Busy busy;
  double spent_s = 0.0;
  for (; busy.limit.may_go_on(busy.now_s, busy.computed_s, busy.waited_s) && busy.limit.has_to_spare(); spent_s += 0.001) {
    busy.now_s += 0.003;
    busy.waited_s += 0.002;
    busy.computed_s += 0.001;
  }
  EXPECT_NEAR(spent_s, 0.05, 0.01);
  EXPECT_GT(busy.run(0.1, 0.002), 0.02) << "the other half is there for what cannot wait";
  busy.run(100.0, 0.002);
  EXPECT_FALSE(busy.limit.has_to_spare());
  busy.run(20.0, 0.0);
  EXPECT_TRUE(busy.limit.has_to_spare()) << "nobody wants the cores";
}

TEST(CoreShare, AThreadMayBegin) {
  EXPECT_TRUE(CoreShare(0.015).may_go_on());
}

}  // namespace
}  // namespace quire
