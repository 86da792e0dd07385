#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <vector>

namespace quire {
namespace {

TEST(ThreadPool, RunsEveryItemOnceInChunksOfAtMostTheGrain) {
  std::mt19937 rng(1);
  for (const std::uint32_t num_threads : {1U, 2U, 5U}) {
    ThreadPool pool(num_threads);
    ASSERT_EQ(pool.num_threads(), num_threads);
    for (int round = 0; round < 300; ++round) {
      const std::uint32_t count = rng() % 200;
      const std::uint32_t grain = 1 + rng() % 40;
      std::vector<int> times(count, 0);  // plain ints: two threads on one item would be a race that TSan reports
      std::atomic<bool> bad{false};
      pool.parallel_for(count, grain, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
        if (begin >= end || end - begin > grain || end > count || thread >= num_threads) bad = true;
        for (std::uint32_t i = begin; i < end; ++i) ++times[i];
      });
      ASSERT_FALSE(bad);
      for (const int n : times) ASSERT_EQ(n, 1);
    }
  }
}

TEST(ThreadPool, EffectsOfTheBodyAreVisibleToTheCallerAndToTheNextJob) {
  ThreadPool pool(4);
  std::vector<std::uint64_t> values(64, 0);
  for (std::uint64_t round = 1; round <= 20000; ++round) {
    pool.parallel_for(64, 4, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
      for (std::uint32_t i = begin; i < end; ++i) values[i] += i;
    });
    ASSERT_EQ(values[63], 63 * round);
    ASSERT_EQ(values[1], round);
  }
}

TEST(ThreadPool, AThreadIndexBelongsToOneThreadAtATime) {
  ThreadPool pool(3);
  std::vector<std::uint64_t> sums(3, 0);
  for (int round = 0; round < 2000; ++round)
    pool.parallel_for(50, 1, [&](std::uint32_t begin, std::uint32_t, std::uint32_t thread) { sums[thread] += begin; });
  EXPECT_EQ(sums[0] + sums[1] + sums[2], 2000ULL * (49 * 50 / 2));
}

TEST(ThreadPool, WakesSleepingThreads) {
  ThreadPool pool(3);
  for (int round = 0; round < 30; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));
    std::atomic<int> done{0};
    pool.parallel_for(100, 1, [&](std::uint32_t, std::uint32_t, std::uint32_t) { ++done; });
    ASSERT_EQ(done, 100);
  }
}

TEST(ThreadPool, WorksWhileTheCallerIsBlocked) {
  // One item blocks its thread until all other items are done, so the other threads must finish the rest.
  ThreadPool pool(2);
  std::atomic<int> done{0};
  pool.parallel_for(64, 1, [&](std::uint32_t begin, std::uint32_t, std::uint32_t) {
    if (begin == 0)
      while (done < 63) std::this_thread::yield();
    else
      ++done;
  });
  EXPECT_EQ(done, 63);
}

TEST(ThreadPool, WaitsForASlowThreadBeyondTheSpin) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  pool.parallel_for(8, 1, [&](std::uint32_t, std::uint32_t, std::uint32_t thread) {
    if (thread != 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    ++done;
  });
  EXPECT_EQ(done, 8);
}

TEST(ThreadPool, ManyPoolsCanBeCreatedAndDestroyed) {
  for (int i = 0; i < 100; ++i) {
    ThreadPool pool(1 + static_cast<std::uint32_t>(i) % 4);
    std::atomic<std::uint32_t> sum{0};
    if (i % 2 == 0) pool.parallel_for(10, 3, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) { sum += end - begin; });
    ASSERT_EQ(sum, i % 2 == 0 ? 10U : 0U);
  }
}

// A task with a chain of 20 parallel_for() calls.
struct Chain {
  ThreadPool* pool;
  std::vector<std::uint64_t> values = std::vector<std::uint64_t>(64, 0);
  bool releases = false;

  static void run(void* context) {
    auto* self = static_cast<Chain*>(context);
    for (int link = 0; link < 20; ++link) {
      if (self->releases && link == 10) self->pool->release_caller();
      self->pool->parallel_for(64, 4, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
        for (std::uint32_t i = begin; i < end; ++i) self->values[i] += i;
      });
    }
  }
};

TEST(ThreadPool, ATaskRunsNextToTheCallerAndIsDoneAtTheJoin) {
  for (const std::uint32_t num_threads : {1U, 2U, 4U}) {
    ThreadPool pool(num_threads);
    Chain chain{&pool};
    for (std::uint64_t round = 1; round <= 2000; ++round) {
      chain.releases = round % 2 == 0;
      pool.start(&Chain::run, &chain);
      if (round % 3 != 0) pool.assist();
      pool.join();
      ASSERT_EQ(chain.values[63], 63 * 20 * round);
      ASSERT_EQ(chain.values[1], 20 * round);
      pool.parallel_for(64, 4, [](std::uint32_t, std::uint32_t, std::uint32_t) {});
    }
  }
}

TEST(ThreadPool, AThreadIndexOfATaskBelongsToOneThreadAtATime) {
  struct Sums {
    ThreadPool* pool;
    std::vector<std::uint64_t> values;
    static void run(void* context) {
      auto* self = static_cast<Sums*>(context);
      for (int i = 0; i < 10; ++i)
        self->pool->parallel_for(50, 1, [&](std::uint32_t begin, std::uint32_t, std::uint32_t thread) { self->values[thread] += begin; });
    }
  };
  ThreadPool pool(3);
  Sums sums{&pool, std::vector<std::uint64_t>(3, 0)};
  for (int round = 0; round < 500; ++round) {
    pool.start(&Sums::run, &sums);
    pool.join();
  }
  EXPECT_EQ(sums.values[0] + sums.values[1] + sums.values[2], 5000ULL * (49 * 50 / 2));
}

TEST(ThreadPool, AReleasedCallerReturnsWhileTheTaskContinues) {
  struct Held {
    ThreadPool* pool;
    std::atomic<bool> begun = false, released = false;
    static void run(void* context) {
      auto* self = static_cast<Held*>(context);
      self->begun = true;
      self->pool->release_caller();
      while (!self->released) std::this_thread::yield();
    }
  };
  ThreadPool pool(2);
  Held held{&pool};
  pool.start(&Held::run, &held);
  while (!held.begun) std::this_thread::yield();  // the other thread runs the task
  pool.assist();
  held.released = true;
  pool.join();
}

TEST(ThreadPool, ATaskWakesSleepingThreads) {
  ThreadPool pool(3);
  Chain chain{&pool};
  for (std::uint64_t round = 1; round <= 30; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 3));
    pool.start(&Chain::run, &chain);
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 2));
    pool.join();
    ASSERT_EQ(chain.values[1], 20 * round);
  }
}

}  // namespace
}  // namespace quire
