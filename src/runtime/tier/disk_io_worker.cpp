// Moves the blocks of a disk tier in one direction: copies blocks into private buffers, checks them, and passes them to the disk's queue.
// Each direction has a separate thread; submit() may be called on any thread. No lock is held during copies or while the thread waits for
// the disk. If a step would have to wait for a store, the transport cancels the store, and copy() returns false.
#include "runtime/tier/disk_io_worker.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/thread_nice.h"

namespace quire {

namespace {

// Time between two checks while the rate limit delays a block.
constexpr std::chrono::milliseconds kRateLimitWait(1);

}  // namespace

std::unique_ptr<DiskIoWorker> DiskIoWorker::start(DiskSlots& places, std::unique_ptr<BlockQueue> queue,
                                                  const DiskIoWorkerOptions& options) {
  const std::uint64_t needed = kBuffersPerDepth * options.depth * options.place_bytes;
  const std::uint64_t bytes = (needed + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  Buffers memory(new (std::align_val_t{kHugePageBytes}, std::nothrow) std::byte[bytes]);
  if (memory == nullptr) return nullptr;
  // The kernel pins each page of a buffer and passes it to the disk as a separate segment. With huge pages, throughput is up to twice as
  // high.
  madvise(memory.get(), bytes, MADV_HUGEPAGE);
  std::unique_ptr<DiskIoWorker> worker(new DiskIoWorker(places, std::move(queue), options, std::move(memory)));
  worker->thread_ = std::thread([&one = *worker] { one.run(); });
  return worker;
}

DiskIoWorker::DiskIoWorker(DiskSlots& places, std::unique_ptr<BlockQueue> queue, const DiskIoWorkerOptions& options, Buffers memory)
    : options_(options),
      places_(places),
      queue_(std::move(queue)),
      memory_(std::move(memory)),
      rate_limiter_(options.bytes_per_second),
      in_flight_(kBuffersPerDepth * options.depth) {
  for (std::uint32_t tag = 0; tag < in_flight_.size(); ++tag) {
    in_flight_[tag].buffer = {memory_.get() + tag * options.place_bytes, options.place_bytes};
    idle_.push_back(tag);
  }
}

DiskIoWorker::~DiskIoWorker() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  queue_->wake();
  thread_.join();
}

void DiskIoWorker::submit(TierJob job) {
  // Called before the job is queued, so that loading_s includes the time in the queue.
  places_.count_submitted(job);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  queue_->wake();
}

// Begins one block and finishes one block per iteration, so that the disk gets the next blocks before all returned blocks are checked and
// copied.
void DiskIoWorker::run() {
  // Steps may wait for loads. Stores must not disturb other threads.
  const bool stores = options_.verb == TierJob::Verb::store;
  stores ? set_thread_batch_policy(kBackgroundNice) : set_thread_nice(kBackgroundNice);
  std::optional<CpuShare> share;
  if (options_.yields_cores) share.emplace(kStoringCpuShare);
  for (;;) {
    std::chrono::milliseconds rest(0);
    const bool has_begun = begin_one(share ? &*share : nullptr, rest);
    send_ready();
    const bool has_read = !stores && places_.read_more();
    {
      const std::lock_guard lock(mutex_);
      if (stops_ && jobs_.empty() && idle_.size() == in_flight_.size()) return;
    }
    queue_->collect(!has_begun && !has_read && rest.count() == 0 && to_finish_.empty(), ended_);
    num_sent_ -= static_cast<std::uint32_t>(ended_.size());
    to_finish_.insert(to_finish_.end(), ended_.begin(), ended_.end());
    ended_.clear();
    send_ready();
    if (!to_finish_.empty()) {
      finish(to_finish_.front());
      to_finish_.pop_front();
    } else if (!has_read) {
      std::this_thread::sleep_for(rest);
    }
  }
}

// Begins the next job. Jobs that have not begun when the worker stops end here as failed.
bool DiskIoWorker::begin_one(CpuShare* share, std::chrono::milliseconds& rest) {
  if (idle_.empty()) return false;
  const std::uint32_t tag = idle_.back();
  bool fails = false;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return false;
    const auto now = std::chrono::steady_clock::now();
    fails = stops_;
    if (!fails && !rate_limiter_.may_begin(now)) rest = kRateLimitWait;
    if (!fails && share != nullptr && !share->may_continue()) rest = kCpuShareSleep;
    if (rest.count() > 0) return false;
    in_flight_[tag].job = std::move(jobs_.front());
    jobs_.pop_front();
    if (!fails) rate_limiter_.begin(in_flight_[tag].job.bytes, now);
  }
  idle_.pop_back();
  fails ? end(tag, TierOutcome::failed) : begin(tag);
  return true;
}

void DiskIoWorker::begin(std::uint32_t tag) {
  InFlightBlock& one = in_flight_[tag];
  if (options_.verb == TierJob::Verb::load) {
    const std::optional<Checksum> checksum = places_.claim_to_load(one.job);
    if (!checksum) return end(tag, TierOutcome::absent);
    one.checksum = *checksum;
  } else {
    const std::span<std::byte> bytes = payload(one);
    if (!one.job.copy(bytes.first(one.job.bytes))) return end(tag, TierOutcome::cancelled);
    std::ranges::fill(bytes.subspan(one.job.bytes), std::byte{0});
    if (!places_.claim_to_store(one.job, payload_checksum(places_.header(), one.job.name, one.job.bytes, bytes)))
      return end(tag, TierOutcome::failed);
  }
  ready_.push_back(tag);
}

void DiskIoWorker::send_ready() {
  for (; num_sent_ < options_.depth && !ready_.empty(); ready_.pop_front(), ++num_sent_) {
    const InFlightBlock& one = in_flight_[ready_.front()];
    queue_->submit({.tag = ready_.front(),
                    .is_write = options_.verb == TierJob::Verb::store,
                    .offset = one.job.place * options_.place_bytes,
                    .bytes = payload(one)});
  }
}

void DiskIoWorker::finish(const BlockIoCompletion& over) {
  InFlightBlock& one = in_flight_[over.tag];
  if (options_.verb == TierJob::Verb::store)
    return end(over.tag, places_.end_store(one.job, over.is_done) ? TierOutcome::done : TierOutcome::failed);
  const bool is_good = over.is_done && payload_checksum(places_.header(), one.job.name, one.job.bytes, payload(one)) == one.checksum;
  places_.end_load(one.job, over.is_done, is_good);
  if (!is_good) return end(over.tag, over.is_done ? TierOutcome::refused : TierOutcome::failed);
  end(over.tag, one.job.copy(payload(one).first(one.job.bytes)) ? TierOutcome::done : TierOutcome::cancelled);
}

void DiskIoWorker::end(std::uint32_t tag, TierOutcome outcome) {
  const TierJob job = std::exchange(in_flight_[tag].job, {});
  idle_.push_back(tag);
  places_.count_finished(job, outcome);
  job.over(outcome);
}

}  // namespace quire
