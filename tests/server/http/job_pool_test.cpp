// Tests the threads of the job pool. job_order_test.cpp tests the order of jobs.
#include "server/http/job_pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

namespace quire {
namespace {

using Lane = JobPool::Lane;

JobPool::Job job(const JobPool::Function& work, JobPool::Function done, std::string client = {}) {
  return {.work = [work](const CancellationPoint&) { work(); }, .done = std::move(done), .client = std::move(client)};
}

TEST(JobPool, CallsDoneOnTheServersThread) {
  boost::asio::io_context io;
  JobPool pool(io, {.max_jobs = 4, .low_priority = false});
  std::thread::id worked, done;
  ASSERT_TRUE(pool.submit(Lane::large, job([&] { worked = std::this_thread::get_id(); },
                                           [&] {
                                             done = std::this_thread::get_id();
                                             io.stop();
                                           })));
  EXPECT_EQ(pool.num_jobs(Lane::large), 1U);
  io.run();
  EXPECT_EQ(done, std::this_thread::get_id());
  EXPECT_NE(worked, std::this_thread::get_id());
  EXPECT_EQ(pool.num_jobs(Lane::large), 0U);
}

TEST(JobPool, SmallJobsOvertakeABlockedLargeJob) {
  boost::asio::io_context io;
  JobPool pool(io, {.max_jobs = 200, .low_priority = false});
  std::promise<void> gate;
  std::vector<int> order;
  const auto end = [&] {
    order.push_back(-1);
    io.stop();
  };
  ASSERT_TRUE(pool.submit(Lane::large, job([&] { gate.get_future().wait(); }, end)));
  for (int i = 0; i < 50; ++i) {
    const auto done = [&, i] {
      order.push_back(i);
      if (i == 49) gate.set_value();
    };
    ASSERT_TRUE(pool.submit(Lane::small, job([] {}, done)));
  }
  io.run();
  ASSERT_EQ(order.size(), 51U);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(order[static_cast<std::size_t>(i)], i) << "small jobs end in the order of submission";
}

TEST(JobPool, RefusesAClientOverItsShareAndAcceptsAnother) {
  boost::asio::io_context io;
  std::promise<void> gate;
  int num_done = 0;
  const auto count = [&] { ++num_done; };
  JobPool pool(io, {.max_jobs = 4, .low_priority = false});
  ASSERT_TRUE(pool.submit(Lane::large, job([&] { gate.get_future().wait(); }, count, "a")));
  ASSERT_TRUE(pool.submit(Lane::large, job([] {}, count, "a")));
  EXPECT_FALSE(pool.submit(Lane::large, job([] {}, [] {}, "a")));
  EXPECT_TRUE(pool.submit(Lane::small, job([] {}, count, "a"))) << "the other lane is free";
  EXPECT_TRUE(pool.submit(Lane::large, job([] {}, count, "b")));
  gate.set_value();
  while (num_done < 4) io.run_one();
  EXPECT_TRUE(pool.submit(Lane::large, job([] {}, [] {}, "a")));
}

// Runs without end except for its cancellation points.
JobPool::Job endless(std::atomic<int>& state, std::string client, JobPool::Function done = [] {}) {
  const auto work = [&state](const CancellationPoint& cancellation) {
    try {
      state = 1;
      while (true) cancellation();
    } catch (const JobStopped& stopped) {
      state = 10 + static_cast<int>(stopped.why);
      throw;
    }
  };
  return {.work = work, .done = std::move(done), .client = std::move(client)};
}

TEST(JobPool, AnotherClientsJobDoesNotWaitForAnEndlessJob) {
  std::atomic<int> state{0};
  {
    boost::asio::io_context io;
    JobPool pool(io, {.low_priority = false, .max_time = std::chrono::hours(1)});
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(pool.submit(Lane::large, endless(state, "a")));
    while (state == 0) std::this_thread::yield();
    ASSERT_TRUE(pool.submit(Lane::large, job([] {}, [&] { io.stop(); }, "b")));
    io.run();
    EXPECT_EQ(pool.num_jobs(Lane::large), 3U);
  }
  EXPECT_EQ(state, 10 + static_cast<int>(JobStopped::Reason::server_stops));
}

TEST(JobPool, AnotherJobOfTheSameClientDoesNotWaitForAnEndlessJob) {
  std::atomic<int> state{0};
  boost::asio::io_context io;
  JobPool pool(io, {.low_priority = false, .max_time = std::chrono::hours(1)});
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(pool.submit(Lane::small, endless(state, "a")));
  while (state == 0) std::this_thread::yield();
  ASSERT_TRUE(pool.submit(Lane::small, job([] {}, [&] { io.stop(); }, "a")));
  io.run();
  EXPECT_EQ(pool.num_jobs(Lane::small), 4U);
}

TEST(JobPool, StopsAJobAtItsTimeLimit) {
  std::atomic<int> state{0};
  boost::asio::io_context io;
  JobPool pool(io, {.low_priority = false, .max_time = std::chrono::milliseconds(5)});
  ASSERT_TRUE(pool.submit(Lane::large, endless(state, "a", [&] { io.stop(); })));
  io.run();
  EXPECT_EQ(state, 10 + static_cast<int>(JobStopped::Reason::out_of_time));
}

TEST(JobPool, StopsAndDropsJobsOfADisconnectedClient) {
  std::atomic<int> running{0}, waiting{0};
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  boost::asio::io_context io;
  JobPool pool(io, {.low_priority = false, .max_time = std::chrono::hours(1)});
  int num_done = 0;
  for (std::atomic<int>* const state : {&running, &waiting}) {
    JobPool::Job each = endless(*state, "a", [&] { ++num_done; });
    each.cancelled = gone;
    each.num_bytes = std::uint64_t{20} << 20;  // the second job must wait for the end of the first
    ASSERT_TRUE(pool.submit(Lane::large, std::move(each)));
  }
  while (running == 0) std::this_thread::yield();
  *gone = true;
  while (num_done < 2) io.run_one();
  EXPECT_EQ(running, 10 + static_cast<int>(JobStopped::Reason::client_gone));
  EXPECT_EQ(waiting, 0);
}

TEST(JobPool, DropsQueuedJobsAtShutdown) {
  boost::asio::io_context io;
  auto held = std::make_shared<int>(1);
  std::promise<void> gate;
  std::thread opener;
  {
    JobPool pool(io, {.max_jobs = 8, .low_priority = false});
    std::promise<void> begun;
    const auto work = [&] {
      begun.set_value();
      gate.get_future().wait();
    };
    ASSERT_TRUE(pool.submit(Lane::large, job(work, [held] { ++*held; })));
    begun.get_future().wait();
    ASSERT_TRUE(pool.submit(Lane::large, job([held] { ++*held; }, [held] { ++*held; })));
    opener = std::thread([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      gate.set_value();
    });
  }
  opener.join();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 1);
}

TEST(JobPool, RunsThreadsAtLowPriority) {
  boost::asio::io_context io;
  JobPool pool(io, {.low_priority = true});
  int small = 0, large = 0;
  ASSERT_TRUE(pool.submit(Lane::small, job([&] { small = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }, [] {})));
  ASSERT_TRUE(pool.submit(Lane::large, job([&] { large = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); }, [&] { io.stop(); })));
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
