// Tests how a disk tier keeps to its limits: the blocks with the disk, the rate of each direction, and its buffers.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/tier/memory_files.h"
#include "runtime/tier/tier_support.h"

namespace quire::test {
namespace {

// Counts the blocks with the disk. While `holds` is set, no block ends.
struct QueueWatch {
  std::atomic<bool> holds = false;
  std::atomic<int> num_in_flight = 0, most_in_flight = 0;
};

class WatchedQueue final : public BlockQueue {
 public:
  WatchedQueue(std::unique_ptr<BlockQueue> queue, std::shared_ptr<QueueWatch> watch) : queue_(std::move(queue)), watch_(std::move(watch)) {}
  void submit(const BlockIo& io) override {
    const int count = ++watch_->num_in_flight;
    if (count > watch_->most_in_flight) watch_->most_in_flight = count;
    held_.push_back(io);
  }
  void collect(bool wait, std::vector<BlockIoCompletion>& over) override {
    if (watch_->holds && !held_.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the worker's thread polls until the test releases the blocks
      return;
    }
    for (const BlockIo& io : held_) queue_->submit(io);
    held_.clear();
    const std::size_t before = over.size();
    queue_->collect(wait, over);
    watch_->num_in_flight -= static_cast<int>(over.size() - before);
  }
  void wake() override { queue_->wake(); }

 private:
  std::unique_ptr<BlockQueue> queue_;
  std::shared_ptr<QueueWatch> watch_;
  std::vector<BlockIo> held_;
};

// Both directions share the watch; a test uses one of them at a time.
class WatchedFiles final : public TierFiles {
 public:
  explicit WatchedFiles(std::shared_ptr<QueueWatch> watch) : watch_(std::move(watch)) {}
  Result<std::uint64_t> disk_bytes() override { return files_.disk_bytes(); }
  Result<std::uint64_t> table_bytes() override { return files_.table_bytes(); }
  Result<void> resize(TierFile file, std::uint64_t bytes) override { return files_.resize(file, bytes); }
  Result<void> read_table(std::uint64_t offset, std::span<std::byte> bytes) override { return files_.read_table(offset, bytes); }
  Result<void> write_table(std::uint64_t offset, std::span<const std::byte> bytes) override { return files_.write_table(offset, bytes); }
  Result<void> sync_table() override { return files_.sync_table(); }
  std::unique_ptr<BlockQueue> open_queue(std::uint32_t depth) override {
    return std::make_unique<WatchedQueue>(files_.open_queue(depth), watch_);
  }

 private:
  MemoryFiles files_{std::make_shared<MemoryDisk>()};
  std::shared_ptr<QueueWatch> watch_;
};

// Begins to store or load blocks 0 to `count - 1` in the slots of the same numbers.
void begin_jobs(DiskStore& store, TierJob::Verb verb, std::uint32_t count, std::uint32_t bytes, std::latch& left,
                std::atomic<int>& num_done, std::atomic<int>& num_failed) {
  for (std::uint32_t place = 0; place < count; ++place)
    store.submit({.verb = verb,
                  .place = place,
                  .name = tier_name(place),
                  .bytes = bytes,
                  .copy =
                      [place, verb](std::span<std::byte> block) {
                        const std::vector<std::byte> content = tier_block(place, block.size());
                        if (verb == TierJob::Verb::store) std::ranges::copy(content, block.begin());
                        if (verb == TierJob::Verb::load) EXPECT_TRUE(std::ranges::equal(block, content)) << place;
                        return true;
                      },
                  .over =
                      [&](TierOutcome outcome) {
                        num_done += outcome == TierOutcome::done ? 1 : 0;
                        num_failed += outcome == TierOutcome::failed ? 1 : 0;
                        left.count_down();
                      }});
}

int num_done_of(DiskStore& store, TierJob::Verb verb, std::uint32_t count, std::uint32_t bytes) {
  std::latch left(count);
  std::atomic<int> num_done = 0, num_failed = 0;
  begin_jobs(store, verb, count, bytes, left, num_done, num_failed);
  left.wait();
  return num_done;
}

TEST(DiskIoLimits, GiveTheDiskAtMostItsDepth) {
  for (const std::uint32_t depth : {1U, 3U}) {
    const auto watch = std::make_shared<QueueWatch>();
    const auto store = DiskStore::open(std::make_unique<WatchedFiles>(watch),
                                       {.budget_bytes = 1 << 20, .block_bytes = 4096, .fingerprint = tier_fingerprint(), .depth = depth})
                           .value();
    for (const TierJob::Verb verb : {TierJob::Verb::store, TierJob::Verb::load}) {
      watch->most_in_flight = 0;
      watch->holds = true;
      std::latch left(20);
      std::atomic<int> num_done = 0, num_failed = 0;
      begin_jobs(*store, verb, 20, 4096, left, num_done, num_failed);
      EXPECT_TRUE(comes_true([&] { return watch->num_in_flight == static_cast<int>(depth); })) << "the disk gets as many as it may have";
      watch->holds = false;
      left.wait();
      EXPECT_EQ(num_done, 20);
      EXPECT_EQ(watch->most_in_flight, static_cast<int>(depth));
    }
  }
}

// The disk has 8 blocks, and 8 more are ready for it.
TEST(DiskIoLimits, HaveABufferForEachBlockInFlight) {
  constexpr std::uint32_t kLargeBlock = 1 << 20;
  const auto watch = std::make_shared<QueueWatch>();
  const auto store = DiskStore::open(std::make_unique<WatchedFiles>(watch),
                                     {.budget_bytes = 24 << 20, .block_bytes = kLargeBlock, .fingerprint = tier_fingerprint()})
                         .value();
  watch->holds = true;
  std::latch left(20);
  std::atomic<int> num_copied = 0, num_done = 0;
  for (std::uint32_t place = 0; place < 20; ++place)
    store->submit({.verb = TierJob::Verb::store,
                   .place = place,
                   .name = tier_name(place),
                   .bytes = kLargeBlock,
                   .copy =
                       [&, place](std::span<std::byte> block) {
                         std::ranges::copy(tier_block(place, block.size()), block.begin());
                         ++num_copied;
                         return true;
                       },
                   .over =
                       [&](TierOutcome outcome) {
                         num_done += outcome == TierOutcome::done ? 1 : 0;
                         left.count_down();
                       }});
  EXPECT_TRUE(comes_true([&] { return num_copied == 16; }));
  EXPECT_EQ(watch->most_in_flight, 8);
  watch->holds = false;
  left.wait();
  EXPECT_EQ(num_done, 20);
  EXPECT_EQ(num_done_of(*store, TierJob::Verb::load, 20, kLargeBlock), 20);
}

TEST(DiskIoLimits, KeepToTheRateOfEachDirection) {
  // A block takes 2 ms at this rate. The limiter allows 10 ms more.
  const auto store =
      DiskStore::open(
          std::make_unique<MemoryFiles>(std::make_shared<MemoryDisk>()),
          {.budget_bytes = 1 << 20, .block_bytes = 4096, .fingerprint = tier_fingerprint(), .bytes_per_second = std::uint64_t{4096} * 500})
          .value();
  for (const TierJob::Verb verb : {TierJob::Verb::store, TierJob::Verb::load}) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(num_done_of(*store, verb, 31, 4096), 31);
    EXPECT_GE(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 0.049);
  }
}

TEST(DiskIoLimits, FailTheJobsThatHaveNotBegunAtTheEnd) {
  auto store = DiskStore::open(std::make_unique<MemoryFiles>(std::make_shared<MemoryDisk>()),
                               {.budget_bytes = 1 << 20, .block_bytes = 4096, .fingerprint = tier_fingerprint(), .bytes_per_second = 1})
                   .value();
  std::latch left(5);
  std::atomic<int> num_done = 0, num_failed = 0;
  begin_jobs(*store, TierJob::Verb::store, 5, 4096, left, num_done, num_failed);
  EXPECT_TRUE(comes_true([&] { return num_done == 1; })) << "the next block may begin after an hour";
  store.reset();
  left.wait();
  EXPECT_EQ(num_done, 1);
  EXPECT_EQ(num_failed, 4);
}

}  // namespace
}  // namespace quire::test
