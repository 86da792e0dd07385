// Moves blocks from memory to disk before they are evicted. Called on the engine thread between two steps; the transports' threads move the
// bytes. A block must be held in memory until it is on disk, so that at least one of the two always has it.
#include "engine/tiers/tier_spill.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

namespace quire {
namespace {

constexpr std::uint32_t kMaxStoresInFlight = 64;  // blocks, but at most a quarter of the slots, because a disk that hangs keeps them
constexpr std::uint32_t kMostReady = 256;         // maximum number of ready slots: as many as some steps need for their stores

}  // namespace

struct TierSpill::Shared {
  std::mutex mutex;
  std::vector<Ended> ended;
  std::function<void()> notify;
};

TierSpill::TierSpill(std::shared_ptr<DramTier> from, OffloadConnector& to, std::shared_ptr<DiskStore> store,
                     std::vector<std::uint64_t> group_bytes)
    : from_(std::move(from)),
      to_(to),
      store_(std::move(store)),
      group_bytes_(std::move(group_bytes)),
      shared_(std::make_shared<Shared>()) {}

TierSpill::~TierSpill() {
  set_notify({});
}

void TierSpill::set_notify(std::function<void()> notify) {
  const std::lock_guard lock(shared_->mutex);
  shared_->notify = std::move(notify);
}

bool TierSpill::maintain(bool may_store) {
  const bool has_ended = take_ended();
  return (may_store && start_stores()) || has_ended;
}

bool TierSpill::take_ended() {
  ended_.clear();
  {
    const std::lock_guard lock(shared_->mutex);
    ended_.swap(shared_->ended);
  }
  for (const Ended& one : ended_) {
    from_->offload().release(one.key);
    to_.adopted(one.key, one.is_stored);
    num_spilled_ += one.is_stored ? 1 : 0;
  }
  num_in_flight_ -= static_cast<std::uint32_t>(ended_.size());
  return !ended_.empty();
}

bool TierSpill::start_stores() {
  const OffloadLedger& ledger = from_->offload().ledger();
  const std::uint32_t num_ready = std::clamp(ledger.num_slots() / kReadyShare, 1U, kMostReady);
  if (ledger.num_free() >= num_ready) return false;
  next_.clear();
  from_->offload().append_next_victims(num_ready - ledger.num_free(), next_);
  const std::uint32_t most_in_flight = std::clamp(ledger.num_slots() / 4, 1U, kMaxStoresInFlight);
  bool has_begun = false;
  for (const OffloadKey& key : next_) {
    if (num_in_flight_ >= most_in_flight) break;
    if (to_.ledger().contains(key)) continue;
    if (!begin(key)) break;
    has_begun = true;
  }
  return has_begun;
}

// Begins to copy the block to disk. Returns false if the disk has no slot for it.
bool TierSpill::begin(const OffloadKey& key) {
  const std::optional<OffloadSlot> slot = to_.adopt(key);
  if (!slot) return false;
  const std::optional<std::uint64_t> number = from_->offload().hold(key);
  if (!number) {
    to_.adopted(key, false);
    return true;
  }
  ++num_in_flight_;
  store_->submit({.verb = TierJob::Verb::store,
                  .place = slot->value,
                  .name = key,
                  .bytes = static_cast<std::uint32_t>(group_bytes_[key.group]),
                  .copy = [from = from_, number = *number](std::span<std::byte> bytes) { return from->memory().read(number, bytes); },
                  .over =
                      [shared = shared_, key](TierOutcome outcome) {
                        const std::lock_guard lock(shared->mutex);
                        shared->ended.push_back({key, outcome == TierOutcome::done});
                        if (shared->notify) shared->notify();
                      }});
  return true;
}

}  // namespace quire
