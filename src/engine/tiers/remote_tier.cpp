// The tier in a store that servers share. Two threads beside those of the store: the engine's calls tend(), stats() and, through the core,
// the connector and assign(); the tier's own looks at the store's counters some times a second. The engine's thread asks the store for
// nothing that it would have to wait for.
#include "engine/tiers/remote_tier.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/tiers/kv_key.h"
#include "engine/tiers/tier_check.h"
#include "runtime/remote/remote_store.h"

namespace quire {
namespace {

constexpr std::uint64_t kDefaultRemoteBudget = std::uint64_t{16} << 30U;
constexpr std::uint64_t kMostRemotePlaces = std::uint64_t{1} << 28U;  // of a ledger
constexpr std::uint64_t kLongestTtl_s = std::uint64_t{100} * 365 * 24 * 60 * 60;
constexpr std::chrono::milliseconds kBetweenRemoteLooks(100);
constexpr double kBetweenTries_s = 5.0;
constexpr std::size_t kMostOfProblem = 200;  // of what a store may write into a log

Result<RemoteAddress> address_of(const KvRemoteOptions& options) {
  Result<RemoteAddress> address = parse_remote_address(options.address);
  if (address) address->ca_file = options.ca_file;
  return address;
}

Result<std::vector<std::byte>> secret_of(const KvRemoteOptions& options, const RemoteAddress& address) {
  if (!options.key_file.empty()) return read_kv_key(options.key_file, "kv_remote_key");
  if (address.is_local()) return std::vector<std::byte>();
  return fail(ErrorCode::invalid_argument, "kv_remote_key", "a store on another machine may be written to by others, and there is no key",
              "give a file of at least 16 random bytes, the same on all servers that share the store");
}

}  // namespace

Result<void> check_remote(const KvRemoteOptions& options) {
  const Result<RemoteAddress> address = address_of(options);
  if (!address) return std::unexpected(address.error());
  if (Result<void> client = check_remote_client(); !client) return client;
  if (options.ttl_s == 0 || options.ttl_s > kLongestTtl_s)
    return fail(ErrorCode::invalid_argument, "kv_remote_ttl", fmt::format("{} s is no time to keep blocks", options.ttl_s),
                "give seconds, from 1 to a hundred years");
  const auto secret = secret_of(options, *address);
  return secret ? Result<void>() : std::unexpected(secret.error());
}

Result<std::shared_ptr<RemoteTier>> RemoteTier::open(const KvRemoteOptions& options, const CoreConfig& config, const KvLayout& layout,
                                                     const TierFingerprint& fingerprint, const RemotePatience& patience) {
  if (Result<void> checked = check_tier(config, "kv_remote"); !checked) return std::unexpected(std::move(checked.error()));
  if (Result<void> checked = check_remote(options); !checked) return std::unexpected(std::move(checked.error()));
  Result<RemoteAddress> address = address_of(options);
  if (!address) return std::unexpected(std::move(address.error()));
  auto secret = secret_of(options, *address);
  if (!secret) return std::unexpected(std::move(secret.error()));
  const std::vector<std::uint64_t> group_bytes = group_block_bytes(layout);
  const std::uint64_t block_bytes = std::ranges::max(group_bytes);
  const std::uint64_t budget = options.budget_bytes == 0 ? kDefaultRemoteBudget : options.budget_bytes;
  const std::uint64_t num_places = std::min(budget / remote_value_bytes(block_bytes), kMostRemotePlaces);
  if (num_places == 0)
    return fail(ErrorCode::invalid_argument, "kv_remote_budget",
                fmt::format("{} bytes have no room for a block of {}", budget, block_bytes), "give room for some thousand");
  auto store = RemoteStore::open({.address = *std::move(address),
                                  .secret = *std::move(secret),
                                  .fingerprint = fingerprint,
                                  .num_places = static_cast<std::uint32_t>(num_places),
                                  .group_bytes = group_bytes,
                                  .ttl_s = options.ttl_s,
                                  .gives_way = options.policy == KvTierPolicy::measured,
                                  .patience_s = patience.reply_s});
  if (!store) return std::unexpected(std::move(store.error()));
  return open_on(*std::move(store),
                 {.policy = options.policy,
                  .join_loads = options.join_loads,
                  .budget_bytes = budget,
                  .place_bytes = remote_value_bytes(block_bytes),
                  .patience = patience},
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
                                             .found_when_stored = true,
                                             .max_storing_blocks = is_measured ? std::max(1U, config.kv.num_blocks / 4) : 0},
                                            config, block_bytes, tier.get());
  if (!connector) return std::unexpected(std::move(connector.error()));
  // It takes every place for unread until it is told.
  for (std::uint32_t place = 0; place < num_places; ++place) (*connector)->restore(OffloadSlot{place}, nullptr);
  tier->connector_ = std::make_unique<RemoteConnector>(
      *std::move(connector), *tier->store_,
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(options.patience.answer_s)));
  tier->serve();
  // Last: it uses all the others. A plain pointer, for the destructor joins it.
  tier->thread_ = std::thread([self = tier.get()] { self->run(); });
  return tier;
}

RemoteTier::RemoteTier(std::shared_ptr<SharedStore> store, const RemoteTierOptions& options)
    : store_(std::move(store)),
      options_(options),
      transport_(store_, options.patience.block_s, options.policy == KvTierPolicy::measured),
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

// What has left the ledger, and not for another of its places, leaves the store, where this server has put it.
std::uint64_t RemoteTier::assign(std::uint64_t place, const OffloadKey& name) {
  const Place before = std::exchange(places_.at(place), {.name = name, .is_own = !connector_->is_learning()});
  if (before.is_own && before.name != name && !connector_->offload().ledger().contains(before.name)) store_->forget(before.name);
  return transport_.assign(static_cast<std::uint32_t>(place), name);
}

void RemoteTier::notify_with(const std::function<void()>& notify) {
  const std::lock_guard lock(mutex_);
  notify_ = notify;
}

void RemoteTier::run() {
  const auto begin = std::chrono::steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stopping_.wait_for(lock, kBetweenRemoteLooks, [this] { return stops_; })) {
    const double now_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (look(now_s) && notify_) notify_();
  }
}

// Whether what the store can do is something else since. With the mutex held.
bool RemoteTier::look(double now_s) {
  const SharedStoreStats stats = store_->stats();
  const std::uint64_t num_bad_loads = stats.num_failed_loads + stats.num_refused + connector_->num_late();
  loads_.note(stats.num_answered_loads, num_bad_loads + transport_.num_late(TransferDirection::load), now_s);
  stores_.note(stats.num_stored, stats.num_failed_stores + transport_.num_late(TransferDirection::store), now_s);
  if (stores_.is_trial_due(now_s)) stores_.begin_trial();
  const bool tries = loads_.is_trial_due(now_s);
  const bool measures = loads_.is_used() && wants_try_ && now_s >= next_try_s_;
  if ((tries || measures) && !store_->is_trying()) {
    store_->try_loads();
    wants_try_ = false;
    next_try_s_ = now_s + kBetweenTries_s;
    if (tries) loads_.begin_trial();
  }
  const TierService before = std::exchange(watched_, {.loads = loads_.is_used(), .stores = !stores_.is_left_out()});
  // What others take is told by nobody else, and an engine that has nothing to do has stats to tell of all the same.
  const bool gives = !store_->service().stores && stats.num_stored != std::exchange(num_given_, stats.num_stored);
  return watched_ != before || gives;
}

void RemoteTier::serve() {
  const TierService can = store_->service();
  connector_->serve({.loads = service_.loads && can.loads, .stores = service_.stores && can.stores});
}

bool RemoteTier::tend(double compute_tokens_per_s) {
  const TierService before = service_;
  {
    const std::lock_guard lock(mutex_);
    service_ = watched_;
    // What was declined is no longer measured by itself.
    const std::uint64_t declined = connector_->offload().counters().num_computed_tokens;
    if (std::exchange(num_declined_tokens_, declined) != declined) wants_try_ = true;
  }
  if (service_ != before) serve();
  const SharedStoreStats store = store_->stats();
  const bool has_given = store.num_stored != std::exchange(num_told_, store.num_stored) && !store_->service().stores;
  if (options_.policy == KvTierPolicy::exact) return service_ != before || has_given;
  const auto bytes = static_cast<double>(store.bytes_read - std::exchange(bytes_read_, store.bytes_read));
  load_rate_.add(bytes, store.loading_s - std::exchange(loading_s_, store.loading_s));
  const TierCosts costs_before =
      std::exchange(costs_, {.load_bytes_per_s = load_rate_.per_second(), .compute_tokens_per_s = compute_tokens_per_s});
  connector_->offload().set_costs(costs_);
  return service_ != before || costs_ != costs_before || has_given;
}

void RemoteTier::take_events(const TierNames& names, std::vector<KvEvent>& out) {
  take_tier_events(connector_->offload(), names, "REMOTE", out);
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
          .num_used_places = ledger.num_slots() - ledger.num_free(),
          .num_stored_blocks = store.num_stored,
          .num_loaded_blocks = store.num_loaded,
          .bytes_stored = store.bytes_stored,
          .bytes_loaded = store.bytes_loaded,
          .tokens_loaded = counters.num_loaded_tokens,
          .num_without_room = counters.num_without_room,
          .num_refused_blocks = store.num_refused,
          .num_failed_blocks = store.num_failed_stores + store.num_failed_loads,
          .num_held_back = counters.num_held_back,
          .num_stored_at_end = counters.num_stored_at_end,
          .num_computed_tokens = counters.num_computed_tokens,
          .load_bytes_per_s = costs_.load_bytes_per_s,
          .compute_tokens_per_s = costs_.compute_tokens_per_s,
          .loads_left_out = !service_.loads,
          .stores_left_out = !service_.stores,
          .num_times_left_out = loads_.num_times_left_out() + stores_.num_times_left_out(),
          .num_asked_blocks = store.num_asked,
          .num_found_blocks = store.num_found,
          .num_late_answers = connector_->num_late(),
          .num_absent_blocks = store.num_absent,
          .problem = store_->last_problem().substr(0, kMostOfProblem)};
}

}  // namespace quire
