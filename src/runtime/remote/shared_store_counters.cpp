#include "runtime/remote/shared_store_counters.h"

#include <span>
#include <utility>

namespace quire {
namespace {

constexpr std::size_t kRecent = 8;

}  // namespace

void SharedStoreCounters::load_started() {
  const std::lock_guard lock(mutex_);
  count_loading(1);
}

void SharedStoreCounters::ended(const TierJob& job, TierOutcome outcome) {
  const bool is_store = job.verb == TierJob::Verb::store;
  const std::lock_guard lock(mutex_);
  if (!is_store) count_loading(-1);
  if (outcome == TierOutcome::done) {
    ++(is_store ? stats_.num_stored : stats_.num_loaded);
    (is_store ? stats_.bytes_stored : stats_.bytes_loaded) += job.bytes;
    if (recent_.size() < kRecent) recent_.resize(kRecent, job.name);
    recent_[std::exchange(next_recent_, (next_recent_ + 1) % kRecent)] = job.name;
  }
  const bool is_bad = outcome == TierOutcome::failed || outcome == TierOutcome::refused;
  stats_.num_answered_loads += is_store || is_bad ? 0 : 1;
  stats_.num_absent += outcome == TierOutcome::absent ? 1 : 0;
  stats_.num_refused += outcome == TierOutcome::refused ? 1 : 0;
  stats_.num_cancelled += outcome == TierOutcome::cancelled ? 1 : 0;
  if (outcome == TierOutcome::failed) ++(is_store ? stats_.num_failed_stores : stats_.num_failed_loads);
}

void SharedStoreCounters::count_loading(std::int32_t by) {
  const auto now = std::chrono::steady_clock::now();
  if (num_loading_ > 0) stats_.loading_s += std::chrono::duration<double>(now - loading_since_).count();
  loading_since_ = now;
  num_loading_ += by;
}

void SharedStoreCounters::asked(std::uint64_t num_names) {
  const std::lock_guard lock(mutex_);
  stats_.num_asked += num_names;
}

void SharedStoreCounters::found(std::uint64_t num_names) {
  const std::lock_guard lock(mutex_);
  stats_.num_found += num_names;
}

void SharedStoreCounters::read(std::uint64_t num_bytes) {
  const std::lock_guard lock(mutex_);
  stats_.bytes_read += num_bytes;
}

void SharedStoreCounters::probe_loads(BlockStore& store, const std::vector<std::uint64_t>& group_bytes, std::vector<OffloadKey> otherwise) {
  std::vector<OffloadKey> names;
  {
    const std::lock_guard lock(mutex_);
    names = recent_.empty() ? std::move(otherwise) : recent_;
    num_probes_ += static_cast<std::uint32_t>(names.size());
  }
  for (const OffloadKey& name : names)
    store.submit({.verb = TierJob::Verb::load,
                  .place = 0,
                  .name = name,
                  .bytes = static_cast<std::uint32_t>(group_bytes.at(name.group)),
                  .copy = [](std::span<std::byte>) { return false; },
                  .over =
                      [this](TierOutcome) {
                        const std::lock_guard lock(mutex_);
                        --num_probes_;
                      }});
}

void SharedStoreCounters::probe_started() {
  const std::lock_guard lock(mutex_);
  ++num_probes_;
}

void SharedStoreCounters::probe_finished(bool is_answered) {
  const std::lock_guard lock(mutex_);
  ++(is_answered ? stats_.num_answered_loads : stats_.num_failed_loads);
  --num_probes_;
}

bool SharedStoreCounters::is_probing() const {
  const std::lock_guard lock(mutex_);
  return num_probes_ > 0;
}

SharedStoreStats SharedStoreCounters::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace quire
