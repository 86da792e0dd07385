// Moves blocks down from memory to disk as they cool. Called on the engine's thread between two steps; the bytes move on the transports'
// threads. A block must stay held in memory until the disk has it, so that at no time it is found in neither.
#include "engine/tiers/tier_spill.h"

#include <algorithm>
#include <mutex>
#include <span>
#include <utility>

namespace quire {
namespace {

constexpr std::uint32_t kMostUnderWay = 64;  // blocks, and no more than a quarter of the places: a disk that hangs keeps those
// Of the places, the share that is to be ready to go, and how many blocks that is at most: as many as some steps store.
constexpr std::uint32_t kReadyShare = 2, kMostReady = 256;

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
  notify_with({});
}

void TierSpill::notify_with(std::function<void()> notify) {
  const std::lock_guard lock(shared_->mutex);
  shared_->notify = std::move(notify);
}

bool TierSpill::tend(bool may_store) {
  const bool has_ended = take_ended();
  return (may_store && begin_some()) || has_ended;
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
  num_under_way_ -= static_cast<std::uint32_t>(ended_.size());
  return !ended_.empty();
}

bool TierSpill::begin_some() {
  const OffloadLedger& ledger = from_->offload().ledger();
  const std::uint32_t num_ready = std::clamp(ledger.num_slots() / kReadyShare, 1U, kMostReady);
  if (ledger.num_free() >= num_ready) return false;
  next_.clear();
  from_->offload().append_next(num_ready - ledger.num_free(), next_);
  const std::uint32_t most_under_way = std::clamp(ledger.num_slots() / 4, 1U, kMostUnderWay);
  bool has_begun = false;
  for (const OffloadKey& key : next_) {
    if (num_under_way_ >= most_under_way) break;
    if (to_.ledger().contains(key)) continue;
    if (!begin(key)) break;
    has_begun = true;
  }
  return has_begun;
}

// False: there is no room for it.
bool TierSpill::begin(const OffloadKey& key) {
  const std::optional<OffloadSlot> slot = to_.adopt(key);
  if (!slot) return false;
  const std::optional<std::uint64_t> number = from_->offload().hold(key);
  if (!number) {
    to_.adopted(key, false);
    return true;
  }
  ++num_under_way_;
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
