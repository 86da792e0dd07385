// Handles transfers and requests that have ended. Called on the core's thread, within Core::apply() (completed, sent) and when a request
// ends (finished). A key that must not be kept but is in transfer is put into dropped_after_transfer_: it is not found any more, and leaves
// the tier when its last transfer has ended.
#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "core/connect/offload_connector.h"
#include "quire/core.h"

namespace quire {

// Ends the stores of the keys, so that they can be loaded. Keys in dropped_after_transfer_ are removed instead.
void OffloadConnector::end_stores(std::vector<OffloadKey>& keys) {
  if (!dropped_after_transfer_.empty()) {
    std::erase_if(keys, [this](const OffloadKey& key) {
      if (dropped_after_transfer_.erase(key) == 0) return false;
      ledger_->complete_store({&key, 1}, false);
      return true;
    });
  }
  ledger_->complete_store(keys);
  keys.clear();
}

// Implements vLLM's update_connector_output, for one transfer.
void OffloadConnector::completed(const TransferCompletion& completion) {
  const auto found = moving_.find(completion.transfer.value);
  if (found == moving_.end()) return;
  const PendingTransfer moved = std::move(found->second);
  moving_.erase(found);
  QUIRE_CHECK(moved.direction == TransferDirection::load || num_storing_blocks_ >= moved.blocks.size(),
              "num_storing_blocks_ includes the blocks of each store");
  if (moved.direction == TransferDirection::store) num_storing_blocks_ -= moved.blocks.size();
  if (moved.direction == TransferDirection::load)
    end_load(moved, completion);
  else if (completion.outcome == TransferOutcome::failed)
    fail_store(moved);
  else if (hit_after_store_completes_)
    end_store(moved);
}

void OffloadConnector::end_store(const PendingTransfer& store) {
  const auto found = tracked_.find(store.request.value);
  if (found == tracked_.end()) return;
  std::vector<OffloadKey> stored = store.keys;
  std::erase_if(stored, [&](const OffloadKey& key) { return std::erase(found->second.storing, key) == 0; });
  end_stores(stored);
}

OffloadConnector::TrackedRequest& OffloadConnector::end_transfer_of(const PendingTransfer& load) {
  QUIRE_CHECK(num_loading_blocks_ >= load.blocks.size(), "num_loading_blocks_ includes the blocks of each load");
  num_loading_blocks_ -= load.blocks.size();
  for (const OffloadKey& key : load.keys) being_loaded_.erase(key);
  QUIRE_CHECK(ledger_->complete_load(load.keys).has_value(), "keys that are being loaded stay in the tier");
  const auto found = tracked_.find(load.request.value);
  QUIRE_CHECK(found != tracked_.end(), "a request with a load is tracked");
  QUIRE_CHECK(found->second.num_loads > 0, "num_loads includes each load of a request");
  --found->second.num_loads;
  for (const OffloadKey& key : load.keys)
    if (dropped_after_transfer_.contains(key) && ledger_->discard(key)) dropped_after_transfer_.erase(key);
  return found->second;
}

void OffloadConnector::end_load(const PendingTransfer& load, const TransferCompletion& completion) {
  TrackedRequest& tracked = end_transfer_of(load);
  if (completion.outcome == TransferOutcome::failed) drop_invalid(load, completion.bad_blocks, tracked);
  if (tracked.num_loads == 0) counters_.num_loaded_tokens += tracked.num_loaded_tokens;
  forget_if_done(load.request);
}

// Drops the keys of blocks with invalid content. A key is dropped if any of its blocks is invalid; the blocks of the key are then stored
// again. Blocks before an invalid block stay valid only if the group keeps all blocks.
void OffloadConnector::drop_invalid(const PendingTransfer& load, std::span<const BlockId> bad_blocks, TrackedRequest& tracked) {
  const auto is_bad = [&](BlockId block) { return bad_blocks.empty() || std::ranges::find(bad_blocks, block) != bad_blocks.end(); };
  QUIRE_CHECK(!load.places.empty() && !load.keys.empty(), "a load has blocks and keys");
  const std::uint64_t num_before = load.places.front() % blocks_per_key_;  // number of blocks of the first key that the request already had
  for (std::uint32_t i = 0; i < load.keys.size(); ++i) {
    const std::size_t first = std::max<std::size_t>(std::size_t{i} * blocks_per_key_, num_before) - num_before;
    const std::size_t end = std::size_t{i + 1} * blocks_per_key_ - num_before;
    QUIRE_CHECK(first < end && end <= load.blocks.size(), "each key has its blocks in the load");
    if (std::ranges::none_of(std::span(load.blocks).subspan(first, end - first), is_bad)) continue;
    const std::uint32_t num_good = windows_.is_plain() ? load.first_key + i : 0;
    tracked.next_stored = std::min(tracked.next_stored, num_good);
    tracked.num_loaded_tokens =
        std::min(tracked.num_loaded_tokens, windows_.is_plain() ? static_cast<std::uint32_t>(first) * block_size_ : 0);
    drop(load.keys[i]);
    ++counters_.num_failed_loads;
  }
}

void OffloadConnector::fail_store(const PendingTransfer& store) {
  const auto found = tracked_.find(store.request.value);
  counters_.num_failed_stores += store.keys.size();
  for (const OffloadKey& key : store.keys) {
    if (found != tracked_.end() && std::erase(found->second.storing, key) > 0) {
      ledger_->complete_store({&key, 1}, false);
      dropped_after_transfer_.erase(key);
    } else if (ledger_->ref_count(key) != -1) {  // otherwise another request is storing the key
      drop(key);
    }
  }
}

// Cancels all stores of the request that were decided and have not begun. Some of the blocks may be valid; for simplicity they are stored
// again when they are computed again. Between two plans, all such stores are in due_.
void OffloadConnector::invalidated(const RequestView& request, std::uint32_t num_valid_tokens) {
  const auto found = tracked_.find(request.id.value);
  if (found == tracked_.end()) return;
  found->second.next_stored = std::min(found->second.next_stored, num_valid_tokens / block_size_ / blocks_per_key_);
  std::erase_if(due_, [&](const PendingTransfer& store) {
    if (store.request != request.id) return false;
    QUIRE_CHECK(num_storing_blocks_ >= store.blocks.size(), "num_storing_blocks_ includes the blocks of a cancelled store");
    num_storing_blocks_ -= store.blocks.size();
    fail_store(store);
    return true;
  });
  // If no block of the request is or was in transfer, no later call will report the end of its stores.
  if (found->second.storing.empty()) found->second.stores = false;
}

void OffloadConnector::drop(const OffloadKey& key) {
  if (tier_slots_ != nullptr) tier_slots_->dropped(key);
  if (!ledger_->discard(key) && ledger_->contains(key)) dropped_after_transfer_.insert(key);
}

// Stores the deferred blocks of a request that has ended, if no other request runs or waits. They were deferred because a slow store would
// have kept blocks that other requests need. The last token was only sampled: its keys and values were not computed.
void OffloadConnector::store_rest(const RequestView& request, TrackedRequest& tracked) {
  const bool ran_to_its_end = request.status == RequestStatus::finished_stopped || request.status == RequestStatus::finished_length;
  if (max_storing_blocks_ == 0 || !service_.stores || !ran_to_its_end || is_left_to_upper_tier(request)) return;
  QUIRE_CHECK(core_ != nullptr, "the connector is bound before a request ends");
  const CoreCounters now = core_->counters();
  if (now.num_running > 1 || now.num_waiting > 0) return;
  QUIRE_CHECK(!request.tokens.empty(), "a request that ran has tokens");
  const std::size_t num_tokens = std::min<std::size_t>(request.num_computed_tokens, request.tokens.size() - 1);
  const auto end = static_cast<std::uint32_t>(num_tokens / block_size_ / blocks_per_key_);
  if (end <= tracked.next_stored || !takes(tracked, end - tracked.next_stored)) return;
  const std::uint64_t num_before = counters_.num_stored;
  decide_stores(request, tracked, end);
  counters_.num_stored_when_idle += counters_.num_stored - num_before;
  std::ranges::move(decided_, std::back_inserter(due_));
  decided_.clear();
}

// Implements vLLM's request_finished.
bool OffloadConnector::finished(const RequestView& request, GroupBlocks /*blocks*/) {
  const auto found = tracked_.find(request.id.value);
  if (found == tracked_.end()) return false;
  found->second.has_ended = true;
  store_rest(request, found->second);
  const bool stores = found->second.stores;
  forget_if_done(request.id);
  return stores;
}

// Implements the finished_sending part of vLLM's update_connector_output.
void OffloadConnector::sent(RequestId request) {
  const auto found = tracked_.find(request.value);
  if (found == tracked_.end()) return;
  end_stores(found->second.storing);
  found->second.stores = false;
  forget_if_done(request);
}

void OffloadConnector::forget_if_done(RequestId request) {
  const auto found = tracked_.find(request.value);
  if (found != tracked_.end() && found->second.has_ended && !found->second.stores && found->second.num_loads == 0) tracked_.erase(found);
}

void OffloadConnector::check_moving(const PendingTransfer& moving) const {
  QUIRE_CHECK(!moving.keys.empty() && !moving.blocks.empty(), "a transfer has keys and blocks");
  QUIRE_CHECK(moving.indices.size() == moving.blocks.size() && moving.places.size() == moving.blocks.size(),
              "each block has a table index and a slot in the tier");
  QUIRE_CHECK(moving.group < windows_.num_groups(), "a transfer belongs to one cache group");
  QUIRE_CHECK(moving.direction == TransferDirection::load || moving.blocks.size() == moving.keys.size() * blocks_per_key_,
              "a store covers all blocks of its keys");
}

void OffloadConnector::check_invariants() const {
  ledger_->check_invariants();
  std::size_t num_storing = 0, num_loading = 0, num_loads = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> loads_of;
  const auto count = [&](const PendingTransfer& moving) {
    check_moving(moving);
    const bool is_load = moving.direction == TransferDirection::load;
    (is_load ? num_loading : num_storing) += moving.blocks.size();
    if (!is_load) return;
    ++num_loads;
    ++loads_of[moving.request.value];
    for (const OffloadKey& key : moving.keys)
      QUIRE_CHECK(ledger_->ref_count(key).value_or(0) > 0, "a key that is being loaded has a reference in the tier");
  };
  for (const std::vector<PendingTransfer>* list : {&loads_, &decided_, &due_}) std::ranges::for_each(*list, count);
  for (const auto& [id, moving] : moving_) count(moving);
  QUIRE_CHECK(num_storing == num_storing_blocks_ && num_loading == num_loading_blocks_,
              "num_storing_blocks_ and num_loading_blocks_ match the transfers");
  QUIRE_CHECK(num_loads > 0 || being_loaded_.empty(), "keys are marked as being loaded only while a load is in flight");
  for (const auto& [id, tracked] : tracked_) {
    const auto found = loads_of.find(id);
    QUIRE_CHECK(tracked.num_loads == (found == loads_of.end() ? 0 : found->second), "num_loads equals the number of loads of the request");
    if (found != loads_of.end()) loads_of.erase(found);
    for (const OffloadKey& key : tracked.storing) QUIRE_CHECK(ledger_->contains(key), "a key that is being stored has a slot");
  }
  QUIRE_CHECK(loads_of.empty(), "each request with a load is tracked");
  for (const OffloadKey& key : dropped_after_transfer_)
    QUIRE_CHECK(ledger_->ref_count(key).value_or(0) != 0, "a key that is dropped later is in transfer");
}

bool OffloadConnector::reset() {
  was_reset_ = true;
  for (const OffloadKey& key : ledger_->resident_keys()) drop(key);
  return true;
}

}  // namespace quire
