// What becomes of transfers and requests that have ended.
// Called within Core::apply() (completed, sent) and when a request ends (finished), on the core's thread. A key that must not be kept, but
// is in transfer, is marked (doomed_) and leaves the tier when the last transfer of it is over; until then nobody finds it.
#include <algorithm>
#include <iterator>

#include "base/check.h"
#include "core/connect/offload_connector.h"
#include "quire/core.h"

namespace quire {

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

// update_connector_output, of one transfer
void OffloadConnector::completed(const TransferCompletion& completion) {
  const auto found = moving_.find(completion.transfer.value);
  if (found == moving_.end()) return;
  const Moving moved = std::move(found->second);
  moving_.erase(found);
  QUIRE_CHECK(moved.direction == TransferDirection::load || num_storing_blocks_ >= moved.blocks.size(), "blocks under way are counted");
  if (moved.direction == TransferDirection::store) num_storing_blocks_ -= moved.blocks.size();
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

OffloadConnector::Tracked& OffloadConnector::let_go(const Moving& load) {
  QUIRE_CHECK(num_loading_blocks_ >= load.blocks.size(), "blocks on their way here are counted");
  num_loading_blocks_ -= load.blocks.size();
  for (const OffloadKey& key : load.keys) being_loaded_.erase(key);
  QUIRE_CHECK(ledger_->complete_load(load.keys).has_value(), "what is loaded stays");
  const auto found = tracked_.find(load.request.value);
  QUIRE_CHECK(found != tracked_.end(), "a request with a load is remembered");
  QUIRE_CHECK(found->second.num_loads > 0, "loads of a request are counted");
  --found->second.num_loads;
  for (const OffloadKey& key : load.keys)
    if (doomed_.contains(key) && ledger_->discard(key)) doomed_.erase(key);
  return found->second;
}

void OffloadConnector::end_load(const Moving& load, const TransferCompletion& completion) {
  Tracked& tracked = let_go(load);
  if (completion.outcome == TransferOutcome::failed) drop_bad(load, completion.bad_blocks, tracked);
  if (tracked.num_loads == 0) counters_.num_loaded_tokens += tracked.num_loaded_tokens;
  forget_if_over(load.request);
}

// A key is bad when one of its blocks is; they are to be stored anew. What came before them is of use where all blocks are kept.
void OffloadConnector::drop_bad(const Moving& load, std::span<const BlockId> bad_blocks, Tracked& tracked) {
  const auto is_bad = [&](BlockId block) { return bad_blocks.empty() || std::ranges::find(bad_blocks, block) != bad_blocks.end(); };
  QUIRE_CHECK(!load.places.empty() && !load.keys.empty(), "a load has blocks");
  const std::uint64_t num_before = load.places.front() % factor_;  // blocks of the first key that were there already
  for (std::uint32_t i = 0; i < load.keys.size(); ++i) {
    const std::size_t first = std::max<std::size_t>(std::size_t{i} * factor_, num_before) - num_before;
    const std::size_t end = std::size_t{i + 1} * factor_ - num_before;
    QUIRE_CHECK(first < end && end <= load.blocks.size(), "each key has its blocks");
    if (std::ranges::none_of(std::span(load.blocks).subspan(first, end - first), is_bad)) continue;
    const std::uint32_t num_good = windows_.is_plain() ? load.first_key + i : 0;
    tracked.next_stored = std::min(tracked.next_stored, num_good);
    tracked.num_loaded_tokens =
        std::min(tracked.num_loaded_tokens, windows_.is_plain() ? static_cast<std::uint32_t>(first) * block_size_ : 0);
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

// All that it has decided upon and not begun, for simplicity, although some of it may be good: that is stored when it fills again. Between
// two plans all of it is due.
void OffloadConnector::spoiled(const RequestView& request, std::uint32_t num_good_tokens) {
  const auto found = tracked_.find(request.id.value);
  if (found == tracked_.end()) return;
  found->second.next_stored = std::min(found->second.next_stored, num_good_tokens / block_size_ / factor_);
  std::erase_if(due_, [&](const Moving& store) {
    if (store.request != request.id) return false;
    QUIRE_CHECK(num_storing_blocks_ >= store.blocks.size(), "blocks of a store that is given up were counted");
    num_storing_blocks_ -= store.blocks.size();
    fail_store(store);
    return true;
  });
  // Nothing of it is or was in transfer, and nobody will say that it is over.
  if (found->second.storing.empty()) found->second.stores = false;
}

void OffloadConnector::drop(const OffloadKey& key) {
  if (places_ != nullptr) places_->dropped(key);
  if (!ledger_->discard(key) && ledger_->contains(key)) doomed_.insert(key);
}

// What was held back, so that a slow tier does not keep blocks which others want, when there are no others. The last token was sampled by
// the last pass, and is in none that is over.
void OffloadConnector::store_rest(const RequestView& request, Tracked& tracked) {
  const bool ran_to_its_end = request.status == RequestStatus::finished_stopped || request.status == RequestStatus::finished_length;
  if (max_storing_blocks_ == 0 || !service_.stores || !ran_to_its_end) return;
  QUIRE_CHECK(core_ != nullptr, "a connector is bound before a request ends");
  const CoreCounters now = core_->counters();
  if (now.num_running > 1 || now.num_waiting > 0) return;
  QUIRE_CHECK(!request.tokens.empty(), "a request that ran has tokens");
  const std::size_t num_tokens = std::min<std::size_t>(request.num_computed_tokens, request.tokens.size() - 1);
  const auto end = static_cast<std::uint32_t>(num_tokens / block_size_ / factor_);
  if (end <= tracked.next_stored || !takes(tracked, end - tracked.next_stored)) return;
  const std::uint64_t num_before = counters_.num_stored;
  decide_stores(request, tracked, end);
  counters_.num_stored_at_end += counters_.num_stored - num_before;
  std::ranges::move(decided_, std::back_inserter(due_));
  decided_.clear();
}

// request_finished
bool OffloadConnector::finished(const RequestView& request, GroupBlocks /*blocks*/) {
  const auto found = tracked_.find(request.id.value);
  if (found == tracked_.end()) return false;
  found->second.has_ended = true;
  store_rest(request, found->second);
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
  if (found != tracked_.end() && found->second.has_ended && !found->second.stores && found->second.num_loads == 0) tracked_.erase(found);
}

void OffloadConnector::check_moving(const Moving& moving) const {
  QUIRE_CHECK(!moving.keys.empty() && !moving.blocks.empty(), "a transfer is of something");
  QUIRE_CHECK(moving.indices.size() == moving.blocks.size() && moving.places.size() == moving.blocks.size(),
              "a block has a place here and there");
  QUIRE_CHECK(moving.group < windows_.num_groups(), "a transfer is of one group");
  QUIRE_CHECK(moving.direction == TransferDirection::load || moving.blocks.size() == moving.keys.size() * factor_, "whole keys are stored");
}

void OffloadConnector::check_invariants() const {
  ledger_->check_invariants();
  std::size_t num_storing = 0, num_loading = 0, num_loads = 0;
  std::unordered_map<std::uint64_t, std::uint32_t> loads_of;
  const auto count = [&](const Moving& moving) {
    check_moving(moving);
    const bool is_load = moving.direction == TransferDirection::load;
    (is_load ? num_loading : num_storing) += moving.blocks.size();
    if (!is_load) return;
    ++num_loads;
    ++loads_of[moving.request.value];
    for (const OffloadKey& key : moving.keys)
      QUIRE_CHECK(ledger_->ref_count(key).value_or(0) > 0, "what is being loaded stays in the tier");
  };
  for (const std::vector<Moving>* list : {&loads_, &decided_, &due_}) std::ranges::for_each(*list, count);
  for (const auto& [id, moving] : moving_) count(moving);
  QUIRE_CHECK(num_storing == num_storing_blocks_ && num_loading == num_loading_blocks_, "blocks under way are counted, each way");
  QUIRE_CHECK(num_loads > 0 || being_loaded_.empty(), "who waits for a load of others waits for one that is under way");
  for (const auto& [id, tracked] : tracked_) {
    const auto found = loads_of.find(id);
    QUIRE_CHECK(tracked.num_loads == (found == loads_of.end() ? 0 : found->second), "a request knows how many loads it has");
    if (found != loads_of.end()) loads_of.erase(found);
    for (const OffloadKey& key : tracked.storing) QUIRE_CHECK(ledger_->contains(key), "what a request stores has a slot");
  }
  QUIRE_CHECK(loads_of.empty(), "who loads is remembered");
  for (const OffloadKey& key : doomed_) QUIRE_CHECK(ledger_->ref_count(key).value_or(0) != 0, "what leaves the tier later is in transfer");
}

bool OffloadConnector::reset() {
  was_reset_ = true;
  for (const OffloadKey& key : ledger_->resident_keys()) drop(key);
  return true;
}

}  // namespace quire
