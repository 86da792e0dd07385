#include "server/http/job_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace quire {
namespace {

using Lane = JobPool::Lane;

TEST(JobPool, AJobIsDoneOnTheServersThread) {
  boost::asio::io_context io;
  JobPool pool(io, {.max_jobs = 4, .low_priority = false});
  std::thread::id worked, done;
  ASSERT_TRUE(pool.submit(
      Lane::large, [&] { worked = std::this_thread::get_id(); },
      [&] {
        done = std::this_thread::get_id();
        io.stop();
      }));
  EXPECT_EQ(pool.num_jobs(Lane::large), 1U);
  io.run();
  EXPECT_EQ(done, std::this_thread::get_id());
  EXPECT_NE(worked, std::this_thread::get_id());
  EXPECT_EQ(pool.num_jobs(Lane::large), 0U);
}

TEST(JobPool, SmallJobsPassABlockedLargeOne) {
  boost::asio::io_context io;
  JobPool pool(io, {.max_jobs = 100, .low_priority = false});
  std::promise<void> gate;
  std::vector<int> order;
  ASSERT_TRUE(pool.submit(
      Lane::large, [&] { gate.get_future().wait(); },
      [&] {
        order.push_back(-1);
        io.stop();
      }));
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(pool.submit(
        Lane::small, [] {},
        [&, i] {
          order.push_back(i);
          if (i == 49) gate.set_value();
        }));
  }
  io.run();
  ASSERT_EQ(order.size(), 51U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i) << "in the order of submission";
}

TEST(JobPool, AFullLaneRefusesAndTheOtherDoesNot) {
  boost::asio::io_context io;
  std::promise<void> gate;
  int num_done = 0;
  JobPool pool(io, {.max_jobs = 2, .low_priority = false});
  ASSERT_TRUE(pool.submit(Lane::large, [&] { gate.get_future().wait(); }, [&] { ++num_done; }));
  ASSERT_TRUE(pool.submit(Lane::large, [] {}, [&] { ++num_done; }));
  EXPECT_FALSE(pool.submit(Lane::large, [] {}, [] {}));
  EXPECT_TRUE(pool.submit(Lane::small, [] {}, [&] { ++num_done; }));
  gate.set_value();
  while (num_done < 3) io.run_one();
  EXPECT_TRUE(pool.submit(Lane::large, [] {}, [] {}));
}

TEST(JobPool, WhatIsStillQueuedAtTheEndIsDropped) {
  boost::asio::io_context io;
  auto held = std::make_shared<int>(1);
  std::promise<void> gate;
  std::thread opener;
  {
    JobPool pool(io, {.max_jobs = 8, .low_priority = false});
    std::promise<void> begun;
    ASSERT_TRUE(pool.submit(
        Lane::large,
        [&] {
          begun.set_value();
          gate.get_future().wait();
        },
        [held] { ++*held; }));
    begun.get_future().wait();
    ASSERT_TRUE(pool.submit(Lane::large, [held] { ++*held; }, [held] { ++*held; }));
    opener = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.set_value();
    });
  }
  opener.join();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 1);
}

TEST(JobPool, ItsThreadsGiveWayToOthers) {
  boost::asio::io_context io;
  JobPool pool(io, {.low_priority = true});
  int small = 0, large = 0;
  ASSERT_TRUE(pool.submit(Lane::small, [&] { small = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }, [] {}));
  ASSERT_TRUE(pool.submit(Lane::large, [&] { large = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }, [&] { io.stop(); }));
  io.run();
  while (pool.num_jobs(Lane::small) > 0) {
    io.restart();
    io.run_one();
  }
  const int own = getpriority(PRIO_PROCESS, 0);
  EXPECT_GE(small, std::max(own, 10));
  EXPECT_GE(large, std::max(own, 19));
}

}  // namespace
}  // namespace quire
