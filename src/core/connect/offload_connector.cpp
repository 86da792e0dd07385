// States of a request, and the calls that change them:
//   matched -> loading            allocated() with external tokens: the load is in the plan that is being made
//   loading -> any                completed()
//   scheduled -> storing          planned(): blocks that the plan fills are stored, by a transfer of the next plan
//   storing -> stored             sent(), when the request has ended and its transfers have ended; or planned(), when the plan preempts it;
//                                 with hit_after_store_completes: completed()
//   ended -> storing              finished(): deferred blocks, if no other request runs or waits; by a transfer of the next plan
//   storing -> not kept           completed() with a failure
// The record of a request is removed when the request has ended and no transfer of it is in flight. Called on the core's thread, during
// steps. Between steps, the engine reports the blocks that a tier has restored, the transfers that it supports, and its costs.
// offload_stores.cpp decides which blocks are stored. The connector opens no file and moves no data. num_storing_blocks_ and
// num_loading_blocks_ increase when a transfer is decided and decrease when it has ended, even if its request has ended, because
// is_busy_storing() and computes_faster() use them.
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
    return fail(ErrorCode::unsupported, "parallel", "context parallelism is not supported", "turn context parallelism or offloading off");
  return {};
}

Result<std::unique_ptr<OffloadConnector>> OffloadConnector::create(const OffloadConnectorOptions& options, const CoreConfig& config,
                                                                   std::uint64_t bytes_per_block, TierSlots* tier_slots) {
  if (Result<void> checked = check(config); !checked) return std::unexpected(std::move(checked.error()));
  Result<GroupWindows> windows = GroupWindows::create(config);
  if (bytes_per_block == 0)
    return fail(ErrorCode::invalid_argument, "bytes_per_block", "must be at least 1, got 0", "set the size of a block in bytes");
  if (options.cpu_bytes_to_use == 0)
    return fail(ErrorCode::invalid_argument, "cpu_bytes_to_use", "is required", "set the size of the tier in bytes");
  const std::uint32_t block_size = options.block_size == 0 ? config.block_size : options.block_size;
  if (block_size % config.block_size != 0) {
    return fail(ErrorCode::invalid_argument, "block_size",
                fmt::format("{} is not a multiple of the cache's block size {}", block_size, config.block_size),
                "use a multiple of the cache's block size");
  }
  const std::uint32_t blocks_per_key = block_size / config.block_size;
  if (tier_slots != nullptr && blocks_per_key != 1)
    return fail(ErrorCode::unsupported, "block_size", "cannot be set: this tier stores each cache block separately", "leave it out");
  if (!windows->is_plain() && blocks_per_key != 1)
    return fail(ErrorCode::unsupported, "block_size", "cannot be set with several cache groups or a sliding window", "leave it out");
  const Result<OffloadPolicy> policy = options.custom_policy ? OffloadPolicy::lru : parse_offload_policy(options.eviction_policy);
  if (!policy) return std::unexpected(policy.error());
  const std::uint64_t num_slots = options.cpu_bytes_to_use / bytes_per_block / blocks_per_key;
  auto ledger = OffloadLedger::create({.num_slots = static_cast<std::int64_t>(num_slots),
                                       .policy = *policy,
                                       .store_threshold = options.store_threshold,
                                       .max_tracked_keys = options.max_tracker_size,
                                       .enable_events = options.enable_events,
                                       .restores = tier_slots != nullptr,
                                       .custom_policy = options.custom_policy});
  if (!ledger) return std::unexpected(std::move(ledger.error()));
  QUIRE_CHECK(*ledger != nullptr && num_slots <= std::uint64_t{1} << 28U, "the ledger exists and has at most 268435456 slots");
  return std::unique_ptr<OffloadConnector>(
      new OffloadConnector(std::move(*ledger), *std::move(windows), options, config, blocks_per_key, bytes_per_block, tier_slots));
}

OffloadConnector::OffloadConnector(std::unique_ptr<OffloadLedger> ledger, GroupWindows windows, const OffloadConnectorOptions& options,
                                   const CoreConfig& config, std::uint32_t blocks_per_key, std::uint64_t bytes_per_block,
                                   TierSlots* tier_slots)
    : ledger_(std::move(ledger)),
      windows_(std::move(windows)),
      block_size_(config.block_size),
      blocks_per_key_(blocks_per_key),
      bytes_per_block_(bytes_per_block),
      max_storing_blocks_(options.max_storing_blocks),
      waits_for_loads_(config.prefix_cache.enable_prefix_caching && !options.join_loads),
      hit_after_store_completes_(options.hit_after_store_completes),
      stores_leading_blocks_(options.stores_leading_blocks),
      churn_(options.skips_stores_on_churn ? std::optional<ChurnDetector>(ledger_->num_slots()) : std::nullopt),
      tier_slots_(tier_slots),
      numbers_(tier_slots == nullptr ? 0 : ledger_->num_slots()) {
  QUIRE_CHECK(blocks_per_key_ > 0 && block_size_ > 0 && bytes_per_block_ > 0,
              "the factor, the block size and the bytes per block are positive");
  QUIRE_CHECK(tier_slots_ == nullptr || blocks_per_key_ == 1, "a tier that assigns slot numbers stores one cache block per slot");
}

std::uint64_t OffloadConnector::assign(std::uint64_t place, const OffloadKey& key) {
  QUIRE_CHECK(tier_slots_ == nullptr || place < numbers_.size(), "the slot exists in the tier");
  if (tier_slots_ != nullptr) numbers_[place] = tier_slots_->assign(place, key);
  return number_of(place);
}

void OffloadConnector::restore(OffloadSlot slot, const OffloadKey* key) {
  if (ledger_->restore(slot, was_reset_ ? nullptr : key)) assign(slot.value, *key);
}

void OffloadConnector::add_key(const RequestView& request, std::uint32_t group, std::size_t index) {
  QUIRE_CHECK(group < windows_.num_groups(), "the key belongs to a cache group");
  QUIRE_CHECK((index + 1) * blocks_per_key_ * kNameBytes <= request.block_hashes.size(), "a full block has a block hash");
  OffloadKey& key = keys_.emplace_back();
  key.group = group;
  std::memcpy(key.hash.data(), &request.block_hashes[(index * blocks_per_key_ + blocks_per_key_ - 1) * kNameBytes], kNameBytes);
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
  for (const OffloadKey& key : keys_of(request, 0, request.block_hashes.size() / kNameBytes / blocks_per_key_)) drop(key);
}

std::span<const OffloadKey> OffloadConnector::keys_held(const RequestView& request, std::size_t begin, std::size_t end) {
  keys_.clear();
  queried_.clear();
  block_tables_.clear();
  for (std::uint32_t group = 0; group < windows_.num_groups(); ++group) block_tables_.push_back(core_->blocks(request.id, group));
  for (std::size_t i = begin; i < end; ++i) {
    for (std::uint32_t group = 0; group < block_tables_.size(); ++group) {
      QUIRE_CHECK((i + 1) * blocks_per_key_ <= block_tables_[group].size(), "a planned block is in the block table");
      if (block_tables_[group][i * blocks_per_key_] == kNullBlock) continue;
      add_key(request, group, i);
      queried_.push_back({group, i});
    }
  }
  return keys_;
}

// The last token is always computed. With windows, the last token is not counted, because its window begins one token earlier than the
// window of the next token.
std::size_t OffloadConnector::num_loadable(const RequestView& request) const {
  return (std::max<std::size_t>(1, request.tokens.size()) - (windows_.has_windows() ? 1 : 0)) /
         (std::size_t{block_size_} * blocks_per_key_);
}

std::size_t OffloadConnector::end_of_hit(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end, std::size_t num_first) {
  const std::size_t num_groups = windows_.num_groups();
  QUIRE_CHECK(keys.size() == (end - begin) * num_groups, "there is one key for each block of each group");
  return windows_.longest(
      static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end), [&](std::uint32_t block, std::uint32_t group) {
        const std::size_t at = (block - begin) * num_groups + group;
        return (at < num_first || ledger_->ref_count(keys[at]).value_or(-1) >= 0) && !dropped_after_transfer_.contains(keys[at]);
      });
}

bool OffloadConnector::is_being_loaded(std::span<const OffloadKey> keys, std::size_t begin, std::size_t end) const {
  const std::size_t num_groups = windows_.num_groups();
  QUIRE_CHECK(begin <= end && (end - begin) * num_groups <= keys.size(), "there is a key for each queried block");
  for (std::size_t i = begin; i < end; ++i)
    for (std::uint32_t group = 0; group < num_groups; ++group)
      if (i >= windows_.first_needed(group, static_cast<std::uint32_t>(end)) &&
          being_loaded_.contains(keys[(i - begin) * num_groups + group]))
        return true;
  return false;
}

// If loading takes as long as computing, the blocks are loaded, because loading leaves the processors to other requests.
bool OffloadConnector::computes_faster(std::uint32_t num_local_tokens, std::uint32_t num_tokens) const {
  if (costs_.load_bytes_per_s <= 0.0 || costs_.compute_tokens_per_s <= 0.0) return false;
  const std::uint32_t first = num_local_tokens / block_size_;
  const std::uint32_t end = (num_local_tokens + num_tokens) / block_size_;
  std::uint64_t num_blocks = num_loading_blocks_;
  for (std::uint32_t group = 0; group < windows_.num_groups(); ++group)
    num_blocks += end - std::max(first, windows_.first_needed(group, end));
  QUIRE_CHECK(end >= first, "loadable tokens come after the local tokens");
  const std::uint64_t bytes = num_blocks * bytes_per_block_;
  return static_cast<double>(bytes) / costs_.load_bytes_per_s > num_tokens / costs_.compute_tokens_per_s;
}

// A request with more blocks than the limit is stored when no other store is in flight.
bool OffloadConnector::is_busy_storing(std::size_t num_blocks) const {
  return max_storing_blocks_ > 0 && num_storing_blocks_ > 0 && num_storing_blocks_ + num_blocks > max_storing_blocks_;
}

// Implements vLLM's get_num_new_matched_tokens.
ExternalMatch OffloadConnector::match(const RequestView& request, std::uint32_t num_local_tokens) {
  constexpr ExternalMatch kNothing{.num_tokens = 0, .load_async = false};
  matched_ = request.id;
  num_local_tokens_ = num_local_tokens;
  num_declined_tokens_ = 0;
  if (!service_.loads) return kNothing;
  const std::size_t tokens_per_key = std::size_t{block_size_} * blocks_per_key_;
  const std::size_t num_keys = num_loadable(request);
  const std::span<const OffloadKey> keys = keys_of(request, 0, num_keys);
  // Touches the keys even if nothing is loaded, so that a prefix that is requested is evicted late.
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

// Appends the match that match() would find, without the side effects of match().
bool OffloadConnector::peek(const RequestView& request, std::uint32_t num_local_tokens, std::vector<TierMatch>& matches) {
  if (!service_.loads) return true;
  const std::size_t tokens_per_key = std::size_t{block_size_} * blocks_per_key_;
  const std::size_t start = num_local_tokens / tokens_per_key, num_keys = num_loadable(request);
  if (start >= num_keys) return true;
  const std::size_t end_tokens = end_of_hit(keys_of(request, start, num_keys), start, num_keys, 0) * tokens_per_key;
  if (end_tokens < num_local_tokens + tokens_per_key) return true;
  const auto num_tokens = static_cast<std::uint32_t>(end_tokens - num_local_tokens);
  if (!computes_faster(num_local_tokens, num_tokens)) matches.push_back({.num_tokens = num_tokens, .load_async = true});
  return true;
}

// Implements vLLM's update_state_after_alloc.
void OffloadConnector::allocated(const RequestView& request, GroupBlocks blocks, std::uint32_t num_external_tokens) {
  const auto [found, is_new] = tracked_.try_emplace(request.id.value);
  TrackedRequest& tracked = found->second;
  if (is_new) ledger_->use(keys_of(request, 0, request.tokens.size() / (std::size_t{block_size_} * blocks_per_key_)));
  if (matched_ == request.id) counters_.num_computed_tokens += std::exchange(num_declined_tokens_, 0);
  if (num_external_tokens == 0) return;
  QUIRE_CHECK(matched_ == request.id, "an allocated load was matched before");
  const std::uint32_t first = num_local_tokens_ / block_size_;
  const std::uint32_t end = (num_local_tokens_ + num_external_tokens) / block_size_;
  QUIRE_CHECK(end % blocks_per_key_ == 0 && end <= blocks[0].size(), "a load covers whole offloaded blocks");
  tracked.num_loaded_tokens = num_external_tokens;
  for (std::uint32_t group = 0; group < windows_.num_groups(); ++group)
    if (const std::uint32_t begin = std::max(first, windows_.first_needed(group, end)); begin < end)
      plan_load(request, group, blocks[group], begin, end);
  // Blocks that were just loaded are already in the tier.
  tracked.next_stored = end / blocks_per_key_;
}

// Plans a load of blocks [first, end) of a group.
void OffloadConnector::plan_load(const RequestView& request, std::uint32_t group, std::span<const BlockId> blocks, std::uint32_t first,
                                 std::uint32_t end) {
  QUIRE_CHECK(first < end && end <= blocks.size(), "a load fills blocks that the request has");
  // Skips null blocks: if another tier loads later tokens, a window has already passed these blocks.
  while (first < end && blocks[first] == kNullBlock) first += blocks_per_key_;
  if (first >= end) return;
  const std::uint32_t first_key = first / blocks_per_key_;
  const std::span<const OffloadKey> keys = keys_of(request, group, first_key, end / blocks_per_key_);
  const auto slots = ledger_->prepare_load(keys);
  QUIRE_CHECK(slots.has_value(), "matched keys can be loaded");
  PendingTransfer load{.request = request.id,
                       .direction = TransferDirection::load,
                       .group = group,
                       .first_key = first_key,
                       .keys = {keys.begin(), keys.end()},
                       .blocks = {blocks.begin() + first, blocks.begin() + end},
                       .places = {}};
  for (std::uint32_t i = first; i < end; ++i) {
    load.indices.push_back(i);
    load.places.push_back(
        number_of(std::uint64_t{(*slots)[i / blocks_per_key_ - first_key].value} * blocks_per_key_ + i % blocks_per_key_));
  }
  QUIRE_CHECK(load.places.size() == load.blocks.size(), "each block has a slot in the tier");
  ++tracked_[request.id.value].num_loads;
  being_loaded_.insert(keys.begin(), keys.end());
  counters_.num_loaded += keys.size();
  if (churn_) churn_->loaded(keys.size());
  num_loading_blocks_ += load.blocks.size();
  loads_.push_back(std::move(load));
}

void OffloadConnector::plan_transfers(const StepPlan& /*plan*/, TransferList& transfers) {
  std::erase_if(due_, [&](PendingTransfer& store) {
    if (begin(store, transfers)) return true;
    if (holds_blocks(store)) return false;
    QUIRE_CHECK(num_storing_blocks_ >= store.blocks.size(), "num_storing_blocks_ includes the blocks of each store");
    num_storing_blocks_ -= store.blocks.size();
    fail_store(store);
    return true;
  });
  std::erase_if(loads_, [&](PendingTransfer& load) {
    // The request has ended, and a window has released the blocks that the load should have filled.
    if (load.was_refused && !holds_blocks(load)) {
      end_transfer_of(load);
      forget_if_done(load.request);
      return true;
    }
    return begin(load, transfers);
  });
  std::ranges::move(decided_, std::back_inserter(due_));
  decided_.clear();
}

bool OffloadConnector::begin(PendingTransfer& moving, TransferList& transfers) {
  const std::optional<TransferId> id = transfers.add({.id = {},
                                                      .request = moving.request,
                                                      .direction = moving.direction,
                                                      .need = TransferNeed::nothing,
                                                      .group = moving.group,
                                                      .blocks = moving.blocks,
                                                      .places = moving.places});
  moving.was_refused = !id;
  QUIRE_CHECK(!moving.blocks.empty() && moving.blocks.size() == moving.places.size(),
              "a transfer has blocks, each with a slot in the tier");
  if (id) moving_.emplace(id->value, std::move(moving));
  return id.has_value();
}

// Returns whether the request still holds the blocks at the same indices, so that no other request can have written to them. A block that a
// window released may return to the same request, but at another index.
bool OffloadConnector::holds_blocks(const PendingTransfer& moving) const {
  QUIRE_CHECK(moving.indices.size() == moving.blocks.size(), "each block has an index in the block table");
  const std::span<const BlockId> held = core_->blocks(moving.request, moving.group);
  for (std::size_t i = 0; i < moving.blocks.size(); ++i)
    if (moving.indices[i] >= held.size() || held[moving.indices[i]] != moving.blocks[i]) return false;
  return true;
}

}  // namespace quire
