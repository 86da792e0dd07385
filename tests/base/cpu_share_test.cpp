// Tests how much CPU time a background thread takes when other threads want the cores.
#include "base/cpu_share.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

// A thread that always has work, in pieces of a millisecond, and waits `wait_s` for a core before each piece.
struct Busy {
  CpuShareLimit limit{0.015, 2};
  double now_s = 1000.0, computed_s = 5.0, waited_s = 7.0;

  // Returns the seconds that it computes in `seconds`.
  double run(double seconds, double wait_s) {
    const double before_s = computed_s;
    for (const double end_s = now_s + seconds; now_s < end_s; now_s += 0.001) {
      if (!limit.may_continue(now_s, computed_s, waited_s)) continue;
      now_s += wait_s;
      waited_s += wait_s;
      computed_s += 0.001;
    }
    return computed_s - before_s;
  }
};

TEST(CpuShareLimit, UsesFreeCores) {
  Busy busy;
  EXPECT_NEAR(busy.run(10.0, 0.0), 10.0, 0.1);
}

TEST(CpuShareLimit, UsesItsShareOfBusyCores) {
  Busy busy;
  EXPECT_NEAR(busy.run(100.0, 0.002), 0.015 * 2 * 100.0, 0.2) << "the share and the initial credit";
  EXPECT_NEAR(busy.run(100.0, 0.002), 0.015 * 2 * 100.0, 0.01);
}

TEST(CpuShareLimit, SpeedsUpWhenTheOtherThreadsEnd) {
  Busy busy;
  busy.run(100.0, 0.002);
  EXPECT_GT(busy.run(20.0, 0.0), 15.0);
  EXPECT_LT(busy.run(100.0, 0.002), 0.015 * 2 * 100.0 + 0.2) << "time on free cores is neither debt nor credit";
}

// Deferrable work takes at most half of the credit on busy cores, and all that it needs on free cores.
TEST(CpuShareLimit, DeferrableWorkLeavesHalfOfTheCredit) {
  Busy busy;
  double spent_s = 0.0;
  for (; busy.limit.may_continue(busy.now_s, busy.computed_s, busy.waited_s) && busy.limit.has_spare_credit(); spent_s += 0.001) {
    busy.now_s += 0.003;
    busy.waited_s += 0.002;
    busy.computed_s += 0.001;
  }
  EXPECT_NEAR(spent_s, 0.05, 0.01);
  EXPECT_GT(busy.run(0.1, 0.002), 0.02) << "the other half is available for urgent work";
  busy.run(100.0, 0.002);
  EXPECT_FALSE(busy.limit.has_spare_credit());
  busy.run(20.0, 0.0);
  EXPECT_TRUE(busy.limit.has_spare_credit()) << "the cores are free";
}

TEST(CpuShare, ANewThreadMayRun) {
  EXPECT_TRUE(CpuShare(0.015).may_continue());
}

}  // namespace
}  // namespace quire
