// States of a request, and what moves it on:
//   matched -> loading            allocated() with external tokens: the load is in the plan that is being made
//   loading -> any                completed()
//   scheduled -> storing          planned(): blocks that become full with the plan are to be stored, by a transfer of the next plan
//   storing -> stored             sent(), when it has ended and its transfers are over; or planned(), when the plan preempts it; with
//                                 found_when_stored instead completed()
//   ended -> storing              finished(), of what was held back, where nobody else runs or waits: by a transfer of the next plan
//   storing -> not kept           completed() with a failure
// A request is forgotten when it has ended and nothing of it is in transfer.
// Called by the core on its thread, in the middle of steps; and, between them, by the engine, with what a tier has restored, can do and
// costs. It opens no file and moves no byte. Counters of blocks under way (num_storing_blocks_, num_loading_blocks_) rise when a transfer
// is decided and fall when it is over, whatever becomes of its request: a policy that measures goes by them.
#include "core/connect/offload_connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "base/check.h"
#include "quire/base/plan.h"
#include "quire/core.h"

namespace quire {
namespace {

constexpr std::size_t kNameBytes = 32;

}  // namespace

Result<void> OffloadConnector::check(const CoreConfig& config) {
  if (Result<GroupWindows> windows = GroupWindows::create(config); !windows) return std::unexpected(std::move(windows.error()));
  if (config.parallel.dcp_world_size * config.parallel.pcp_world_size != 1)
    return fail(ErrorCode::unsupported, "parallel", "a context is spread over ranks", "offload without context parallelism");
  return {};
}

Result<std::unique_ptr<OffloadConnector>> OffloadConnector::create(const OffloadConnectorOptions& options, const CoreConfig& config,
                                                                   std::uint64_t bytes_per_block, TierPlaces* places) {
  if (Result<void> checked = check(config); !checked) return std::unexpected(std::move(checked.error()));
  Result<GroupWindows> windows = GroupWindows::create(config);
  if (bytes_per_block == 0) return fail(ErrorCode::invalid_argument, "bytes_per_block", "blocks are empty", "give what a block holds");
  if (options.cpu_bytes_to_use == 0)
    return fail(ErrorCode::invalid_argument, "cpu_bytes_to_use", "it must be given", "give the size of the tier in bytes");
  const std::uint32_t block_size = options.block_size == 0 ? config.block_size : options.block_size;
  if (block_size % config.block_size != 0) {
    return fail(ErrorCode::invalid_argument, "block_size", fmt::format("{} is no multiple of {}", block_size, config.block_size),
                "give a multiple of the cache's block size");
  }
  const std::uint32_t factor = block_size / config.block_size;
  if (places != nullptr && factor != 1)
    return fail(ErrorCode::unsupported, "block_size", "each place of this tier has a name of its own", "leave it out");
  if (!windows->is_plain() && factor != 1)
    return fail(ErrorCode::unsupported, "block_size", "with several cache groups or a window blocks have the cache's own size",
                "leave it out");
  const Result<OffloadPolicy> policy = options.own_policy ? OffloadPolicy::lru : parse_offload_policy(options.eviction_policy);
  if (!policy) return std::unexpected(policy.error());
  const std::uint64_t num_slots = options.cpu_bytes_to_use / bytes_per_block / factor;
  auto ledger = OffloadLedger::create({.num_slots = static_cast<std::int64_t>(num_slots),
                                       .policy = *policy,
                                       .store_threshold = options.store_threshold,
                                       .max_tracked_keys = options.max_tracker_size,
                                       .enable_events = options.enable_events,
                                       .restores = places != nullptr,
                                       .own_policy = options.own_policy});
  if (!ledger) return std::unexpected(std::move(ledger.error()));
  QUIRE_CHECK(*ledger != nullptr && num_slots <= std::uint64_t{1} << 28U, "a ledger of the tier's slots");
  return std::unique_ptr<OffloadConnector>(
      new OffloadConnector(std::move(*ledger), *std::move(windows), options, config, factor, bytes_per_block, places));
}

OffloadConnector::OffloadConnector(std::unique_ptr<OffloadLedger> ledger, GroupWindows windows, const OffloadConnectorOptions& options,
                                   const CoreConfig& config, std::uint32_t factor, std::uint64_t bytes_per_block, TierPlaces* places)
    : ledger_(std::move(ledger)),
      windows_(std::move(windows)),
      block_size_(config.block_size),
      factor_(factor),
      bytes_per_block_(bytes_per_block),
      max_storing_blocks_(options.max_storing_blocks),
      waits_for_loads_(config.prefix_cache.enable_prefix_caching && !options.join_loads),
      found_when_stored_(options.found_when_stored),
      churn_(options.thins_churn ? std::optional<ChurnGauge>(ledger_->num_slots()) : std::nullopt),
      places_(places),
      numbers_(places == nullptr ? 0 : ledger_->num_slots()) {
  QUIRE_CHECK(factor_ > 0 && block_size_ > 0 && bytes_per_block_ > 0, "an offloaded block is of blocks that hold something");
  QUIRE_CHECK(places_ == nullptr || factor_ == 1, "a place with a number of its own is of one block");
}

std::uint64_t OffloadConnector::assign(std::uint64_t place, const OffloadKey& key) {
  QUIRE_CHECK(places_ == nullptr || place < numbers_.size(), "a place of the tier");
  if (places_ != nullptr) numbers_[place] = places_->assign(place, key);
  return number_of(place);
}

void OffloadConnector::restore(OffloadSlot slot, const OffloadKey* key) {
  if (ledger_->restore(slot, was_reset_ ? nullptr : key)) assign(slot.value, *key);
}

void OffloadConnector::add_key(const RequestView& request, std::uint32_t group, std::size_t index) {
  QUIRE_CHECK(group < windows_.num_groups(), "a key belongs to a group");
  QUIRE_CHECK((index + 1) * factor_ * kNameBytes <= request.block_hashes.size(), "full blocks have names");
  OffloadKey& key = keys_.emplace_back();
  key.group = group;
  std::memcpy(key.hash.data(), &request.block_hashes[(index * factor_ + factor_ - 1) * kNameBytes], kNameBytes);
}

std::span<const OffloadKey> OffloadConnector::keys_of(const RequestView& request, std::size_t begin, std::size_t end) {
  keys_.clear();
  for (std::size_t i = begin; i < end; ++i)
    for (std::uint32_t group = 0; group < windows_.num_groups(); ++group) add_key(request, group, i);
  return keys_;
}

std::span<const OffloadKey> OffloadConnector::keys_of(const RequestView& request, std::uint32_t group, std::size_t begin, std::size_t end) {
  keys_.clear();
  for (std::size_t i = begin; i < end; ++i) add_key(request, group, i);
  return keys_;
}

void OffloadConnector::forget_blocks(const RequestView& request) {
  for (const OffloadKey& key : keys_of(request, 0, request.block_hashes.size() / kNameBytes / factor_)) drop(key);
}

std::span<const OffloadKey> OffloadConnector::keys_held(const RequestView& request, std::size_t begin, std::size_t end) {
  keys_.clear();
  asked_.clear();
  held_.clear();
  for (std::uint32_t group = 0; group < windows_.num_groups(); ++group) held_.push_back(core_->blocks(request.id, group));
  for (std::size_t i = begin; i < end; ++i) {
    for (std::uint32_t group = 0; group < held_.size(); ++group) {
      QUIRE_CHECK((i + 1) * factor_ <= held_[group].size(), "what is planned has blocks");
      if (held_[group][i * factor_] == kNullBlock) continue;
      add_key(request, group, i);
      asked_.push_back({group, i});
    }
  }
  return keys_;
}

// The last token runs anew, also where all are loaded; its window begins a token earlier than that of the next one.
std::size_t OffloadConnector::num_loadable(const RequestView& request) const {
  return (std::max<std::size_t>(1, request.tokens.size()) - (windows_.has_windows() ? 1 : 0)) / (std::size_t{block_size_} * factor_);
}

std::size_t OffloadConnector::end_of_hit(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end, std::size_t num_first) {
  const std::size_t num_groups = windows_.num_groups();
  QUIRE_CHECK(keys.size() == (end - begin) * num_groups, "a key for each block of each group");
  return windows_.longest(static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end),
                          [&](std::uint32_t block, std::uint32_t group) {
                            const std::size_t at = (block - begin) * num_groups + group;
                            return (at < num_first || ledger_->ref_count(keys[at]).value_or(-1) >= 0) && !doomed_.contains(keys[at]);
                          });
}

bool OffloadConnector::is_being_loaded(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end) const {
  const std::size_t num_groups = windows_.num_groups();
  QUIRE_CHECK(begin <= end && (end - begin) * num_groups <= keys.size(), "a key for each block that is asked about");
  for (std::size_t i = begin; i < end; ++i)
    for (std::uint32_t group = 0; group < num_groups; ++group)
      if (i >= windows_.first_needed(group, static_cast<std::uint32_t>(end)) &&
          being_loaded_.contains(keys[(i - begin) * num_groups + group]))
        return true;
  return false;
}

// A tier that is as fast takes work off the processors.
bool OffloadConnector::computes_faster(std::uint32_t num_local_tokens, std::uint32_t num_tokens) const {
  if (costs_.load_bytes_per_s <= 0.0 || costs_.compute_tokens_per_s <= 0.0) return false;
  const std::uint32_t first = num_local_tokens / block_size_;
  const std::uint32_t end = (num_local_tokens + num_tokens) / block_size_;
  std::uint64_t num_blocks = num_loading_blocks_;
  for (std::uint32_t group = 0; group < windows_.num_groups(); ++group)
    num_blocks += end - std::max(first, windows_.first_needed(group, end));
  QUIRE_CHECK(end >= first, "what could be loaded lies behind what is there");
  const std::uint64_t bytes = num_blocks * bytes_per_block_;
  return static_cast<double>(bytes) / costs_.load_bytes_per_s > num_tokens / costs_.compute_tokens_per_s;
}

// A request with more blocks than may be under way is stored all the same.
bool OffloadConnector::is_busy_storing(std::size_t num_blocks) const {
  return max_storing_blocks_ > 0 && num_storing_blocks_ > 0 && num_storing_blocks_ + num_blocks > max_storing_blocks_;
}

// get_num_new_matched_tokens
ExternalMatch OffloadConnector::match(const RequestView& request, std::uint32_t num_local_tokens) {
  constexpr ExternalMatch kNothing{.num_tokens = 0, .load_async = false};
  matched_ = request.id;
  num_local_tokens_ = num_local_tokens;
  num_declined_tokens_ = 0;
  if (!service_.loads) return kNothing;
  const std::size_t tokens_per_key = std::size_t{block_size_} * factor_;
  const std::size_t num_keys = num_loadable(request);
  const std::span<const OffloadKey> keys = keys_of(request, 0, num_keys);
  // Also where nothing is loaded then: who asks for a prefix keeps it young.
  ledger_->touch(keys);
  if (num_keys * tokens_per_key < num_local_tokens + tokens_per_key) return kNothing;
  const std::size_t start = num_local_tokens / tokens_per_key;
  const std::span<const OffloadKey> wanted = keys.subspan(start * windows_.num_groups());
  const std::size_t end = end_of_hit(wanted, start, num_keys, ledger_->lookup(wanted));
  const std::size_t end_tokens = end * tokens_per_key;
  if (end == start || end_tokens < num_local_tokens + tokens_per_key) return kNothing;
  const auto num_tokens = static_cast<std::uint32_t>(end_tokens - num_local_tokens);
  if (computes_faster(num_local_tokens, num_tokens)) {
    num_declined_tokens_ = num_tokens;
    return kNothing;
  }
  if (waits_for_loads_ && !being_loaded_.empty() && is_being_loaded(wanted, start, end))
    return {.num_tokens = std::nullopt, .load_async = false};
  return {.num_tokens = num_tokens, .load_async = true};
}

// As match(), with nobody who asks.
bool OffloadConnector::peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) {
  if (!service_.loads) return true;
  const std::size_t tokens_per_key = std::size_t{block_size_} * factor_;
  const std::size_t start = num_local_tokens / tokens_per_key, num_keys = num_loadable(request);
  if (start >= num_keys) return true;
  const std::size_t end_tokens = end_of_hit(keys_of(request, start, num_keys), start, num_keys, 0) * tokens_per_key;
  if (end_tokens < num_local_tokens + tokens_per_key) return true;
  const auto num_tokens = static_cast<std::uint32_t>(end_tokens - num_local_tokens);
  if (!computes_faster(num_local_tokens, num_tokens)) matches.push_back({.num_tokens = num_tokens, .load_async = true});
  return true;
}

// update_state_after_alloc
void OffloadConnector::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  const auto [found, is_new] = tracked_.try_emplace(request.id.value);
  Tracked& tracked = found->second;
  if (is_new) ledger_->use(keys_of(request, 0, request.tokens.size() / (std::size_t{block_size_} * factor_)));
  if (matched_ == request.id) counters_.num_computed_tokens += std::exchange(num_declined_tokens_, 0);
  if (num_external_tokens == 0) return;
  QUIRE_CHECK(matched_ == request.id, "what is allocated was matched");
  const std::uint32_t first = num_local_tokens_ / block_size_;
  const std::uint32_t end = (num_local_tokens_ + num_external_tokens) / block_size_;
  QUIRE_CHECK(end % factor_ == 0 && end <= blocks[0].size(), "whole offloaded blocks are loaded");
  tracked.num_loaded_tokens = num_external_tokens;
  for (std::uint32_t group = 0; group < windows_.num_groups(); ++group)
    if (const std::uint32_t begin = std::max(first, windows_.first_needed(group, end)); begin < end)
      plan_load(request, group, blocks[group], begin, end);
  // What was just loaded is in the tier already.
  tracked.next_stored = end / factor_;
}

// Of blocks [first, end) of a group.
void OffloadConnector::plan_load(const RequestView& request, std::uint32_t group, std::span<const BlockId> blocks, std::uint32_t first,
                                 std::uint32_t end) {
  QUIRE_CHECK(first < end && end <= blocks.size(), "a load fills blocks that the request has");
  // Another tier brings what comes behind, and a window has passed these by then.
  while (first < end && blocks[first] == kNullBlock) first += factor_;
  if (first >= end) return;
  const std::uint32_t first_key = first / factor_;
  const std::span<const OffloadKey> keys = keys_of(request, group, first_key, end / factor_);
  const auto slots = ledger_->prepare_load(keys);
  QUIRE_CHECK(slots.has_value(), "what matched can be loaded");
  Moving load{.request = request.id,
              .direction = TransferDirection::load,
              .group = group,
              .first_key = first_key,
              .keys = {keys.begin(), keys.end()},
              .blocks = {blocks.begin() + first, blocks.begin() + end},
              .places = {}};
  for (std::uint32_t i = first; i < end; ++i) {
    load.indices.push_back(i);
    load.places.push_back(number_of(std::uint64_t{(*slots)[i / factor_ - first_key].value} * factor_ + i % factor_));
  }
  QUIRE_CHECK(load.places.size() == load.blocks.size(), "each block has its place");
  ++tracked_[request.id.value].num_loads;
  being_loaded_.insert(keys.begin(), keys.end());
  counters_.num_loaded += keys.size();
  if (churn_) churn_->loaded(keys.size());
  num_loading_blocks_ += load.blocks.size();
  loads_.push_back(std::move(load));
}

// build_connector_meta: stores in the order of vLLM's lists, new requests first and resumed ones last.
void OffloadConnector::planned(const StepPlan& plan) {
  QUIRE_CHECK(core_ != nullptr, "a connector belongs to a core");
  for (const ScheduledKind kind : {ScheduledKind::fresh, ScheduledKind::running, ScheduledKind::resumed})
    for (const ScheduledRequest& scheduled : plan.scheduled)
      if (scheduled.kind == kind) plan_store(scheduled);
  if (found_when_stored_) return;
  for (const RequestId id : plan.preempted)
    if (const auto found = tracked_.find(id.value); found != tracked_.end()) end_stores(found->second.storing);
}

void OffloadConnector::plan_store(const ScheduledRequest& scheduled) {
  const std::optional<RequestView> request = core_->view(scheduled.id);
  QUIRE_CHECK(request.has_value(), "what is planned is known");
  Tracked& tracked = tracked_[scheduled.id.value];
  // Some tokens are only planned, with asynchronous scheduling, or drafts.
  const std::size_t num_tokens =
      std::min<std::size_t>(std::size_t{scheduled.num_computed_tokens} + scheduled.num_tokens, request->tokens.size());
  const auto end = static_cast<std::uint32_t>(num_tokens / block_size_ / factor_);
  const std::uint32_t first = tracked.next_stored;
  if (end <= first || !service_.stores) return;
  if (!takes(tracked, end - first)) {
    counters_.num_thinned += std::size_t{end - first} * windows_.num_groups();
    tracked.next_stored = end;
    return;
  }
  if (const std::size_t num_keys = std::size_t{end - first} * windows_.num_groups(); is_busy_storing(num_keys * factor_)) {
    counters_.num_held_back += num_keys;
    return;
  }
  decide_stores(*request, tracked, end);
}

bool OffloadConnector::takes(Tracked& tracked, std::size_t num_blocks) {
  if (!churn_) return true;
  const std::size_t num_keys = num_blocks * windows_.num_groups();
  // What has room pushes nothing out. Once decided it stays so: blocks behind ones that were left out could not be found.
  if (!tracked.is_taken) tracked.is_taken = tracked.num_loaded_tokens > 0 || ledger_->num_free() >= num_keys || churn_->takes_next();
  return *tracked.is_taken;
}

void OffloadConnector::decide_stores(const RequestView& request, Tracked& tracked, std::uint32_t end) {
  const std::span<const OffloadKey> keys = keys_held(request, tracked.next_stored, end);
  // All or nothing: where not all of a step's blocks find room none is stored, as in vLLM. They are asked for again with the next full
  // block.
  const std::optional<PreparedStore> store = ledger_->prepare_store(keys);
  if (!store) {
    counters_.num_without_room += keys.size();
    return;
  }
  QUIRE_CHECK(end >= tracked.next_stored, "blocks are decided upon in order");
  tracked.next_stored = end;
  if (churn_) churn_->evicted(store->evicted.size());
  if (places_ != nullptr)
    for (const OffloadKey& key : store->evicted) places_->left(key);
  if (store->keys.empty()) return;
  add_stores(request.id, *store, tracked);
  ledger_->touch(keys_of(request, 0, end));
}

// What is stored is among what was asked for, in the same order.
void OffloadConnector::add_stores(RequestId request, const PreparedStore& store, Tracked& tracked) {
  QUIRE_CHECK(store.keys.size() == store.slots.size() && asked_.size() == keys_.size(), "each key that is stored has a slot");
  const std::size_t first_decided = decided_.size();
  std::size_t at = 0;
  for (std::size_t taken = 0; taken < store.keys.size(); ++taken, ++at) {
    while (at < asked_.size() && keys_[at] != store.keys[taken]) ++at;
    QUIRE_CHECK(at < asked_.size(), "what is stored was asked for");
    const auto [group, index] = asked_[at];
    Moving& store_of_group = store_of(request, group, first_decided);
    store_of_group.keys.push_back(keys_[at]);
    for (std::uint32_t part = 0; part < factor_; ++part) {
      store_of_group.blocks.push_back(held_[group][index * factor_ + part]);
      store_of_group.indices.push_back(static_cast<std::uint32_t>(index * factor_ + part));
      store_of_group.places.push_back(assign(std::uint64_t{store.slots[taken].value} * factor_ + part, keys_[at]));
    }
  }
  tracked.stores = true;
  tracked.storing.insert(tracked.storing.end(), store.keys.begin(), store.keys.end());
  counters_.num_stored += store.keys.size();
  num_storing_blocks_ += store.keys.size() * factor_;
}

// The request's among those that were decided from `first_decided` on.
OffloadConnector::Moving& OffloadConnector::store_of(RequestId request, std::uint32_t group, std::size_t first_decided) {
  for (std::size_t i = first_decided; i < decided_.size(); ++i)
    if (decided_[i].group == group) return decided_[i];
  return decided_.emplace_back(
      Moving{.request = request, .direction = TransferDirection::store, .group = group, .keys = {}, .blocks = {}, .places = {}});
}

void OffloadConnector::plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) {
  std::erase_if(due_, [&](Moving& store) {
    if (begin(store, transfers)) return true;
    if (holds_blocks(store)) return false;
    QUIRE_CHECK(num_storing_blocks_ >= store.blocks.size(), "blocks under way are counted");
    num_storing_blocks_ -= store.blocks.size();
    fail_store(store);
    return true;
  });
  std::erase_if(loads_, [&](Moving& load) {
    // Its request has ended, and a window has let go of what it was to fill.
    if (load.was_refused && !holds_blocks(load)) {
      let_go(load);
      forget_if_over(load.request);
      return true;
    }
    return begin(load, transfers);
  });
  std::ranges::move(decided_, std::back_inserter(due_));
  decided_.clear();
}

bool OffloadConnector::begin(Moving& moving, TransferList& transfers) {
  const std::optional<TransferId> id = transfers.add({.id = {},
                                                      .request = moving.request,
                                                      .direction = moving.direction,
                                                      .need = TransferNeed::nothing,
                                                      .group = moving.group,
                                                      .blocks = moving.blocks,
                                                      .places = moving.places});
  moving.was_refused = !id;
  QUIRE_CHECK(!moving.blocks.empty() && moving.blocks.size() == moving.places.size(),
              "a transfer moves something, each block to its place");
  if (id) moving_.emplace(id->value, std::move(moving));
  return id.has_value();
}

// Nobody has written to them then: one that a window let go of may come back to the same request, in another place.
bool OffloadConnector::holds_blocks(const Moving& moving) const {
  QUIRE_CHECK(moving.indices.size() == moving.blocks.size(), "each block has its place in the table");
  const std::span<const BlockId> held = core_->blocks(moving.request, moving.group);
  for (std::size_t i = 0; i < moving.blocks.size(); ++i)
    if (moving.indices[i] >= held.size() || held[moving.indices[i]] != moving.blocks[i]) return false;
  return true;
}

}  // namespace quire
