// Assigns the slots of host memory, and copies blocks from the folder below to these slots. Only the calling thread uses the ledger. Calls
// that depend on finished reads first take the results from the disk's threads.
//
// A lookup that finds keys only in the folder starts to copy them, as many as fit next to the keys that are ready. Lookups return nullopt
// (ask again) until all of these copies have arrived or failed, which always happens. A key that was copied twice and was evicted each time
// before a request loaded it is not copied a third time. Prompts that evict each other from a small host memory are then computed instead
// of waiting forever.
#include "quire/tiered_offload.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/offload/offload_ledger.h"
#include "core/offload/reuse_filter.h"
#include "engine/offload/offload_disk_tier.h"
#include "runtime/tier/tier_files.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxPromotions = 2;
constexpr std::size_t kMaxRememberedKeys = std::size_t{1} << 16U;  // keys that were copied from the folder and not loaded since

// Returns the error with the name of TieredOffload's option as its field.
Error of_option(Error error) {
  if (error.field == "kv_disk") error.field = "folder";
  if (error.field == "kv_disk_budget") error.field = "budget_bytes";
  return error;
}

}  // namespace

struct TieredOffload::State {
  std::unique_ptr<OffloadLedger> ledger;
  std::unique_ptr<ReuseFilter> filter;  // not part of the ledger, because blocks from the folder are not filtered; may be null
  std::unique_ptr<OffloadDiskTier> disk;
  std::unordered_set<OffloadKey, OffloadKeyHash> coming;
  std::unordered_map<OffloadKey, std::uint32_t, OffloadKeyHash> num_promotions;
  // Results of the last call, and scratch memory.
  std::vector<std::uint64_t> numbers;
  std::vector<OffloadDiskTier::PromotedBlock> arrived;
  std::vector<OffloadKey> completed;

  void take_promoted() {
    arrived.clear();
    disk->take_promoted(arrived);
    for (const OffloadDiskTier::PromotedBlock& one : arrived) {
      coming.erase(one.key);
      ledger->complete_store({&one.key, 1}, one.is_good);
    }
  }

  [[nodiscard]] bool may_promote(const OffloadKey& key) const {
    const auto times = num_promotions.find(key);
    return (times == num_promotions.end() || times->second < kMaxPromotions) && disk->can_promote(key);
  }

  // The keys after the first `num_ready` that must be copied from the folder, each given by its end position. Keys that are ready or being
  // copied are not included.
  struct PromotionPlan {
    std::vector<std::size_t> ends;
    bool waits = false;  // some keys are being copied
  };
  [[nodiscard]] PromotionPlan wanted_of(std::span<const OffloadKey> keys, std::size_t num_ready) const {
    PromotionPlan wanted;
    for (std::size_t i = num_ready; i < keys.size(); ++i) {
      if (coming.contains(keys[i])) {
        wanted.waits = true;
        continue;
      }
      const std::optional<std::int32_t> count = ledger->ref_count(keys[i]);
      if (count && *count < 0) break;  // the key's store is in flight
      if (count) continue;
      if (!may_promote(keys[i])) break;
      wanted.ends.push_back(i + 1);
    }
    return wanted;
  }

  // Begins to read the keys that have no slot in host memory. Returns false if there are not enough slots.
  bool bring_up(std::span<const OffloadKey> keys) {
    const std::optional<PreparedStore> store = ledger->prepare_store(keys);
    if (!store) return false;
    completed.clear();
    for (std::size_t i = 0; i < store->keys.size(); ++i) {
      const OffloadKey& key = store->keys[i];
      if (num_promotions.size() >= kMaxRememberedKeys) num_promotions.clear();
      ++num_promotions[key];
      if (disk->bring_up(key, store->slots[i]))
        coming.insert(key);
      else
        completed.push_back(key);
    }
    ledger->complete_store(completed, false);
    return true;
  }

  // Starts copying keys after the first `num_ready` from the folder. Returns whether some keys are being copied.
  bool bring(std::span<const OffloadKey> keys, std::size_t num_ready) {
    const PromotionPlan wanted = wanted_of(keys, num_ready);
    if (wanted.ends.empty()) return wanted.waits;
    // Blocks that are being copied take at most half of the slots, so that running requests can still store.
    const std::uint32_t most = std::max(ledger->num_slots() / 2, 1U);
    if (disk->num_promoting() >= most) return true;
    std::size_t count = std::min<std::size_t>(wanted.ends.size(), most - disk->num_promoting());
    while (count > 0 && !bring_up(keys.first(wanted.ends[count - 1]))) count /= 2;
    return wanted.waits || count > 0;
  }

  [[nodiscard]] OffloadState place_of(const OffloadKey& key) const {
    if (coming.contains(key)) return OffloadState::coming;
    if (const std::optional<std::int32_t> count = ledger->ref_count(key)) return *count < 0 ? OffloadState::storing : OffloadState::stored;
    return may_promote(key) ? OffloadState::below : OffloadState::absent;
  }
};

Result<std::unique_ptr<TieredOffload>> TieredOffload::open(const TieredOffloadOptions& options) {
  auto files = open_tier_folder(options.folder, TierIo::automatic);
  if (!files) return std::unexpected(of_option(std::move(files.error())));
  return open_on(*std::move(files), options);
}

Result<std::unique_ptr<TieredOffload>> TieredOffload::open_on(std::unique_ptr<TierFiles> files, const TieredOffloadOptions& options) {
  auto state = std::make_unique<State>();
  OffloadOptions host = options.host;
  if (host.restores)
    return fail(ErrorCode::unsupported, "restores", "host memory is empty at the start, so no blocks can be restored", "leave it out");
  if (std::exchange(host.store_threshold, 0) >= 2) {
    auto filter = ReuseFilter::create(options.host.store_threshold, host.max_tracked_keys);
    if (!filter) return std::unexpected(std::move(filter.error()));
    state->filter = *std::move(filter);
  }
  auto ledger = OffloadLedger::create(host);
  if (!ledger) return std::unexpected(std::move(ledger.error()));
  state->ledger = *std::move(ledger);
  auto disk = OffloadDiskTier::open(std::move(files), options, state->ledger->num_slots());
  if (!disk) return std::unexpected(of_option(std::move(disk.error())));
  state->disk = *std::move(disk);
  return std::unique_ptr<TieredOffload>(new TieredOffload(std::move(state)));
}

TieredOffload::TieredOffload(std::unique_ptr<State> state) : state_(std::move(state)) {}
TieredOffload::~TieredOffload() = default;

std::optional<std::uint32_t> TieredOffload::lookup(std::span<const OffloadKey> keys) {
  State& state = *state_;
  state.take_promoted();
  count(keys);
  const std::uint32_t num_ready = state.ledger->lookup(keys);
  return state.bring(keys, num_ready) ? std::nullopt : std::optional(num_ready);
}

std::vector<OffloadState> TieredOffload::find(std::span<const OffloadKey> keys) {
  State& state = *state_;
  state.take_promoted();
  std::vector<OffloadState> places;
  places.reserve(keys.size());
  for (const OffloadKey& key : keys) places.push_back(state.place_of(key));
  return places;
}

bool TieredOffload::bring_up(std::span<const OffloadKey> keys) {
  state_->take_promoted();
  return state_->bring(keys, 0);
}

void TieredOffload::count(std::span<const OffloadKey> keys) {
  if (state_->filter != nullptr) state_->filter->count(keys);
}

Result<std::span<const OffloadSlot>> TieredOffload::prepare_load(std::span<const OffloadKey> keys) {
  auto slots = state_->ledger->prepare_load(keys);
  if (!slots) return slots;
  for (const OffloadKey& key : keys) state_->num_promotions.erase(key);
  state_->disk->touch(keys);
  return slots;
}

Result<void> TieredOffload::complete_load(std::span<const OffloadKey> keys) {
  return state_->ledger->complete_load(keys);
}

void TieredOffload::touch(std::span<const OffloadKey> keys) {
  state_->ledger->touch(keys);
}

void TieredOffload::use(std::span<const OffloadKey> keys) {
  state_->ledger->use(keys);
}

std::optional<StoreWithNumbers> TieredOffload::prepare_store(std::span<const OffloadKey> keys) {
  State& state = *state_;
  state.take_promoted();
  if (state.filter != nullptr) keys = state.filter->eligible(keys);
  const std::optional<PreparedStore> store = state.ledger->prepare_store(keys);
  if (!store) return std::nullopt;
  state.numbers.clear();
  for (std::size_t i = 0; i < store->keys.size(); ++i) {
    state.num_promotions.erase(store->keys[i]);
    state.numbers.push_back(state.disk->expect(store->slots[i], store->keys[i]));
  }
  return StoreWithNumbers{.keys = store->keys, .slots = store->slots, .numbers = state.numbers, .evicted = store->evicted};
}

// Ends stores, except for keys that are being copied from the folder: take_promoted() completes these.
void TieredOffload::complete_store(std::span<const OffloadKey> keys, bool success) {
  state_->completed.clear();
  std::ranges::copy_if(keys, std::back_inserter(state_->completed),
                       [this](const OffloadKey& key) { return !state_->coming.contains(key); });
  state_->ledger->complete_store(state_->completed, success);
}

bool TieredOffload::discard(const OffloadKey& key) {
  return state_->ledger->discard(key);
}
std::uint32_t TieredOffload::num_slots() const {
  return state_->ledger->num_slots();
}
std::size_t TieredOffload::num_events() const {
  return state_->ledger->num_events();
}
OffloadEvent TieredOffload::event(std::size_t position) const {
  return state_->ledger->event(position);
}
void TieredOffload::clear_events() {
  state_->ledger->clear_events();
}

TieredOffloadStats TieredOffload::stats() const {
  return state_->disk->stats();
}

}  // namespace quire
