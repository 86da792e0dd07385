#pragma once
// Decides which blocks a lower tier holds, and in which slots, for a host that plans and moves blocks itself (vLLM's OffloadingManager). It
// moves no data. With lru and arc, with or without the reuse filter, it decides as vLLM's CPUOffloadingManager (v0.19.0).
//
// A transfer is bracketed: prepare_load .. complete_load, prepare_store .. complete_store. In between its blocks are not evicted. A store
// must be completed even if its request has ended. Not thread-safe.
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

// The policy's order, each list from the oldest key. lru: all; arc and arc_paper: t1, t2, b1, b2; s3fifo: small, main, ghosts.
struct OffloadOrder {
  std::vector<std::vector<OffloadKey>> lists;
  double target_t1_size = 0;  // arc and arc_paper
};

// A key that the reuse filter counts.
struct CountedKey {
  OffloadKey key;
  std::uint64_t count = 0;  // lookups
};

// Ledger of a lower tier: maps keys to slots, and chooses blocks to evict.
class QUIRE_API OffloadManager {
 public:
  // Creates a manager. Errors: an option is out of range. OffloadOptions::restores is not supported.
  static Result<std::unique_ptr<OffloadManager>> create(const OffloadOptions& options);
  ~OffloadManager();
  OffloadManager(const OffloadManager&) = delete;
  OffloadManager& operator=(const OffloadManager&) = delete;

  // Returns how many leading keys can be loaded without a gap. The reuse filter counts only these lookups.
  std::uint32_t lookup(std::span<const OffloadKey> keys);
  // Returns the state of each key. Counts nothing, and does not change the order of eviction.
  [[nodiscard]] std::vector<OffloadState> find(std::span<const OffloadKey> keys) const;
  // Pins the keys for a load and returns their slots, valid until the next call. Error: a key cannot be loaded; then no key is pinned.
  Result<std::span<const OffloadSlot>> prepare_load(std::span<const OffloadKey> keys);
  // Ends the loads of these keys. Error: a key is not being loaded; then nothing has changed.
  Result<void> complete_load(std::span<const OffloadKey> keys);
  // Marks the keys as used, the first one as the most recent.
  void touch(std::span<const OffloadKey> keys);
  // Call once per request when it is admitted, with its leading keys: arc_paper and s3fifo count this instead of touches.
  void use(std::span<const OffloadKey> keys);
  // Assigns slots to the keys that have none, and evicts others for them. nullopt: there is no room for all of them; then nothing has
  // changed. Valid until the next call.
  std::optional<PreparedStore> prepare_store(std::span<const OffloadKey> keys);
  // Ends the stores of these keys. They can be loaded now; without `success` their slots are free again. Keys that are not being stored are
  // ignored.
  void complete_store(std::span<const OffloadKey> keys, bool success = true);
  // Evicts a key because its loaded block was corrupted. Returns false, and keeps it, if it is not resident or is in transfer.
  bool discard(const OffloadKey& key);

  // Events since the last clear_events(), oldest first.
  [[nodiscard]] std::size_t num_events() const;
  [[nodiscard]] OffloadEvent event(std::size_t position) const;
  void clear_events();

  [[nodiscard]] std::uint32_t num_slots() const;
  [[nodiscard]] std::uint32_t num_free() const;
  // For tests and explanations: the policy's order, and the reuse filter's counts, least recently looked up first.
  [[nodiscard]] OffloadOrder order() const;
  [[nodiscard]] std::vector<CountedKey> counted() const;
  void check_invariants() const;

 private:
  QUIRE_HIDDEN explicit OffloadManager(std::unique_ptr<OffloadLedger> ledger);
  std::unique_ptr<OffloadLedger> ledger_;
};

}  // namespace quire
