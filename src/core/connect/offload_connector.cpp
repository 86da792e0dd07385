// States of a request, and what moves it on:
//   matched -> loading            allocated() with external tokens: the load is in the plan that is being made
//   loading -> any                completed()
//   scheduled -> storing          planned(): blocks that become full with the plan are to be stored, by a transfer of the next plan
//   storing -> stored             sent(), when it has ended and its transfers are over; or planned(), when the plan preempts it; with
//                                 found_when_stored instead completed()
//   storing -> not kept           completed() with a failure
// A request is forgotten when it has ended and nothing of it is in transfer.
#include "core/connect/offload_connector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <variant>

#include "base/check.h"
#include "quire/core.h"
#include "quire/plan.h"

namespace quire {
namespace {

constexpr std::size_t kNameBytes = 32;

}  // namespace

Result<void> OffloadConnector::check(const CoreConfig& config) {
  const char* const remedy = "offload a cache of one group of full attention";
  if (config.kv.groups.size() != 1)
    return fail(ErrorCode::unsupported, "kv.groups", fmt::format("there are {} cache groups", config.kv.groups.size()), remedy);
  const auto& spec = config.kv.groups[0].spec;
  const auto* full = std::get_if<FullAttentionSpec>(&spec);
  const auto* mla = std::get_if<MlaAttentionSpec>(&spec);
  if (full == nullptr && mla == nullptr) return fail(ErrorCode::unsupported, "kv.groups", "its layers do not keep all blocks", remedy);
  if ((full != nullptr ? full->block_size : mla->block_size) != config.block_size)
    return fail(ErrorCode::unsupported, "block_size", "blocks have other names than the cache's own", remedy);
  if (config.parallel.dcp_world_size * config.parallel.pcp_world_size != 1)
    return fail(ErrorCode::unsupported, "parallel", "a context is spread over ranks", "offload without context parallelism");
  return {};
}

Result<std::unique_ptr<OffloadConnector>> OffloadConnector::create(const OffloadConnectorOptions& options, const CoreConfig& config,
                                                                   std::uint64_t bytes_per_block, TierPlaces* places) {
  if (Result<void> checked = check(config); !checked) return std::unexpected(std::move(checked.error()));
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
  const Result<OffloadPolicy> policy = parse_offload_policy(options.eviction_policy);
  if (!policy) return std::unexpected(policy.error());
  const std::uint64_t num_slots = options.cpu_bytes_to_use / bytes_per_block / factor;
  auto ledger = OffloadLedger::create({.num_slots = static_cast<std::int64_t>(num_slots),
                                       .policy = *policy,
                                       .store_threshold = options.store_threshold,
                                       .max_tracked_keys = options.max_tracker_size,
                                       .enable_events = options.enable_events,
                                       .restores = places != nullptr});
  if (!ledger) return std::unexpected(std::move(ledger.error()));
  return std::unique_ptr<OffloadConnector>(new OffloadConnector(std::move(*ledger), options, config, factor, bytes_per_block, places));
}

OffloadConnector::OffloadConnector(std::unique_ptr<OffloadLedger> ledger, const OffloadConnectorOptions& options, const CoreConfig& config,
                                   std::uint32_t factor, std::uint64_t bytes_per_block, TierPlaces* places)
    : ledger_(std::move(ledger)),
      block_size_(config.block_size),
      factor_(factor),
      bytes_per_block_(bytes_per_block),
      max_storing_blocks_(options.max_storing_blocks),
      waits_for_loads_(config.prefix_cache.enable_prefix_caching && !options.join_loads),
      found_when_stored_(options.found_when_stored),
      places_(places),
      numbers_(places == nullptr ? 0 : ledger_->num_slots()) {}

std::uint64_t OffloadConnector::assign(std::uint64_t place, const OffloadKey& key) {
  if (places_ != nullptr) numbers_[place] = places_->assign(place, key);
  return number_of(place);
}

void OffloadConnector::restore(OffloadSlot slot, const OffloadKey* key) {
  if (ledger_->restore(slot, was_reset_ ? nullptr : key)) assign(slot.value, *key);
}

std::span<const OffloadKey> OffloadConnector::keys_of(const RequestView& request, std::size_t begin, std::size_t end) {
  QUIRE_CHECK(begin <= end && end * factor_ * kNameBytes <= request.block_hashes.size(), "full blocks have names");
  keys_.clear();
  for (std::size_t i = begin; i < end; ++i)
    std::memcpy(keys_.emplace_back().hash.data(), &request.block_hashes[(i * factor_ + factor_ - 1) * kNameBytes], kNameBytes);
  return keys_;
}

std::size_t OffloadConnector::without_doomed(std::span<const OffloadKey> keys) const {
  if (doomed_.empty()) return keys.size();
  return static_cast<std::size_t>(std::ranges::find_if(keys, [this](const OffloadKey& key) { return doomed_.contains(key); }) -
                                  keys.begin());
}

// A tier that is as fast takes work off the processors.
bool OffloadConnector::computes_faster(std::uint32_t num_tokens) const {
  if (costs_.load_bytes_per_s <= 0.0 || costs_.compute_tokens_per_s <= 0.0) return false;
  const std::uint64_t bytes = (num_loading_blocks_ + num_tokens / block_size_) * bytes_per_block_;
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
  const std::size_t num_keys = request.tokens.size() / tokens_per_key;
  const std::span<const OffloadKey> keys = keys_of(request, 0, num_keys);
  ledger_->touch(keys);
  if (num_keys * tokens_per_key < num_local_tokens + tokens_per_key) return kNothing;
  const std::size_t start = num_local_tokens / tokens_per_key;
  const std::span<const OffloadKey> wanted = keys.subspan(start);
  const std::span<const OffloadKey> hits = wanted.first(without_doomed(wanted.first(ledger_->lookup(wanted))));
  const std::size_t end_tokens = (start + hits.size()) * tokens_per_key;
  if (hits.empty() || end_tokens < num_local_tokens + tokens_per_key) return kNothing;
  const auto num_tokens = static_cast<std::uint32_t>(end_tokens - num_local_tokens);
  if (computes_faster(num_tokens)) {
    num_declined_tokens_ = num_tokens;
    return kNothing;
  }
  if (waits_for_loads_ && !being_loaded_.empty() &&
      std::ranges::any_of(hits, [this](const OffloadKey& key) { return being_loaded_.contains(key); }))
    return {.num_tokens = std::nullopt, .load_async = false};
  return {.num_tokens = num_tokens, .load_async = true};
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
  const std::uint32_t first_key = first / factor_;
  const std::span<const OffloadKey> keys = keys_of(request, first_key, end / factor_);
  const auto slots = ledger_->prepare_load(keys);
  QUIRE_CHECK(slots.has_value(), "what matched can be loaded");
  Moving load{.request = request.id,
              .direction = TransferDirection::load,
              .first_key = first_key,
              .keys = {keys.begin(), keys.end()},
              .blocks = {},
              .places = {}};
  for (std::uint32_t i = first; i < end; ++i) {
    load.blocks.push_back(blocks[0][i]);
    load.places.push_back(number_of(std::uint64_t{(*slots)[i / factor_ - first_key].value} * factor_ + i % factor_));
  }
  tracked.loading = load.keys;
  tracked.next_stored = end / factor_;
  being_loaded_.insert(keys.begin(), keys.end());
  counters_.num_loaded += keys.size();
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
  if (is_busy_storing(std::size_t{end - first} * factor_)) {
    counters_.num_held_back += end - first;
    return;
  }
  const std::optional<PreparedStore> store = ledger_->prepare_store(keys_of(*request, first, end));
  if (!store) {
    counters_.num_without_room += end - first;
    return;
  }
  tracked.next_stored = end;
  if (store->keys.empty()) return;
  Moving moving = store_of(scheduled, *store, keys_, first);
  ledger_->touch(keys_of(*request, 0, end));
  tracked.stores = true;
  tracked.storing.insert(tracked.storing.end(), moving.keys.begin(), moving.keys.end());
  counters_.num_stored += moving.keys.size();
  num_storing_blocks_ += moving.blocks.size();
  decided_.push_back(std::move(moving));
}

// `keys` are the request's from its offloaded block `first` on; those that are stored are among them, in the same order.
OffloadConnector::Moving OffloadConnector::store_of(const ScheduledRequest& scheduled, const PreparedStore& store,
                                                    std::span<const OffloadKey> keys, std::uint32_t first) {
  const std::span<const BlockId> blocks = core_->blocks(scheduled.id, 0);
  Moving moving{.request = scheduled.id,
                .direction = TransferDirection::store,
                .first_key = first,
                .keys = {store.keys.begin(), store.keys.end()},
                .blocks = {},
                .places = {}};
  std::size_t taken = 0;
  for (std::size_t i = 0; i < keys.size() && taken < store.keys.size(); ++i) {
    if (keys[i] != store.keys[taken]) continue;
    for (std::uint32_t part = 0; part < factor_; ++part) {
      moving.blocks.push_back(blocks[(first + i) * factor_ + part]);
      moving.places.push_back(assign(std::uint64_t{store.slots[taken].value} * factor_ + part, keys[i]));
    }
    ++taken;
  }
  QUIRE_CHECK(taken == store.keys.size(), "what is stored was asked for");
  return moving;
}

// The keys can be loaded from now on.
void OffloadConnector::end_stores(std::vector<OffloadKey>& keys) {
  if (!doomed_.empty()) {
    std::erase_if(keys, [this](const OffloadKey& key) {
      if (doomed_.erase(key) == 0) return false;
      ledger_->complete_store({&key, 1}, false);
      return true;
    });
  }
  ledger_->complete_store(keys);
  keys.clear();
}

void OffloadConnector::plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) {
  std::erase_if(due_, [&](Moving& store) {
    if (begin(store, transfers)) return true;
    if (holds_blocks(store)) return false;
    num_storing_blocks_ -= store.blocks.size();
    fail_store(store);
    return true;
  });
  std::erase_if(loads_, [&](Moving& load) { return begin(load, transfers); });
  std::ranges::move(decided_, std::back_inserter(due_));
  decided_.clear();
}

bool OffloadConnector::begin(Moving& moving, TransferList& transfers) {
  const std::optional<TransferId> id = transfers.add({.id = {},
                                                      .request = moving.request,
                                                      .direction = moving.direction,
                                                      .need = TransferNeed::nothing,
                                                      .group = 0,
                                                      .blocks = moving.blocks,
                                                      .places = moving.places});
  if (id) moving_.emplace(id->value, std::move(moving));
  return id.has_value();
}

// Nobody else has written to them then.
bool OffloadConnector::holds_blocks(const Moving& store) const {
  const std::span<const BlockId> held = core_->blocks(store.request, 0);
  return std::ranges::all_of(store.blocks, [&](BlockId block) { return std::ranges::find(held, block) != held.end(); });
}

// update_connector_output, of one transfer
void OffloadConnector::completed(const TransferCompletion& completion) {
  const auto found = moving_.find(completion.transfer.value);
  if (found == moving_.end()) return;
  const Moving moved = std::move(found->second);
  moving_.erase(found);
  (moved.direction == TransferDirection::load ? num_loading_blocks_ : num_storing_blocks_) -= moved.blocks.size();
  if (moved.direction == TransferDirection::load)
    end_load(moved, completion);
  else if (completion.outcome == TransferOutcome::failed)
    fail_store(moved);
  else if (found_when_stored_)
    end_store(moved);
}

void OffloadConnector::end_store(const Moving& store) {
  const auto found = tracked_.find(store.request.value);
  if (found == tracked_.end()) return;
  std::vector<OffloadKey> stored = store.keys;
  std::erase_if(stored, [&](const OffloadKey& key) { return std::erase(found->second.storing, key) == 0; });
  end_stores(stored);
}

void OffloadConnector::end_load(const Moving& load, const TransferCompletion& completion) {
  for (const OffloadKey& key : load.keys) being_loaded_.erase(key);
  QUIRE_CHECK(ledger_->complete_load(load.keys).has_value(), "what is loaded stays");
  const auto found = tracked_.find(load.request.value);
  QUIRE_CHECK(found != tracked_.end(), "a request with a load is remembered");
  found->second.loading.clear();
  for (const OffloadKey& key : load.keys)
    if (doomed_.contains(key) && ledger_->discard(key)) doomed_.erase(key);
  if (completion.outcome == TransferOutcome::failed) drop_bad(load, completion.bad_blocks, found->second);
  forget_if_over(load.request);
}

// A key is bad when one of its blocks is; they are to be stored anew.
void OffloadConnector::drop_bad(const Moving& load, std::span<const BlockId> bad_blocks, Tracked& tracked) {
  const auto is_bad = [&](BlockId block) { return bad_blocks.empty() || std::ranges::find(bad_blocks, block) != bad_blocks.end(); };
  const std::uint64_t num_before = load.places.front() % factor_;  // blocks of the first key that were there already
  for (std::uint32_t i = 0; i < load.keys.size(); ++i) {
    const std::size_t first = std::max<std::size_t>(std::size_t{i} * factor_, num_before) - num_before;
    const std::size_t end = std::size_t{i + 1} * factor_ - num_before;
    if (std::ranges::none_of(std::span(load.blocks).subspan(first, end - first), is_bad)) continue;
    tracked.next_stored = std::min(tracked.next_stored, load.first_key + i);
    drop(load.keys[i]);
    ++counters_.num_failed_loads;
  }
}

void OffloadConnector::fail_store(const Moving& store) {
  const auto found = tracked_.find(store.request.value);
  counters_.num_failed_stores += store.keys.size();
  for (const OffloadKey& key : store.keys) {
    if (found != tracked_.end() && std::erase(found->second.storing, key) > 0) {
      ledger_->complete_store({&key, 1}, false);
      doomed_.erase(key);
    } else if (ledger_->ref_count(key) != -1) {  // else another request stores it by now
      drop(key);
    }
  }
}

void OffloadConnector::drop(const OffloadKey& key) {
  if (!ledger_->discard(key) && ledger_->contains(key)) doomed_.insert(key);
}

// request_finished
bool OffloadConnector::finished(const RequestView& request, GroupBlocks /*blocks*/) {
  const auto found = tracked_.find(request.id.value);
  if (found == tracked_.end()) return false;
  found->second.has_ended = true;
  const bool stores = found->second.stores;
  forget_if_over(request.id);
  return stores;
}

// update_connector_output, finished_sending
void OffloadConnector::sent(RequestId request) {
  const auto found = tracked_.find(request.value);
  if (found == tracked_.end()) return;
  end_stores(found->second.storing);
  found->second.stores = false;
  forget_if_over(request);
}

void OffloadConnector::forget_if_over(RequestId request) {
  const auto found = tracked_.find(request.value);
  if (found != tracked_.end() && found->second.has_ended && !found->second.stores && found->second.loading.empty()) tracked_.erase(found);
}

bool OffloadConnector::reset() {
  was_reset_ = true;
  for (const OffloadKey& key : ledger_->resident_keys()) drop(key);
  return true;
}

}  // namespace quire
