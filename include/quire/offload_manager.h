#pragma once
// Which blocks a lower tier holds, in which slots, for a host that plans and moves by itself: what vLLM calls an OffloadingManager. Nothing
// is moved by it. Decisions under lru and arc, with the reuse filter or without, are those of vLLM's CPUOffloadingManager (v0.19.0).
//
// A transfer is bracketed: prepare_load .. complete_load, prepare_store .. complete_store. What is between them is not evicted, and a store
// must be completed even if the request that asked for it is gone. One thread.
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

// Keys from the oldest on, as the policy has them. lru: all; arc and arc_paper: t1, t2, b1, b2; s3fifo: small, main, ghosts.
struct OffloadOrder {
  std::vector<std::vector<OffloadKey>> lists;
  double target_t1_size = 0;  // arc and arc_paper
};

struct CountedKey {
  OffloadKey key;
  std::uint64_t count = 0;  // lookups
};

class QUIRE_API OffloadManager {
 public:
  // Errors: an option out of range. OffloadOptions::restores is not served.
  static Result<std::unique_ptr<OffloadManager>> create(const OffloadOptions& options);
  ~OffloadManager();
  OffloadManager(const OffloadManager&) = delete;
  OffloadManager& operator=(const OffloadManager&) = delete;

  // How many of the keys, from the first one on, can be loaded without a gap. The only call that the reuse filter counts.
  std::uint32_t lookup(std::span<const OffloadKey> keys);
  // Of each key; nothing is counted or kept young.
  [[nodiscard]] std::vector<OffloadPlace> find(std::span<const OffloadKey> keys) const;
  // The keys' slots; valid until the next call. Error: a key cannot be loaded; then no key is held.
  Result<std::span<const OffloadSlot>> prepare_load(std::span<const OffloadKey> keys);
  // Error: a key is not being loaded; then nothing changed.
  Result<void> complete_load(std::span<const OffloadKey> keys);
  // The keys were used, the first one last.
  void touch(std::span<const OffloadKey> keys);
  // A request that begins with the keys was admitted, once of each request: what arc_paper and s3fifo count instead of touches.
  void use(std::span<const OffloadKey> keys);
  // Gives slots to those keys that have none; nullopt: not all of them find room, and nothing changed. Valid until the next call.
  std::optional<PreparedStore> prepare_store(std::span<const OffloadKey> keys);
  // Ends the stores of these keys: they can be loaded now, or, without success, their slots are free again. Keys that are not being stored
  // are passed over.
  void complete_store(std::span<const OffloadKey> keys, bool success = true);
  // What was loaded of it was no good: it leaves as an evicted one does. False: it is not there, or in transfer, and stays.
  bool discard(const OffloadKey& key);

  // What happened since the last clear_events(), oldest first.
  [[nodiscard]] std::size_t num_events() const;
  [[nodiscard]] OffloadEvent event(std::size_t position) const;
  void clear_events();

  [[nodiscard]] std::uint32_t num_slots() const;
  [[nodiscard]] std::uint32_t num_free() const;
  // For tests and explanations: the policy's order, and what the reuse filter has counted, least recently looked up first.
  [[nodiscard]] OffloadOrder order() const;
  [[nodiscard]] std::vector<CountedKey> counted() const;
  void check_invariants() const;

 private:
  QUIRE_HIDDEN explicit OffloadManager(std::unique_ptr<OffloadLedger> ledger);
  std::unique_ptr<OffloadLedger> ledger_;
};

}  // namespace quire
