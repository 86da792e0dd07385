// Implements the two threads of the disk tier. The engine thread calls maintain(), stats() and, through the core, the connector. The tier's
// private thread first reads what the folder contains, and then monitors the disk (run()). The threads share only atomics, members guarded
// by the mutex, and the two lists that the tier's thread writes before it sets `is_found_`. While the engine runs, the engine thread
// accesses no file here.
#include "engine/tiers/disk_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/tiers/tier_check.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxRestoredPerStep = 1024;  // restored blocks taken between two steps, in some tenths of a millisecond
constexpr double kDiskTimeout_s = 5.0;               // a transfer fails if the disk moves no bytes for this time
constexpr std::chrono::milliseconds kPollInterval(250);

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

Result<std::shared_ptr<DiskTier>> DiskTier::open(const KvDiskOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                 const TierFingerprint& fingerprint) {
  if (Result<void> checked = check_tier(config, "kv_disk"); !checked) return std::unexpected(std::move(checked.error()));
  auto files = open_tier_folder(options.folder, TierIo::automatic);
  if (!files) return std::unexpected(std::move(files.error()));
  return open_on(*std::move(files), options, config, layout, fingerprint);
}

Result<std::shared_ptr<DiskTier>> DiskTier::open_on(std::unique_ptr<TierFiles> files, const KvDiskOptions& options,
                                                    const CoreConfig& config, const KvLayout& layout, const TierFingerprint& fingerprint) {
  std::vector<std::uint64_t> group_bytes = group_block_bytes(layout);
  const std::uint64_t block_bytes = std::ranges::max(group_bytes);
  const Result<std::uint64_t> budget = resolve_budget(options, *files, block_bytes);
  if (!budget) return std::unexpected(budget.error());
  auto store = DiskStore::open(std::move(files), {.budget_bytes = *budget,
                                                  .block_bytes = block_bytes,
                                                  .fingerprint = fingerprint,
                                                  .bytes_per_second = options.bytes_per_second,
                                                  .yields_cores = options.policy == KvTierPolicy::measured});
  if (!store) return std::unexpected(std::move(store.error()));
  std::shared_ptr<DiskTier> tier(new DiskTier(*std::move(store), options, *budget, std::move(group_bytes)));
  OffloadConnectorOptions of_connector = tier_connector_options(tier->store_->num_places() * block_bytes, options, config);
  of_connector.skips_stores_on_churn = options.policy == KvTierPolicy::measured;
  auto connector = OffloadConnector::create(of_connector, config, block_bytes, tier.get());
  if (!connector) return std::unexpected(std::move(connector.error()));
  tier->connector_ = *std::move(connector);
  // Started last, because the thread uses all other members. The thread may keep a plain pointer, because the destructor joins it.
  tier->thread_ = std::thread([self = tier.get()] { self->run(); });
  return tier;
}

DiskTier::DiskTier(std::shared_ptr<DiskStore> store, const KvDiskOptions& options, std::uint64_t budget_bytes,
                   std::vector<std::uint64_t> group_bytes)
    : store_(std::move(store)),
      transport_(store_, kDiskTimeout_s, options.policy == KvTierPolicy::measured),
      monitor_(store_, transport_, options.folder),
      policy_(options.policy),
      budget_bytes_(budget_bytes),
      group_bytes_(std::move(group_bytes)),
      load_rate_(kLoadHorizon_s) {}

DiskTier::~DiskTier() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::uint64_t DiskTier::assign(std::uint64_t place, const OffloadKey& key) {
  return transport_.assign(static_cast<std::uint32_t>(place), key);
}

void DiskTier::set_upper_tier(std::shared_ptr<DramTier> upper) {
  upper->set_lower_ledger(connector_->ledger());
  // Limits the size of requests that the upper tier stores. A larger prompt would evict blocks that are not on disk yet, because TierSpill
  // keeps at most one in kReadyShare slots ready for eviction.
  upper->offload().set_max_request_blocks(upper->offload().ledger().num_slots() / TierSpill::kReadyShare);
  connector_->set_upper_tier(upper->offload());
  spill_ = std::make_unique<TierSpill>(std::move(upper), *connector_, store_, group_bytes_);
}

void DiskTier::set_notify(const std::function<void()>& notify) {
  if (spill_ != nullptr) spill_->set_notify(notify);
  const std::lock_guard lock(mutex_);
  notify_ = notify;
}

void DiskTier::notify() {
  const std::lock_guard lock(mutex_);
  if (notify_) notify_();
}

void DiskTier::run() {
  find_restored();
  notify();
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, kPollInterval, [this] { return stops_.load(); })) {
    lock.unlock();
    if (monitor_.look(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count())) notify();
    lock.lock();
  }
}

// Reads the store's table, which the store provides in parts, until the whole table is known or the tier is destroyed.
void DiskTier::find_restored() {
  std::vector<RestoredBlock> found;
  for (std::uint32_t known = 0; known < store_->num_places();) {
    if (stops_) return;
    const std::uint32_t before = std::exchange(known, store_->restored(known, found));
    if (known == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // Drops blocks of another layout, so that their slots count as empty. The fingerprint should have excluded such blocks.
  std::erase_if(found, [this](const RestoredBlock& block) {
    return block.name.group >= group_bytes_.size() || block.bytes != group_bytes_[block.name.group];
  });
  std::vector<bool> is_held(store_->num_places());
  for (const RestoredBlock& block : found) is_held[block.place] = true;
  for (std::uint32_t place = 0; place < store_->num_places(); ++place)
    if (!is_held[place]) empty_.push_back(place);
  std::ranges::sort(found, {}, &RestoredBlock::sequence);
  restored_ = std::move(found);
  is_found_ = true;
}

bool DiskTier::maintain(double compute_tokens_per_s) {
  const bool took = take_restored();
  const TierService before = std::exchange(service_, monitor_.service());
  if (service_ != before) connector_->serve(service_);
  const bool has_spilled = spill_ != nullptr && spill_->maintain(service_.stores);
  const bool costs_differ = policy_ == KvTierPolicy::measured && take_costs(compute_tokens_per_s);
  return took || service_ != before || has_spilled || costs_differ;
}

// Passes some empty slots and restored blocks to the connector. Empty slots come first, so that stores need not wait for the restored
// blocks.
bool DiskTier::take_restored() {
  if (!is_found_ || (empty_.empty() && restored_.empty())) return false;
  for (std::uint32_t i = 0; i < kMaxRestoredPerStep; ++i) {
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

bool DiskTier::take_costs(double compute_tokens_per_s) {
  const DiskStoreStats store = store_->stats();
  const double bytes = static_cast<double>(store.bytes_read - std::exchange(bytes_read_, store.bytes_read));
  load_rate_.add(bytes, store.loading_s - std::exchange(loading_s_, store.loading_s));
  const TierCosts before =
      std::exchange(costs_, {.load_bytes_per_s = load_rate_.per_second(), .compute_tokens_per_s = compute_tokens_per_s});
  connector_->set_costs(costs_);
  // If the policy declines loads, nothing is measured, so the monitor reads some blocks instead.
  const std::uint64_t declined = connector_->counters().num_computed_tokens;
  if (std::exchange(num_declined_tokens_, declined) != declined) monitor_.request_probe();
  return costs_ != before;
}

void DiskTier::take_events(const TierBlockFormat& format, std::vector<KvEvent>& out) {
  take_tier_events(*connector_, format, "DISK", out);
}

KvTierStats DiskTier::stats() const {
  const DiskStoreStats store = store_->stats();
  const OffloadLedger& ledger = connector_->ledger();
  return {.name = "disk",
          .budget_bytes = budget_bytes_,
          .place_bytes = padded_to_page(store_->block_bytes()),
          .num_places = store_->num_places(),
          .num_used_slots = ledger.num_slots() - ledger.num_free() - ledger.num_unread(),
          .num_unread_slots = ledger.num_unread(),
          .num_restored_blocks = store.num_restored,
          .num_stored_blocks = store.num_stored,
          .num_loaded_blocks = store.num_loaded,
          .bytes_stored = store.bytes_stored,
          .bytes_loaded = store.bytes_loaded,
          .tokens_loaded = connector_->counters().num_loaded_tokens,
          .num_without_slot = connector_->num_left_out(),
          .num_corrupted_blocks = store.num_refused + store.num_entries_refused,
          .num_failed_blocks = store.num_failed(),
          .num_deferred_by_limit = connector_->counters().num_deferred_by_limit,
          .num_stored_when_idle = connector_->counters().num_stored_when_idle,
          .num_filtered_blocks = connector_->counters().num_skipped_for_churn,
          .num_computed_tokens = connector_->counters().num_computed_tokens,
          .load_bytes_per_s = costs_.load_bytes_per_s,
          .compute_tokens_per_s = costs_.compute_tokens_per_s,
          .num_demoted_blocks = spill_ == nullptr ? 0 : spill_->num_spilled(),
          .num_dropped_blocks = 0,
          .loads_left_out = !service_.loads,
          .stores_left_out = !service_.stores,
          .num_times_disabled = monitor_.num_times_disabled()};
}

}  // namespace quire
