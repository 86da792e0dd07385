#pragma once
// A folder in memory whose disk hangs or fails while its flags are set. Any thread may set them.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/tier/memory_files.h"

namespace quire::test {

struct Flaws {
  std::atomic<bool> hangs = false;  // no job ends
  std::atomic<bool> fails_reads = false, fails_writes = false;
};

class FlakyQueue final : public BlockQueue {
 public:
  FlakyQueue(std::unique_ptr<BlockQueue> queue, std::shared_ptr<const Flaws> flaws) : queue_(std::move(queue)), flaws_(std::move(flaws)) {}
  void submit(const BlockIo& io) override { held_.push_back(io); }
  void collect(bool wait, std::vector<BlockIoCompletion>& over) override {
    if (flaws_->hangs && !held_.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the waiting thread polls until the disk no longer hangs
      wait = false;
    }
    if (!flaws_->hangs) {
      for (const BlockIo& io : held_)
        if (io.is_write ? flaws_->fails_writes : flaws_->fails_reads)
          over.push_back({io.tag, false});
        else
          queue_->submit(io);
      held_.clear();
    }
    queue_->collect(wait && over.empty(), over);
  }
  void wake() override { queue_->wake(); }

 private:
  std::unique_ptr<BlockQueue> queue_;
  std::shared_ptr<const Flaws> flaws_;
  std::vector<BlockIo> held_;
};

class FlakyFiles final : public TierFiles {
 public:
  FlakyFiles(std::shared_ptr<MemoryDisk> disk, std::shared_ptr<const Flaws> flaws) : files_(std::move(disk)), flaws_(std::move(flaws)) {}
  Result<std::uint64_t> disk_bytes() override { return files_.disk_bytes(); }
  Result<std::uint64_t> table_bytes() override { return files_.table_bytes(); }
  Result<void> resize(TierFile file, std::uint64_t bytes) override { return files_.resize(file, bytes); }
  Result<void> read_table(std::uint64_t offset, std::span<std::byte> bytes) override { return files_.read_table(offset, bytes); }
  Result<void> write_table(std::uint64_t offset, std::span<const std::byte> bytes) override { return files_.write_table(offset, bytes); }
  Result<void> sync_table() override { return files_.sync_table(); }
  std::unique_ptr<BlockQueue> open_queue(std::uint32_t depth) override {
    return std::make_unique<FlakyQueue>(files_.open_queue(depth), flaws_);
  }

 private:
  MemoryFiles files_;
  std::shared_ptr<const Flaws> flaws_;
};

}  // namespace quire::test
