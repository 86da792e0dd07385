// One thread calls look() several times per second; the engine thread reads service(). look() submits reads and does not wait for them: the
// counters of the store and of the transport show whether reads hang.
#include "runtime/tier/tier_monitor.h"

#include <utility>

namespace quire {
namespace {

constexpr std::uint32_t kReadsPerProbe = 8;
// Trials and measurements compete with requests for the disk, so they read few blocks and at long intervals.
constexpr double kReadInterval_s = 5.0;
constexpr double kIdentityInterval_s = 1.0;

}  // namespace

TierMonitor::TierMonitor(std::shared_ptr<DiskStore> store, const StoreTransport& transport, std::string folder)
    : store_(std::move(store)), transport_(transport), folder_(std::move(folder)), identity_(identity_of(folder_)) {}

bool TierMonitor::look(double now_s) {
  const DiskStoreStats stats = store_->stats();
  std::optional<bool> is_gone;
  if (now_s >= next_identity_s_) {
    // A different folder at this path counts as gone, too: for example, the disk was unmounted and an empty folder is left.
    is_gone = identity_of(folder_) != identity_;
    next_identity_s_ = now_s + kIdentityInterval_s;
  }
  const std::lock_guard lock(mutex_);
  loads_.note(stats.num_read, stats.num_failed_loads + transport_.num_timed_out(TransferDirection::load), now_s);
  stores_.note(stats.num_stored, stats.num_failed_stores + transport_.num_timed_out(TransferDirection::store), now_s);
  if (is_gone) {
    gone_ = *is_gone;
    loads_.set_gone(gone_, now_s);
    stores_.set_gone(gone_, now_s);
  }
  if (stores_.is_trial_due(now_s)) stores_.begin_trial();
  const bool tries = loads_.is_trial_due(now_s);
  const bool measures = loads_.is_enabled() && now_s >= next_reads_s_ && is_probe_requested_.exchange(false);
  if ((tries || measures) && start_probe_reads(now_s) && tries) loads_.begin_trial();
  const TierService before = std::exchange(service_, {.loads = loads_.is_enabled(), .stores = !stores_.is_disabled()});
  return service_ != before;
}

// Begins to read up to kReadsPerProbe blocks; their bytes are verified and dropped. Returns false if previous reads are still in flight or
// no block was found.
bool TierMonitor::start_probe_reads(double now_s) {
  if (is_reading()) return false;
  std::uint32_t num_found = 0;
  for (; num_found < kReadsPerProbe; ++num_found) {
    const std::optional<RestoredBlock> block = store_->next_held_block(next_slot_);
    if (!block) break;
    next_slot_ = block->place + 1;
    ++reads_->num_left;
    store_->submit({.verb = TierJob::Verb::load,
                    .place = block->place,
                    .name = block->name,
                    .bytes = block->bytes,
                    .copy = [](std::span<std::byte>) { return false; },
                    .over = [reads = reads_](TierOutcome) { --reads->num_left; }});
  }
  next_reads_s_ = now_s + kReadInterval_s;
  return num_found > 0;
}

TierService TierMonitor::service() const {
  const std::lock_guard lock(mutex_);
  return service_;
}

std::uint64_t TierMonitor::num_times_disabled() const {
  const std::lock_guard lock(mutex_);
  return loads_.num_times_disabled() + stores_.num_times_disabled();
}

bool TierMonitor::is_gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

}  // namespace quire
