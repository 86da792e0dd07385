// One direction of a disk tier: copies blocks into buffers of its own, checks them, and gives them to the disk's queue. A thread of its own
// per direction runs it; submit() may come from any. It takes no lock while it copies or waits for the disk. A store that stands in a
// step's way is given up by its user (copy() says false), so nothing here must wait for the engine.
#include "runtime/tier/disk_mover.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/thread_nice.h"

namespace quire {

namespace {

// How long to wait before asking again where a rate keeps blocks back.
constexpr std::chrono::milliseconds kPacedRest(1);

}  // namespace

std::unique_ptr<DiskMover> DiskMover::start(DiskPlaces& places, std::unique_ptr<BlockQueue> queue, const DiskMoverOptions& options) {
  const std::uint64_t needed = kBuffersPerDepth * options.depth * options.place_bytes;
  const std::uint64_t bytes = (needed + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  Buffers memory(new (std::align_val_t{kHugePageBytes}, std::nothrow) std::byte[bytes]);
  if (memory == nullptr) return nullptr;
  // Each small page of a block is pinned by itself and is a piece of its own for the disk: with large ones it moves up to twice as much.
  madvise(memory.get(), bytes, MADV_HUGEPAGE);
  std::unique_ptr<DiskMover> mover(new DiskMover(places, std::move(queue), options, std::move(memory)));
  mover->thread_ = std::thread([&one = *mover] { one.run(); });
  return mover;
}

DiskMover::DiskMover(DiskPlaces& places, std::unique_ptr<BlockQueue> queue, const DiskMoverOptions& options, Buffers memory)
    : options_(options),
      places_(places),
      queue_(std::move(queue)),
      memory_(std::move(memory)),
      pace_(options.bytes_per_second),
      moving_(kBuffersPerDepth * options.depth) {
  for (std::uint32_t tag = 0; tag < moving_.size(); ++tag) {
    moving_[tag].buffer = {memory_.get() + tag * options.place_bytes, options.place_bytes};
    idle_.push_back(tag);
  }
}

DiskMover::~DiskMover() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  queue_->wake();
  thread_.join();
}

void DiskMover::submit(TierJob job) {
  // Before it is queued: the time that loads take includes their waiting.
  places_.count_coming(job);
  {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
  }
  queue_->wake();
}

// A turn begins one block and finishes one, so that the disk gets its next ones before all that came back together is checked and copied.
void DiskMover::run() {
  // Who loads is waited for; who stores must not be noticed.
  const bool stores = options_.verb == TierJob::Verb::store;
  stores ? set_thread_patient(kNiceBeside) : set_thread_nice(kNiceBeside);
  std::optional<CoreShare> share;
  if (options_.gives_way) share.emplace(kStoringShare);
  for (;;) {
    std::chrono::milliseconds rest(0);
    const bool has_begun = begin_one(share ? &*share : nullptr, rest);
    send_ready();
    const bool has_read = !stores && places_.read_more();
    {
      const std::lock_guard lock(mutex_);
      if (stops_ && jobs_.empty() && idle_.size() == moving_.size()) return;
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

// Those that nobody will begin end here.
bool DiskMover::begin_one(CoreShare* share, std::chrono::milliseconds& rest) {
  if (idle_.empty()) return false;
  const std::uint32_t tag = idle_.back();
  bool fails = false;
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.empty()) return false;
    const auto now = std::chrono::steady_clock::now();
    fails = stops_;
    if (!fails && !pace_.may_begin(now)) rest = kPacedRest;
    if (!fails && share != nullptr && !share->may_go_on()) rest = kShareRest;
    if (rest.count() > 0) return false;
    moving_[tag].job = std::move(jobs_.front());
    jobs_.pop_front();
    if (!fails) pace_.begin(moving_[tag].job.bytes, now);
  }
  idle_.pop_back();
  fails ? end(tag, TierOutcome::failed) : begin(tag);
  return true;
}

void DiskMover::begin(std::uint32_t tag) {
  Moving& one = moving_[tag];
  if (options_.verb == TierJob::Verb::load) {
    const std::optional<Checksum> checksum = places_.claim_to_load(one.job);
    if (!checksum) return end(tag, TierOutcome::absent);
    one.checksum = *checksum;
  } else {
    const std::span<std::byte> bytes = payload(one);
    if (!one.job.copy(bytes.first(one.job.bytes))) return end(tag, TierOutcome::given_up);
    std::ranges::fill(bytes.subspan(one.job.bytes), std::byte{0});
    if (!places_.claim_to_store(one.job, payload_checksum(places_.header(), one.job.name, one.job.bytes, bytes)))
      return end(tag, TierOutcome::failed);
  }
  ready_.push_back(tag);
}

void DiskMover::send_ready() {
  for (; num_sent_ < options_.depth && !ready_.empty(); ready_.pop_front(), ++num_sent_) {
    const Moving& one = moving_[ready_.front()];
    queue_->submit({.tag = ready_.front(),
                    .is_write = options_.verb == TierJob::Verb::store,
                    .offset = one.job.place * options_.place_bytes,
                    .bytes = payload(one)});
  }
}

void DiskMover::finish(const BlockIoOver& over) {
  Moving& one = moving_[over.tag];
  if (options_.verb == TierJob::Verb::store)
    return end(over.tag, places_.end_store(one.job, over.is_done) ? TierOutcome::done : TierOutcome::failed);
  const bool is_good = over.is_done && payload_checksum(places_.header(), one.job.name, one.job.bytes, payload(one)) == one.checksum;
  places_.end_load(one.job, over.is_done, is_good);
  if (!is_good) return end(over.tag, over.is_done ? TierOutcome::refused : TierOutcome::failed);
  end(over.tag, one.job.copy(payload(one).first(one.job.bytes)) ? TierOutcome::done : TierOutcome::given_up);
}

void DiskMover::end(std::uint32_t tag, TierOutcome outcome) {
  const TierJob job = std::exchange(moving_[tag].job, {});
  idle_.push_back(tag);
  places_.count_end(job, outcome);
  job.over(outcome);
}

}  // namespace quire
