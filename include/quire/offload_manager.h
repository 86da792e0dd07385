#pragma once
// Decides which blocks a lower tier holds, and in which slots, for a host that plans and moves blocks itself (vLLM's OffloadingManager).
// Moves no data. With lru and arc, with or without the reuse filter, its decisions equal the decisions of vLLM's CPUOffloadingManager
// (v0.19.0).
//
// A load begins with prepare_load() and ends with complete_load(); a store begins with prepare_store() and ends with complete_store().
// Meanwhile the blocks are not evicted. A store must be completed even if its request has ended. Not thread-safe.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/offload.h"

namespace quire {

class OffloadLedger;

// The internal order of the policy, each list from the oldest key. lru: all keys; arc and arc_paper: t1, t2, b1, b2; s3fifo: small, main,
// ghosts.
struct OffloadOrder {
  std::vector<std::vector<OffloadKey>> lists;
  double target_t1_size = 0;  // arc and arc_paper
};

// A key whose lookups the reuse filter counts (OffloadOptions::store_threshold).
struct CountedKey {
  OffloadKey key;
  std::uint64_t count = 0;  // lookups
};

// Ledger of a lower tier: maps keys to slots, and chooses blocks to evict.
class QUIRE_API OffloadManager {
 public:
  // Creates a manager. Error: an option is out of range, or OffloadOptions::restores is set, which the manager does not support.
  static Result<std::unique_ptr<OffloadManager>> create(const OffloadOptions& options);
  ~OffloadManager();
  OffloadManager(const OffloadManager&) = delete;
  OffloadManager& operator=(const OffloadManager&) = delete;

  // Returns the number of leading keys that can be loaded. Counts a lookup of the keys for the reuse filter; no other function does.
  std::uint32_t lookup(std::span<const OffloadKey> keys);
  // Returns the state of each key. Counts nothing, and does not change the order of eviction.
  [[nodiscard]] std::vector<OffloadState> find(std::span<const OffloadKey> keys) const;
  // Pins the keys for a load and returns their slots, valid until the next call. Error: one of the keys cannot be loaded; then no key is
  // pinned.
  Result<std::span<const OffloadSlot>> prepare_load(std::span<const OffloadKey> keys);
  // Ends the loads of these keys. Error: one of the keys is not being loaded; then nothing has changed.
  Result<void> complete_load(std::span<const OffloadKey> keys);
  // Marks the keys as used, and the first key as the most recently used.
  void touch(std::span<const OffloadKey> keys);
  // Counts a use of the keys, which arc_paper and s3fifo count instead of touches. Call it once per request, when the request is admitted,
  // with its leading keys.
  void use(std::span<const OffloadKey> keys);
  // Assigns slots to the keys without a slot, and evicts other keys if necessary. Returns nullopt, and changes nothing, if there are not
  // enough free or evictable slots for all of them. The result is valid until the next call.
  std::optional<PreparedStore> prepare_store(std::span<const OffloadKey> keys);
  // Ends the stores of these keys. With `success` the keys can be loaded from now on; without it their slots are free again. Keys that are
  // not being stored are ignored.
  void complete_store(std::span<const OffloadKey> keys, bool success = true);
  // Evicts a key because its loaded block was corrupted. Returns false, and changes nothing, if the key is not resident or is in transfer.
  bool discard(const OffloadKey& key);

  // Return the events since the last clear_events(), oldest first.
  [[nodiscard]] std::size_t num_events() const;
  [[nodiscard]] OffloadEvent event(std::size_t position) const;
  void clear_events();

  [[nodiscard]] std::uint32_t num_slots() const;
  [[nodiscard]] std::uint32_t num_free() const;
  // Return the policy's order, and the reuse filter's counts (the key least recently looked up first). For tests and explanations.
  [[nodiscard]] OffloadOrder order() const;
  [[nodiscard]] std::vector<CountedKey> counted() const;
  void check_invariants() const;

 private:
  QUIRE_HIDDEN explicit OffloadManager(std::unique_ptr<OffloadLedger> ledger);
  std::unique_ptr<OffloadLedger> ledger_;
};

}  // namespace quire
