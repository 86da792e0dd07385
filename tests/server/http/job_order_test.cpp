// Tests which client's job starts and which job continues. The decision depends on used time and needs no threads or clocks.
#include "server/http/job_order.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace quire {
namespace {

using namespace std::chrono_literals;
using JobId = JobOrder::Id;

constexpr std::uint64_t kLargeUnit = std::uint64_t{1} << 20;

TEST(JobOrder, GivesATurnToTheClientThatHasUsedLess) {
  JobOrder order({});
  const JobId a = *order.add("a", 10), b = *order.add("b", 10);
  EXPECT_EQ(order.turn(), std::nullopt) << "no job has started";
  EXPECT_EQ(order.next(), a);
  EXPECT_EQ(order.turn(), a);
  EXPECT_EQ(order.next(), b);
  order.charge(a, 5s);
  EXPECT_EQ(order.turn(), b);
  order.charge(b, 6s);
  EXPECT_EQ(order.turn(), a);
  order.charge(a, 7s);
  order.end(b);
  EXPECT_EQ(order.turn(), a);
}

TEST(JobOrder, SharesTimeEquallyHoweverManyJobsAClientHas) {
  JobOrder order({.max_jobs = 1000});
  std::vector<JobId> of_a;
  for (int i = 0; i < 8; ++i) of_a.push_back(*order.add("a", 10));
  const JobId b = *order.add("b", 10);
  while (order.next()) {
  }
  std::map<JobId, JobOrder::Time> used;
  for (int slice = 0; slice < 1000; ++slice) {
    const JobId turn = *order.turn();
    order.charge(turn, used[turn] += 10ms);
  }
  EXPECT_NEAR(static_cast<double>(used[b].count()), 5e9, 1.2e8);
  // The jobs of one client share its time equally.
  for (const JobId id : of_a)
    if (used.contains(id)) EXPECT_NEAR(static_cast<double>(used[id].count()), static_cast<double>(used[of_a[0]].count()), 2e7);
}

TEST(JobOrder, ShortJobEndsBeforeLongJobsOfTheSameClient) {
  JobOrder order({});
  const JobId first = *order.add("a", kLargeUnit / 2), second = *order.add("a", kLargeUnit / 2);
  EXPECT_EQ(order.next(), first);
  EXPECT_EQ(order.next(), second);
  order.charge(first, 2s);
  order.charge(second, 1s);
  const JobId late = *order.add("a", 100);
  EXPECT_EQ(order.next(), late);
  EXPECT_EQ(order.turn(), late);
  order.charge(late, 20ms);
  EXPECT_EQ(order.turn(), late);
}

TEST(JobOrder, NewClientDoesNotDelayClientsThatUsedMuch) {
  JobOrder order({});
  const JobId a = *order.add("a", 10);
  EXPECT_EQ(order.next(), a);
  order.charge(a, 100s);
  const JobId b = *order.add("b", 10);
  EXPECT_EQ(order.next(), b);
  EXPECT_EQ(order.turn(), b);
  order.charge(b, JobOrder::kCredit + 1ms);
  EXPECT_EQ(order.turn(), a) << "a new client starts 100 ms below, not 100 s";
}

TEST(JobOrder, LimitsJobsPerClientToTheFreeSlots) {
  JobOrder order({.max_jobs = 9});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(order.add("a", 1)) << i;
  EXPECT_FALSE(order.add("a", 1)) << "the client has 5 slots, 4 are free";
  EXPECT_TRUE(order.add("b", 1));
  EXPECT_TRUE(order.add("b", 1));
  EXPECT_FALSE(order.add("b", 1));
  EXPECT_TRUE(order.add("c", 1));
  EXPECT_TRUE(order.add("d", 1)) << "a new client finds room";
  EXPECT_FALSE(order.add("e", 1)) << "the queue is full";
}

TEST(JobOrder, LimitsStartedJobsPerClient) {
  JobOrder order({.max_started = 4});
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(order.add("a", 1));
  while (order.next()) {
  }
  EXPECT_EQ(order.num_started(), 2U);
  const JobId b = *order.add("b", 1);
  EXPECT_EQ(order.next(), b);
  const JobId c = *order.add("c", 1);
  EXPECT_EQ(order.next(), c);
  EXPECT_EQ(order.next(), std::nullopt);
}

TEST(JobOrder, StartsOneLargeJobPerClient) {
  JobOrder order({.max_started_bytes = 32 * kLargeUnit});
  const JobId first = *order.add("a", 10 * kLargeUnit), second = *order.add("a", 10 * kLargeUnit);
  EXPECT_EQ(order.next(), first);
  EXPECT_EQ(order.next(), std::nullopt);
  const JobId small = *order.add("a", kLargeUnit);
  EXPECT_EQ(order.next(), small) << "small jobs do not count";
  const JobId other = *order.add("b", 16 * kLargeUnit);
  EXPECT_EQ(order.next(), other);
  const JobId third = *order.add("c", 16 * kLargeUnit);
  EXPECT_EQ(order.next(), std::nullopt) << "at most 32 MiB are read at the same time";
  order.end(other);
  EXPECT_EQ(order.next(), third);
  order.end(first);
  order.end(third);
  EXPECT_EQ(order.next(), second);
}

TEST(JobOrder, SmallJobsStartNextToALargeJobOfTheirClient) {
  JobOrder order({.max_started_bytes = 32 * kLargeUnit});
  const JobId large = *order.add("a", 20 * kLargeUnit);
  EXPECT_EQ(order.next(), large);
  const JobId small = *order.add("a", kLargeUnit);
  EXPECT_EQ(order.next(), small) << "the large job takes more than half of the bytes";
}

TEST(JobOrder, JobLargerThanTheLimitRunsAlone) {
  JobOrder order({.max_started_bytes = 4 * kLargeUnit});
  const JobId huge = *order.add("a", 100 * kLargeUnit);
  EXPECT_EQ(order.next(), huge);
  const JobId next = *order.add("b", 2 * kLargeUnit);
  EXPECT_EQ(order.next(), std::nullopt);
  order.end(huge);
  EXPECT_EQ(order.next(), next);
}

TEST(JobOrder, OtherLargeJobsDoNotOvertakeAWaitingLargeJob) {
  JobOrder order({.max_started_bytes = 8 * kLargeUnit});
  const JobId first = *order.add("a", 5 * kLargeUnit);
  EXPECT_EQ(order.next(), first);
  const JobId waiting = *order.add("b", 6 * kLargeUnit);
  const JobId later = *order.add("c", 7 * kLargeUnit), small = *order.add("c", 100);
  EXPECT_EQ(order.next(), small);
  EXPECT_EQ(order.next(), std::nullopt);
  order.end(first);
  EXPECT_EQ(order.next(), waiting);
  EXPECT_EQ(order.next(), std::nullopt);
  order.end(waiting);
  EXPECT_EQ(order.next(), later);
}

TEST(JobOrder, StartsSmallJobsBeforeEarlierLargeJobsForALimitedTime) {
  JobOrder order({.max_jobs = 1000, .max_started = 1});
  const JobId large = *order.add("a", 5 * kLargeUnit);
  int num_passed = 0;
  for (; num_passed < 100; ++num_passed) {
    ASSERT_TRUE(order.add("a", kLargeUnit));
    const JobId started = *order.next();
    if (started == large) break;
    order.end(started);
  }
  EXPECT_EQ(num_passed, 4);
}

TEST(JobOrder, StartsTheClientsInTurn) {
  JobOrder order({.max_jobs = 1000, .max_started = 1});
  std::map<JobId, std::string> owner;
  for (int i = 0; i < 50; ++i) owner[*order.add("a", 1)] = "a";
  for (int i = 0; i < 3; ++i) owner[*order.add("b", 1)] = "b";
  std::string started;
  for (int i = 0; i < 8; ++i) {
    const JobId id = *order.next();
    started += owner[id];
    order.end(id);
  }
  EXPECT_EQ(started,
            "ababab"
            "aa");
}

TEST(JobOrders, ChargeAndForgetTheirJobs) {
  JobOrder order({.max_jobs = 4, .max_started = 2, .max_started_bytes = 8 << 20});
  EXPECT_FALSE(order.turn());
  EXPECT_FALSE(order.next());
  const auto a = order.add("a", 1), b = order.add("b", 1), a2 = order.add("a", 1);
  ASSERT_TRUE(a && b && a2);
  EXPECT_FALSE(order.add("a", 1)) << "one slot is free, and the client has two jobs";
  EXPECT_EQ(order.size(), 3U);
  EXPECT_EQ(order.next(), a);
  EXPECT_EQ(order.next(), b) << "the other client goes first";
  EXPECT_FALSE(order.next()) << "two threads";
  EXPECT_EQ(order.num_started(), 2U);
  EXPECT_EQ(order.turn(), a);
  order.charge(*a, std::chrono::milliseconds(5));
  EXPECT_EQ(order.turn(), b);
  order.charge(*b, std::chrono::milliseconds(6));
  EXPECT_EQ(order.turn(), a);
  order.charge(*a, std::chrono::milliseconds(3));
  EXPECT_EQ(order.turn(), a) << "a smaller total changes nothing";
  order.end(*a);
  EXPECT_EQ(order.num_started(), 1U);
  EXPECT_EQ(order.next(), a2);
  order.end(*b);
  order.end(*a2);
  EXPECT_EQ(order.size(), 0U);
  EXPECT_EQ(order.num_started(), 0U);
}

TEST(JobOrders, LargeJobsShareTheirBytes) {
  constexpr std::uint64_t kOneMiB = std::uint64_t{1} << 20;
  JobOrder order({.max_jobs = 64, .max_started = 16, .max_started_bytes = 16 * kOneMiB});
  const auto first = order.add("a", 4 * kOneMiB), second = order.add("a", 2 * kOneMiB + 1), third = order.add("a", 2 * kOneMiB);
  ASSERT_TRUE(first && second && third);
  EXPECT_EQ(order.next(), third) << "the smallest of a client goes first";
  EXPECT_EQ(order.next(), second) << "4 MiB and one byte are less than half of the free 14 MiB";
  EXPECT_FALSE(order.next()) << "8 MiB and one byte are more than half of the free 12 MiB";
  const auto exact = order.add("b", 12 * kOneMiB);
  EXPECT_FALSE(order.next()) << "one byte too few is free";
  order.end(*second);
  EXPECT_EQ(order.next(), exact) << "14 MiB are free, and this client has no other job";
  EXPECT_FALSE(order.next()) << "2 MiB are free";
  order.end(*third);
  EXPECT_EQ(order.next(), first) << "exactly 4 MiB are free";
  const auto small = order.add("c", kOneMiB);
  EXPECT_EQ(order.next(), small) << "a job of 1 MiB does not count";
}

}  // namespace
}  // namespace quire
