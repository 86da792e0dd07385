// Moves blocks between two tiers, and records the content of a tier that must be queried. A block that moves is pinned in its source tier
// as if it were loaded, and counts as being stored in its destination tier.
#include "base/check.h"
#include "core/connect/offload_connector.h"

namespace quire {

std::optional<std::uint64_t> OffloadConnector::hold(const OffloadKey& key) {
  QUIRE_CHECK(blocks_per_key_ == 1, "a key stands for one cache block");
  if (ledger_->ref_count(key).value_or(-1) < 0 || dropped_after_transfer_.contains(key)) return std::nullopt;
  const auto slots = ledger_->prepare_load({&key, 1});
  QUIRE_CHECK(slots.has_value(), "a stored key can be loaded");
  return number_of((*slots)[0].value);
}

void OffloadConnector::release(const OffloadKey& key) {
  QUIRE_CHECK(ledger_->complete_load({&key, 1}).has_value(), "a held key is in the tier");
  if (dropped_after_transfer_.contains(key) && ledger_->discard(key)) dropped_after_transfer_.erase(key);
}

std::optional<OffloadSlot> OffloadConnector::adopt(const OffloadKey& key) {
  QUIRE_CHECK(blocks_per_key_ == 1, "a key stands for one cache block");
  const std::optional<PreparedStore> store = ledger_->prepare_store({&key, 1});
  if (!store || store->keys.empty()) return std::nullopt;
  QUIRE_CHECK(store->keys.size() == 1 && store->slots.size() == 1, "one key has one slot");
  const OffloadSlot slot = store->slots[0];
  assign(slot.value, key);
  ++counters_.num_stored;
  return slot;
}

void OffloadConnector::adopted(const OffloadKey& key, bool is_stored) {
  QUIRE_CHECK(ledger_->ref_count(key).has_value(), "an adopted key has a slot until its transfer ends");
  if (is_stored) {
    std::vector<OffloadKey> keys = {key};
    return end_stores(keys);
  }
  ++counters_.num_failed_stores;
  ledger_->complete_store({&key, 1}, false);
  dropped_after_transfer_.erase(key);
}

void OffloadConnector::append_match_keys(const RequestView& request, std::uint32_t num_local_tokens, std::vector<OffloadKey>& keys) {
  const std::span<const OffloadKey> wanted = keys_of(request, num_local_tokens / block_size_, num_loadable(request));
  keys.insert(keys.end(), wanted.begin(), wanted.end());
}

void OffloadConnector::append_block_keys(const RequestView& request, std::vector<OffloadKey>& keys) {
  const std::span<const OffloadKey> all = keys_of(request, 0, request.block_hashes.size() / sizeof(OffloadKey::hash) / blocks_per_key_);
  keys.insert(keys.end(), all.begin(), all.end());
}

void OffloadConnector::on_query_hit(const OffloadKey& key) {
  QUIRE_CHECK(blocks_per_key_ == 1, "a key stands for one cache block");
  if (ledger_->contains(key)) return;
  const std::optional<PreparedStore> store = ledger_->prepare_store({&key, 1});
  if (!store || store->keys.empty()) return;
  QUIRE_CHECK(store->keys.size() == 1 && store->slots.size() == 1, "one key has one slot");
  if (tier_slots_ != nullptr)
    for (const OffloadKey& evicted : store->evicted) tier_slots_->left(evicted);
  assign(store->slots[0].value, key);
  ledger_->complete_store({&key, 1});
}

void OffloadConnector::on_query_miss(const OffloadKey& key) {
  if (ledger_->ref_count(key) == 0) ledger_->discard(key);
}

}  // namespace quire
