// Asked some times a second by the disk tier's thread, the only one that calls look(); the engine thread reads service(). It submits reads
// and does not wait for them: what hangs is seen by the counters of the store and of the transport.
#include "runtime/tier/tier_watch.h"

#include <utility>

namespace quire {
namespace {

constexpr std::uint32_t kReadsAtOnce = 8;
// Trials and measurements share the disk with requests: few blocks, seldom.
constexpr double kBetweenReads_s = 5.0;
constexpr double kBetweenIdentities_s = 1.0;

}  // namespace

TierWatch::TierWatch(std::shared_ptr<DiskStore> store, const StoreTransport& transport, std::string folder)
    : store_(std::move(store)), transport_(transport), folder_(std::move(folder)), identity_(identity_of(folder_)) {}

bool TierWatch::look(double now_s) {
  const DiskStoreStats stats = store_->stats();
  std::optional<bool> is_gone;
  if (now_s >= next_identity_s_) {
    // Another folder of that name (a disk that was taken away and came back empty) is not this tier's, either.
    is_gone = identity_of(folder_) != identity_;
    next_identity_s_ = now_s + kBetweenIdentities_s;
  }
  const std::lock_guard lock(mutex_);
  loads_.note(stats.num_read, stats.num_failed_loads + transport_.num_late(TransferDirection::load), now_s);
  stores_.note(stats.num_stored, stats.num_failed_stores + transport_.num_late(TransferDirection::store), now_s);
  if (is_gone) {
    gone_ = *is_gone;
    loads_.set_gone(gone_, now_s);
    stores_.set_gone(gone_, now_s);
  }
  if (stores_.is_trial_due(now_s)) stores_.begin_trial();
  const bool tries = loads_.is_trial_due(now_s);
  const bool measures = loads_.is_used() && now_s >= next_reads_s_ && wants_reads_.exchange(false);
  if ((tries || measures) && begin_reads(now_s) && tries) loads_.begin_trial();
  const TierService before = std::exchange(service_, {.loads = loads_.is_used(), .stores = !stores_.is_left_out()});
  return service_ != before;
}

// Their bytes are verified and dropped.
bool TierWatch::begin_reads(double now_s) {
  if (is_reading()) return false;
  std::uint32_t num_found = 0;
  for (; num_found < kReadsAtOnce; ++num_found) {
    const std::optional<RestoredBlock> block = store_->held_from(next_place_);
    if (!block) break;
    next_place_ = block->place + 1;
    ++reads_->num_left;
    store_->submit({.verb = TierJob::Verb::load,
                    .place = block->place,
                    .name = block->name,
                    .bytes = block->bytes,
                    .copy = [](std::span<std::byte>) { return false; },
                    .over = [reads = reads_](TierOutcome) { --reads->num_left; }});
  }
  next_reads_s_ = now_s + kBetweenReads_s;
  return num_found > 0;
}

TierService TierWatch::service() const {
  const std::lock_guard lock(mutex_);
  return service_;
}

std::uint64_t TierWatch::num_times_left_out() const {
  const std::lock_guard lock(mutex_);
  return loads_.num_times_left_out() + stores_.num_times_left_out();
}

bool TierWatch::is_gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

}  // namespace quire
