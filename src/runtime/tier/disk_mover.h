#pragma once
// Moves blocks between a disk's places and their users in one direction, on a thread of its own.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <vector>

#include "base/core_share.h"
#include "runtime/tier/disk_places.h"
#include "runtime/tier/pace.h"

namespace quire {

struct DiskMoverOptions {
  TierJob::Verb verb = TierJob::Verb::store;
  std::uint32_t depth = 8;             // blocks that the disk moves at once
  std::uint64_t place_bytes = 0;       // from one to the next
  std::uint64_t bytes_per_second = 0;  // at most; 0: as fast as the disk is
  bool gives_way = false;              // no more than kStoringShare of cores that others want
};

// A block's way, and where its tag is meanwhile:
//   jobs_ -> begin(): claimed, copied (stores)    ready_
//   -> send_ready(): with the disk                num_sent_ counts it
//   -> collect(): back                            to_finish_
//   -> finish(): verified, copied (loads)         idle_
class DiskMover {
 public:
  // Null: there is no memory for the buffers, of which there are twice as many as the disk moves at once: it works on half of them while
  // the others are copied and checked. The queue must take as many.
  static std::unique_ptr<DiskMover> start(DiskPlaces& places, std::unique_ptr<BlockQueue> queue, const DiskMoverOptions& options);
  static constexpr std::uint32_t kBuffersPerDepth = 2;
  // What is under way is finished, what was not begun fails.
  ~DiskMover();
  DiskMover(const DiskMover&) = delete;
  DiskMover& operator=(const DiskMover&) = delete;

  // Any thread; returns at once.
  void submit(TierJob job);

 private:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;
  struct PageDelete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kHugePageBytes}); }
  };
  using Buffers = std::unique_ptr<std::byte[], PageDelete>;
  // A block on its way, with its buffer.
  struct Moving {
    TierJob job;
    Checksum checksum{};  // of what a load is to bring
    std::span<std::byte> buffer;
  };

  DiskMover(DiskPlaces& places, std::unique_ptr<BlockQueue> queue, const DiskMoverOptions& options, Buffers memory);
  void run();
  // Whether one was begun; where none is although one waits, `rest` says how long.
  bool begin_one(CoreShare* share, std::chrono::milliseconds& rest);
  void begin(std::uint32_t tag);
  void send_ready();
  void finish(const BlockIoOver& over);
  void end(std::uint32_t tag, TierOutcome outcome);
  [[nodiscard]] std::span<std::byte> payload(const Moving& one) const { return one.buffer.first(padded_to_page(one.job.bytes)); }

  const DiskMoverOptions options_;
  DiskPlaces& places_;
  const std::unique_ptr<BlockQueue> queue_;  // wake(): any thread
  const Buffers memory_;
  Pace pace_;
  std::vector<Moving> moving_;       // by tag
  std::vector<std::uint32_t> idle_;  // tags
  std::deque<std::uint32_t> ready_;  // for the disk; tags
  std::vector<BlockIoOver> ended_;   // by the disk
  std::deque<BlockIoOver> to_finish_;
  std::uint32_t num_sent_ = 0;

  std::mutex mutex_;
  // What was submitted and not begun; guarded by mutex_, as is stops_. The rest is the thread's own.
  std::deque<TierJob> jobs_;
  bool stops_ = false;

  std::thread thread_;
};

}  // namespace quire
