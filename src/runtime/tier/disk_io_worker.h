#pragma once
// Copies blocks between the slots of a disk tier and their users, in one direction, on a separate thread.
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

#include "base/cpu_share.h"
#include "runtime/tier/disk_slots.h"
#include "runtime/tier/rate_limiter.h"

namespace quire {

struct DiskIoWorkerOptions {
  TierJob::Verb verb = TierJob::Verb::store;
  std::uint32_t depth = 8;             // blocks that the disk moves at the same time
  std::uint64_t place_bytes = 0;       // distance between two slots
  std::uint64_t bytes_per_second = 0;  // limit; 0: no limit
  bool yields_cores = false;           // uses at most kStoringCpuShare of the cores' time while other threads need the cores
};

// The stages of a block, and the member that holds the block's tag in each stage:
//   jobs_ -> begin(): claimed, copied (stores)    ready_
//   -> send_ready(): with the disk                num_sent_ counts it
//   -> collect(): returned by the disk            to_finish_
//   -> finish(): verified, copied (loads)         idle_
class DiskIoWorker {
 public:
  // Starts the thread. Returns null if the buffers cannot be allocated. The worker has kBuffersPerDepth * depth buffers: the disk works on
  // half of them while the thread copies and checks the others. The queue must accept one block per buffer.
  static std::unique_ptr<DiskIoWorker> start(DiskSlots& places, std::unique_ptr<BlockQueue> queue, const DiskIoWorkerOptions& options);
  static constexpr std::uint32_t kBuffersPerDepth = 2;
  // Finishes the blocks in flight; jobs that have not begun fail.
  ~DiskIoWorker();
  DiskIoWorker(const DiskIoWorker&) = delete;
  DiskIoWorker& operator=(const DiskIoWorker&) = delete;

  // Returns immediately. May be called on any thread.
  void submit(TierJob job);

 private:
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;
  struct PageDelete {
    void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kHugePageBytes}); }
  };
  using Buffers = std::unique_ptr<std::byte[], PageDelete>;
  // A block in progress, with its buffer.
  struct InFlightBlock {
    TierJob job;
    Checksum checksum{};  // that loaded bytes must have
    std::span<std::byte> buffer;
  };

  DiskIoWorker(DiskSlots& places, std::unique_ptr<BlockQueue> queue, const DiskIoWorkerOptions& options, Buffers memory);
  void run();
  // Returns whether a job was begun. If the rate limit or the CPU share delays the next job, sets `rest` to the time until the next
  // attempt.
  bool begin_one(CpuShare* share, std::chrono::milliseconds& rest);
  void begin(std::uint32_t tag);
  void send_ready();
  void finish(const BlockIoCompletion& over);
  void end(std::uint32_t tag, TierOutcome outcome);
  [[nodiscard]] std::span<std::byte> payload(const InFlightBlock& one) const { return one.buffer.first(padded_to_page(one.job.bytes)); }

  const DiskIoWorkerOptions options_;
  DiskSlots& places_;
  const std::unique_ptr<BlockQueue> queue_;  // wake() may be called on any thread
  const Buffers memory_;
  RateLimiter rate_limiter_;
  std::vector<InFlightBlock> in_flight_;  // by tag
  std::vector<std::uint32_t> idle_;       // tags
  std::deque<std::uint32_t> ready_;       // tags of blocks that are ready for the disk
  std::vector<BlockIoCompletion> ended_;  // ended by the disk
  std::deque<BlockIoCompletion> to_finish_;
  std::uint32_t num_sent_ = 0;

  std::mutex mutex_;
  // Jobs that have not begun. Guarded by mutex_, like `stops_`. All other members belong to the thread.
  std::deque<TierJob> jobs_;
  bool stops_ = false;

  std::thread thread_;
};

}  // namespace quire
