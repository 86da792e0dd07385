// Implements the tier in a store that several servers share. The tier uses two threads in addition to the store's threads. The engine
// thread calls maintain(), stats() and, through the core, the connector and assign(). The tier's private thread reads the store's counters
// several times per second. The engine thread makes no call to the store that would have to wait.
#include "engine/tiers/remote_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/seconds.h"
#include "engine/tiers/kv_key.h"
#include "engine/tiers/tier_check.h"
#include "runtime/remote/remote_store.h"

namespace quire {
namespace {

constexpr std::uint64_t kDefaultRemoteBudget = std::uint64_t{16} << 30U;
constexpr std::uint64_t kMaxRemoteSlots = std::uint64_t{1} << 28U;  // the limit of a ledger
constexpr std::uint64_t kLongestTtl_s = std::uint64_t{100} * 365 * 24 * 60 * 60;
constexpr std::chrono::milliseconds kRemotePollInterval(100);
constexpr double kProbeInterval_s = 5.0;
constexpr std::size_t kMaxProblemBytes = 200;  // longest store message in the log, in characters

Result<RemoteAddress> address_of(const KvRemoteOptions& options) {
  Result<RemoteAddress> address = parse_remote_address(options.address);
  if (address) address->ca_file = options.ca_file;
  return address;
}

Result<std::vector<std::byte>> secret_of(const KvRemoteOptions& options, const RemoteAddress& address) {
  if (!options.key_file.empty()) return read_kv_key(options.key_file, "kv_remote_key");
  if (address.is_local()) return std::vector<std::byte>();
  return fail(ErrorCode::invalid_argument, "kv_remote_key", "is required, because others can write to a store on another machine",
              "use a file of at least 16 random bytes, the same on all servers that share the store");
}

}  // namespace

Result<void> check_remote(const KvRemoteOptions& options) {
  const Result<RemoteAddress> address = address_of(options);
  if (!address) return std::unexpected(address.error());
  if (Result<void> client = check_remote_client(); !client) return client;
  if (options.ttl_s == 0 || options.ttl_s > kLongestTtl_s)
    return fail(ErrorCode::invalid_argument, "kv_remote_ttl", fmt::format("{} s is out of range", options.ttl_s), "use 1 s to 100 years");
  const auto secret = secret_of(options, *address);
  return secret ? Result<void>() : std::unexpected(secret.error());
}

Result<std::shared_ptr<RemoteTier>> RemoteTier::open(const KvRemoteOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                     const TierFingerprint& fingerprint, const RemoteTimeouts& timeouts) {
  if (Result<void> checked = check_tier(config, "kv_remote"); !checked) return std::unexpected(std::move(checked.error()));
  if (Result<void> checked = check_remote(options); !checked) return std::unexpected(std::move(checked.error()));
  Result<RemoteAddress> address = address_of(options);
  if (!address) return std::unexpected(std::move(address.error()));
  auto secret = secret_of(options, *address);
  if (!secret) return std::unexpected(std::move(secret.error()));
  const std::vector<std::uint64_t> group_bytes = group_block_bytes(layout);
  const std::uint64_t block_bytes = std::ranges::max(group_bytes);
  const std::uint64_t budget = options.budget_bytes == 0 ? kDefaultRemoteBudget : options.budget_bytes;
  const std::uint64_t num_places = std::min(budget / remote_value_bytes(block_bytes), kMaxRemoteSlots);
  if (num_places == 0)
    return fail(ErrorCode::invalid_argument, "kv_remote_budget",
                fmt::format("{} bytes are too small for one block of {} bytes", budget, block_bytes),
                "use a size that holds several thousand blocks");
  auto store = RemoteStore::open({.address = *std::move(address),
                                  .secret = *std::move(secret),
                                  .fingerprint = fingerprint,
                                  .num_places = static_cast<std::uint32_t>(num_places),
                                  .group_bytes = group_bytes,
                                  .ttl_s = options.ttl_s,
                                  .yields_cores = options.policy == KvTierPolicy::measured,
                                  .timeout_s = timeouts.reply_s});
  if (!store) return std::unexpected(std::move(store.error()));
  return open_on(*std::move(store),
                 {.policy = options.policy,
                  .join_loads = options.join_loads,
                  .budget_bytes = budget,
                  .place_bytes = remote_value_bytes(block_bytes),
                  .timeouts = timeouts},
                 config);
}

Result<std::shared_ptr<RemoteTier>> RemoteTier::open_on(std::shared_ptr<SharedStore> store, const RemoteTierOptions& options,
                                                        const CoreConfig& config) {
  const std::uint64_t num_places = store->num_places(), block_bytes = store->block_bytes();
  std::shared_ptr<RemoteTier> tier(new RemoteTier(std::move(store), options));
  const bool is_measured = options.policy == KvTierPolicy::measured;
  auto connector = OffloadConnector::create({.cpu_bytes_to_use = num_places * block_bytes,
                                             .enable_events = config.report.enable_kv_events,
                                             .join_loads = options.join_loads,
                                             .hit_after_store_completes = true,
                                             .max_storing_blocks = is_measured ? std::max(1U, config.kv.num_blocks / 4) : 0,
                                             .stores_leading_blocks = is_measured},
                                            config, block_bytes, tier.get());
  if (!connector) return std::unexpected(std::move(connector.error()));
  // Reports all slots as empty: the connector treats every slot as unread until restore() is called for it.
  for (std::uint32_t place = 0; place < num_places; ++place) (*connector)->restore(OffloadSlot{place}, nullptr);
  tier->connector_ =
      std::make_unique<RemoteConnector>(*std::move(connector), *tier->store_, steady_seconds(options.timeouts.lookup_timeout_s));
  tier->serve();
  // Started last, because the thread uses all other members. The thread may keep a plain pointer, because the destructor joins it.
  tier->thread_ = std::thread([self = tier.get()] { self->run(); });
  return tier;
}

RemoteTier::RemoteTier(std::shared_ptr<SharedStore> store, const RemoteTierOptions& options)
    : store_(std::move(store)),
      options_(options),
      transport_(store_, options.timeouts.block_s, options.policy == KvTierPolicy::measured),
      places_(store_->num_places()),
      load_rate_(kLoadHorizon_s) {}

RemoteTier::~RemoteTier() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  stopping_.notify_all();
  if (thread_.joinable()) thread_.join();
}

// Assigns the slot to another key. Removes the previous block from the store if this server stored it and the ledger no longer contains it.
std::uint64_t RemoteTier::assign(std::uint64_t place, const OffloadKey& name) {
  const Place before = std::exchange(places_.at(place), {.name = name, .is_local = !connector_->is_learning()});
  if (before.is_local && before.name != name && !connector_->offload().ledger().contains(before.name)) store_->forget(before.name);
  return transport_.assign(static_cast<std::uint32_t>(place), name);
}

void RemoteTier::set_notify(const std::function<void()>& notify) {
  const std::lock_guard lock(mutex_);
  notify_ = notify;
}

void RemoteTier::run() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, kRemotePollInterval, [this] { return stops_; })) {
    const double now_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (look(now_s) && notify_) notify_();
  }
}

// Checks the store. Returns whether statistics or services have changed so that the engine must be notified. The mutex must be held.
bool RemoteTier::look(double now_s) {
  const SharedStoreStats stats = store_->stats();
  const std::uint64_t num_bad_loads = stats.num_failed_loads + stats.num_refused + connector_->num_timed_out();
  loads_.note(stats.num_answered_loads, num_bad_loads + transport_.num_timed_out(TransferDirection::load), now_s);
  stores_.note(stats.num_stored, stats.num_failed_stores + transport_.num_timed_out(TransferDirection::store), now_s);
  if (stores_.is_trial_due(now_s)) stores_.begin_trial();
  const bool tries = loads_.is_trial_due(now_s);
  const bool measures = loads_.is_enabled() && should_probe_ && now_s >= next_try_s_;
  if ((tries || measures) && !store_->is_probing()) {
    store_->probe_loads();
    should_probe_ = false;
    next_try_s_ = now_s + kProbeInterval_s;
    if (tries) loads_.begin_trial();
  }
  const TierService before = std::exchange(watched_, {.loads = loads_.is_enabled(), .stores = !stores_.is_disabled()});
  // The counts of blocks sent to other servers must be published too, and an idle engine publishes nothing unless it is notified here.
  const bool gives = !store_->service().stores && stats.num_stored != std::exchange(num_served_, stats.num_stored);
  return watched_ != before || gives;
}

void RemoteTier::serve() {
  const TierService can = store_->service();
  connector_->serve({.loads = service_.loads && can.loads, .stores = service_.stores && can.stores});
}

bool RemoteTier::maintain(double compute_tokens_per_s) {
  const TierService before = service_;
  {
    const std::lock_guard lock(mutex_);
    service_ = watched_;
    // If the policy declines loads, nothing is measured, so a trial load measures the speed instead.
    const std::uint64_t declined = connector_->offload().counters().num_computed_tokens;
    if (std::exchange(num_declined_tokens_, declined) != declined) should_probe_ = true;
  }
  if (service_ != before) serve();
  const SharedStoreStats store = store_->stats();
  const bool has_given = store.num_stored != std::exchange(num_reported_, store.num_stored) && !store_->service().stores;
  if (options_.policy == KvTierPolicy::exact) return service_ != before || has_given;
  const auto bytes = static_cast<double>(store.bytes_read - std::exchange(bytes_read_, store.bytes_read));
  load_rate_.add(bytes, store.loading_s - std::exchange(loading_s_, store.loading_s));
  const TierCosts costs_before =
      std::exchange(costs_, {.load_bytes_per_s = load_rate_.per_second(), .compute_tokens_per_s = compute_tokens_per_s});
  connector_->offload().set_costs(costs_);
  return service_ != before || costs_ != costs_before || has_given;
}

void RemoteTier::take_events(const TierBlockFormat& format, std::vector<KvEvent>& out) {
  take_tier_events(connector_->offload(), format, "REMOTE", out);
}

KvTierStats RemoteTier::stats() const {
  const SharedStoreStats store = store_->stats();
  const OffloadLedger& ledger = connector_->offload().ledger();
  const OffloadCounters& counters = connector_->offload().counters();
  const std::lock_guard lock(mutex_);
  return {.name = options_.name,
          .budget_bytes = options_.budget_bytes,
          .place_bytes = options_.place_bytes,
          .num_places = ledger.num_slots(),
          .num_used_slots = ledger.num_slots() - ledger.num_free(),
          .num_stored_blocks = store.num_stored,
          .num_loaded_blocks = store.num_loaded,
          .bytes_stored = store.bytes_stored,
          .bytes_loaded = store.bytes_loaded,
          .tokens_loaded = counters.num_loaded_tokens,
          .num_without_slot = connector_->offload().num_left_out(),
          .num_corrupted_blocks = store.num_refused,
          .num_failed_blocks = store.num_failed_stores + store.num_failed_loads,
          .num_deferred_by_limit = counters.num_deferred_by_limit,
          .num_stored_when_idle = counters.num_stored_when_idle,
          .num_computed_tokens = counters.num_computed_tokens,
          .load_bytes_per_s = costs_.load_bytes_per_s,
          .compute_tokens_per_s = costs_.compute_tokens_per_s,
          .loads_left_out = !service_.loads,
          .stores_left_out = !service_.stores,
          .num_times_disabled = loads_.num_times_disabled() + stores_.num_times_disabled(),
          .num_queried_blocks = store.num_asked,
          .num_found_blocks = store.num_found,
          .num_query_timeouts = connector_->num_timed_out(),
          .num_vanished_blocks = store.num_absent,
          .problem = store_->last_problem().substr(0, kMaxProblemBytes)};
}

}  // namespace quire
