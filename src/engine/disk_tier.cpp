#include "engine/disk_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace quire {
namespace {

constexpr std::uint32_t kTakenAtOnce = 1024;  // restored blocks between two steps: some tenths of a millisecond
// Far longer than loads take that wait behind many others.
constexpr double kPatience_s = 20.0;

Result<std::uint64_t> resolve_budget(const KvDiskOptions& options, TierFiles& files, std::uint64_t block_bytes) {
  if (options.budget_bytes > 0) return options.budget_bytes;
  const Result<std::uint64_t> own = files.disk_bytes();
  if (!own) return own;
  const Result<std::uint64_t> free = free_bytes(options.folder);
  if (!free) return free;
  return default_tier_budget(*free, *own, padded_to_page(block_bytes));
}

}  // namespace

std::uint64_t default_tier_budget(std::uint64_t free_bytes, std::uint64_t own_bytes, std::uint64_t place_bytes) {
  return std::min({(free_bytes + own_bytes) / 4, std::uint64_t{64} << 30U, place_bytes << 20U});
}

Result<void> DiskTier::check(const CoreConfig& config) {
  if (!config.prefix_cache.enable_prefix_caching)
    return fail(ErrorCode::invalid_argument, "kv_disk", "prefix caching is off, and what is stored is found as prefixes are",
                "turn it on, or give no folder");
  if (const Result<void> checked = OffloadConnector::check(config); !checked)
    return fail(ErrorCode::unsupported, "kv_disk", fmt::format("this model's KV cache cannot be stored: {}", checked.error().message),
                "give no folder; the model is served without one");
  return {};
}

Result<std::shared_ptr<DiskTier>> DiskTier::open(const KvDiskOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                 const TierFingerprint& fingerprint) {
  if (Result<void> checked = check(config); !checked) return std::unexpected(std::move(checked.error()));
  auto files = open_tier_folder(options.folder, TierIo::automatic);
  if (!files) return std::unexpected(std::move(files.error()));
  const std::uint64_t block_bytes = layout.group_block_bytes(0);
  const Result<std::uint64_t> budget = resolve_budget(options, **files, block_bytes);
  if (!budget) return std::unexpected(budget.error());
  auto store = DiskStore::open(*std::move(files), {.budget_bytes = *budget, .block_bytes = block_bytes, .fingerprint = fingerprint});
  if (!store) return std::unexpected(std::move(store.error()));
  std::shared_ptr<DiskTier> tier(new DiskTier(*std::move(store), *budget, config.block_size));
  auto connector = OffloadConnector::create(
      {.cpu_bytes_to_use = tier->store_->num_places() * block_bytes, .eviction_policy = options.eviction_policy, .found_when_stored = true},
      config, block_bytes, tier.get());
  if (!connector) return std::unexpected(std::move(connector.error()));
  tier->connector_ = *std::move(connector);
  tier->finder_ = std::thread([self = tier.get()] { self->find_restored(); });
  return tier;
}

DiskTier::DiskTier(std::shared_ptr<DiskStore> store, std::uint64_t budget_bytes, std::uint32_t block_size)
    : store_(std::move(store)), transport_(store_, kPatience_s, true), budget_bytes_(budget_bytes), block_size_(block_size) {}

DiskTier::~DiskTier() {
  stops_ = true;
  if (finder_.joinable()) finder_.join();
}

std::uint64_t DiskTier::assign(std::uint64_t place, const OffloadKey& key) {
  return transport_.assign(static_cast<std::uint32_t>(place), key);
}

void DiskTier::notify_with(std::function<void()> notify) {
  const std::lock_guard lock(mutex_);
  notify_ = std::move(notify);
}

void DiskTier::find_restored() {
  std::vector<RestoredBlock> found;
  for (std::uint32_t known = 0; known < store_->num_places();) {
    if (stops_) return;
    const std::uint32_t before = std::exchange(known, store_->restored(known, found));
    if (known == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::erase_if(found, [this](const RestoredBlock& block) { return block.bytes != store_->block_bytes(); });
  std::vector<bool> is_held(store_->num_places());
  for (const RestoredBlock& block : found) is_held[block.place] = true;
  for (std::uint32_t place = 0; place < store_->num_places(); ++place)
    if (!is_held[place]) empty_.push_back(place);
  std::ranges::sort(found, {}, &RestoredBlock::sequence);
  restored_ = std::move(found);
  is_found_ = true;
  const std::lock_guard lock(mutex_);
  if (notify_) notify_();
}

// Empty places first, so that stores need not wait for the rest.
bool DiskTier::tend() {
  if (!is_found_ || (empty_.empty() && restored_.empty())) return false;
  for (std::uint32_t i = 0; i < kTakenAtOnce; ++i) {
    if (!empty_.empty()) {
      connector_->restore(OffloadSlot{empty_.back()}, nullptr);
      empty_.pop_back();
    } else if (!restored_.empty()) {
      connector_->restore(OffloadSlot{restored_.back().place}, &restored_.back().name);
      restored_.pop_back();
    }
  }
  return true;
}

KvTierStats DiskTier::stats() const {
  const DiskStoreStats store = store_->stats();
  const OffloadLedger& ledger = connector_->ledger();
  return {.budget_bytes = budget_bytes_,
          .place_bytes = padded_to_page(store_->block_bytes()),
          .num_places = store_->num_places(),
          .num_used_places = ledger.num_slots() - ledger.num_free() - ledger.num_unread(),
          .num_unread_places = ledger.num_unread(),
          .num_restored_blocks = store.num_restored,
          .num_stored_blocks = store.num_stored,
          .num_loaded_blocks = store.num_loaded,
          .bytes_stored = store.bytes_stored,
          .bytes_loaded = store.bytes_loaded,
          .tokens_loaded = store.num_loaded * block_size_,
          .num_without_room = connector_->counters().num_without_room,
          .num_refused_blocks = store.num_refused + store.num_entries_refused,
          .num_failed_blocks = store.num_failed};
}

}  // namespace quire
