// Decides which blocks of a step are stored, and in which slots. Called on the core's thread, after a plan was made. The blocks of a
// request are decided in order. A block for which no slot is available is tried again with the next full block, unless the tier is too
// small for it.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "core/connect/offload_connector.h"
#include "quire/base/plan.h"
#include "quire/core.h"

namespace quire {

// Implements vLLM's build_connector_meta. Stores have the order of vLLM's lists: new requests first, resumed requests last.
void OffloadConnector::planned(const StepPlan& plan) {
  QUIRE_CHECK(core_ != nullptr, "the connector is bound to a core");
  for (const ScheduledKind kind : {ScheduledKind::fresh, ScheduledKind::running, ScheduledKind::resumed})
    for (const ScheduledRequest& scheduled : plan.scheduled)
      if (scheduled.kind == kind) plan_store(scheduled);
  if (hit_after_store_completes_) return;
  for (const RequestId id : plan.preempted)
    if (const auto found = tracked_.find(id.value); found != tracked_.end()) end_stores(found->second.storing);
}

void OffloadConnector::plan_store(const ScheduledRequest& scheduled) {
  const std::optional<RequestView> request = core_->view(scheduled.id);
  QUIRE_CHECK(request.has_value(), "a planned request is known to the core");
  TrackedRequest& tracked = tracked_[scheduled.id.value];
  // Tokens beyond request->tokens are not known yet (asynchronous scheduling), or are draft tokens.
  const std::size_t num_tokens =
      std::min<std::size_t>(std::size_t{scheduled.num_computed_tokens} + scheduled.num_tokens, request->tokens.size());
  const auto end = static_cast<std::uint32_t>(num_tokens / block_size_ / blocks_per_key_);
  const std::uint32_t first = tracked.next_stored;
  if (end <= first || !service_.stores || is_left_to_upper_tier(*request)) return;
  if (!takes(tracked, end - first)) {
    counters_.num_skipped_for_churn += std::size_t{end - first} * windows_.num_groups();
    tracked.next_stored = end;
    return;
  }
  if (const std::size_t num_keys = std::size_t{end - first} * windows_.num_groups(); is_busy_storing(num_keys * blocks_per_key_)) {
    counters_.num_deferred_by_limit += num_keys;
    return;
  }
  decide_stores(*request, tracked, end);
}

bool OffloadConnector::takes(TrackedRequest& tracked, std::size_t num_blocks) {
  if (!churn_) return true;
  const std::size_t num_keys = num_blocks * windows_.num_groups();
  // A request for which enough slots are free evicts nothing, so it is stored. The decision is final: if blocks are missing, the blocks
  // after them cannot be loaded.
  if (!tracked.should_store)
    tracked.should_store = tracked.num_loaded_tokens > 0 || ledger_->num_free() >= num_keys || churn_->should_store_next();
  return *tracked.should_store;
}

bool OffloadConnector::leaves(const RequestView& request) const {
  return request.tokens.size() / block_size_ / blocks_per_key_ * windows_.num_groups() > max_request_blocks_;
}

bool OffloadConnector::is_left_to_upper_tier(const RequestView& request) const {
  return leaves(request) || (upper_ != nullptr && !upper_->leaves(request));
}

void OffloadConnector::decide_stores(const RequestView& request, TrackedRequest& tracked, std::uint32_t end) {
  QUIRE_CHECK(end >= tracked.next_stored, "stores are decided in block order");
  const std::uint32_t most = std::max(tracked.next_stored, end_of_storable(end));
  if (tracked.next_stored < most) tracked.next_stored = store_before(request, tracked, most);
  if (tracked.next_stored == end) return;
  count_not_stored(request, tracked, end);
  // Blocks beyond the tier's size are not tried again; other blocks are tried again with the next full block.
  if (tracked.next_stored == most) tracked.next_stored = end;
}

std::uint32_t OffloadConnector::end_of_storable(std::uint32_t end) const {
  return stores_leading_blocks_ ? std::min<std::uint32_t>(end, ledger_->num_slots() / windows_.num_groups()) : end;
}

// Without stores_leading_blocks, stores all or nothing, as in vLLM: if slots are missing for some blocks of a step, no block is stored.
std::uint32_t OffloadConnector::store_before(const RequestView& request, TrackedRequest& tracked, std::uint32_t end) {
  const std::uint32_t first = tracked.next_stored;
  kept_.clear();
  if (stores_leading_blocks_) std::ranges::copy(keys_of(request, 0, first), std::back_inserter(kept_));
  const std::span<const OffloadKey> keys = keys_held(request, first, end);
  const std::optional<PreparedStore> store =
      stores_leading_blocks_ ? ledger_->prepare_store_of_leading(keys, kept_) : ledger_->prepare_store(keys);
  if (!store) {
    counters_.num_without_slot += keys.size();
    return first;
  }
  if (churn_) churn_->evicted(store->evicted.size());
  if (tier_slots_ != nullptr)
    for (const OffloadKey& key : store->evicted) tier_slots_->left(key);
  counters_.num_without_slot += store->left.size();
  std::uint32_t next = end;
  if (!store->left.empty()) {
    const auto at = static_cast<std::size_t>(std::ranges::find(keys, store->left.front()) - keys.begin());
    QUIRE_CHECK(at < queried_.size(), "a key without room was requested");
    next = static_cast<std::uint32_t>(queried_[at].index);
  }
  if (store->keys.empty()) return next;
  add_stores(request.id, *store, tracked);
  ledger_->touch(keys_of(request, 0, next));
  return next;
}

void OffloadConnector::count_not_stored(const RequestView& request, TrackedRequest& tracked, std::uint32_t end) {
  const std::uint32_t first =
      std::max(tracked.next_stored, std::exchange(tracked.end_counted_without_slot, std::max(tracked.end_counted_without_slot, end)));
  if (first >= end) return;
  const std::span<const OffloadKey> keys = keys_held(request, first, end);
  num_left_out_ +=
      static_cast<std::uint64_t>(std::ranges::count_if(keys, [this](const OffloadKey& key) { return !ledger_->contains(key); }));
}

// Adds stores for the keys that got slots: a subset of the queried keys, in the same order.
void OffloadConnector::add_stores(RequestId request, const PreparedStore& store, TrackedRequest& tracked) {
  QUIRE_CHECK(store.keys.size() == store.slots.size() && queried_.size() == keys_.size(), "each stored key has a slot");
  const std::size_t first_decided = decided_.size();
  std::size_t at = 0;
  for (std::size_t taken = 0; taken < store.keys.size(); ++taken, ++at) {
    while (at < queried_.size() && keys_[at] != store.keys[taken]) ++at;
    QUIRE_CHECK(at < queried_.size(), "a stored key was requested");
    const auto [group, index] = queried_[at];
    PendingTransfer& store_of_group = store_of(request, group, first_decided);
    store_of_group.keys.push_back(keys_[at]);
    for (std::uint32_t part = 0; part < blocks_per_key_; ++part) {
      store_of_group.blocks.push_back(block_tables_[group][index * blocks_per_key_ + part]);
      store_of_group.indices.push_back(static_cast<std::uint32_t>(index * blocks_per_key_ + part));
      store_of_group.places.push_back(assign(std::uint64_t{store.slots[taken].value} * blocks_per_key_ + part, keys_[at]));
    }
  }
  tracked.stores = true;
  tracked.storing.insert(tracked.storing.end(), store.keys.begin(), store.keys.end());
  counters_.num_stored += store.keys.size();
  num_storing_blocks_ += store.keys.size() * blocks_per_key_;
}

// Returns the group's store among the stores decided from `first_decided` on. Adds it if it does not exist.
OffloadConnector::PendingTransfer& OffloadConnector::store_of(RequestId request, std::uint32_t group, std::size_t first_decided) {
  for (std::size_t i = first_decided; i < decided_.size(); ++i)
    if (decided_[i].group == group) return decided_[i];
  return decided_.emplace_back(
      PendingTransfer{.request = request, .direction = TransferDirection::store, .group = group, .keys = {}, .blocks = {}, .places = {}});
}

}  // namespace quire
