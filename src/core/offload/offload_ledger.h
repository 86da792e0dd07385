#pragma once
// Records which blocks a lower tier holds, in which slots, and which slots are being read or written. The ledger moves no data. Decisions
// equal vLLM's CPUOffloadingManager and FilterReusedOffloadingManager (v0.19.0): the same answers, slots and evicted blocks, in the same
// order.
//
// A transfer has two calls: prepare_load and complete_load, or prepare_store and complete_store. Blocks are not evicted in between. A store
// must be completed even if its request has ended. Not thread-safe. Do not pass views that prepare_store() returned to prepare_store().
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/offload/key_index.h"
#include "core/offload/reuse_filter.h"
#include "quire/eviction_policy.h"
#include "quire/offload.h"

namespace quire {

// Memory is limited by num_slots, except for events. All calls are linear in their number of keys.
class OffloadLedger {
 public:
  // Returns an error if an option is out of range.
  static Result<std::unique_ptr<OffloadLedger>> create(const OffloadOptions& options);
  OffloadLedger(const OffloadLedger&) = delete;
  OffloadLedger& operator=(const OffloadLedger&) = delete;

  // Returns the number of leading keys that can be loaded: the keys before the first key that is missing or still being stored. Only this
  // call counts for the reuse filter.
  std::uint32_t lookup(std::span<const OffloadKey> keys);

  // Returns the keys' slots, which can be read until complete_load() with the same keys. The result is valid until the next call. Error: a
  // key cannot be loaded; then no slot is reserved.
  Result<std::span<const OffloadSlot>> prepare_load(std::span<const OffloadKey> keys);
  // Ends a load. Error: a key is not being loaded; then nothing changes.
  Result<void> complete_load(std::span<const OffloadKey> keys);

  // Marks the keys as used, from the last to the first, so that the end of a prefix is evicted before its beginning.
  void touch(std::span<const OffloadKey> keys);
  // Called once for each admitted request, with the keys of its leading blocks. The policies arc_paper and s3fifo count this call instead
  // of touch().
  void use(std::span<const OffloadKey> keys);

  // Assigns slots to the keys that have no slot; with a reuse filter, only to keys that were looked up often enough. Evicts other keys if
  // needed, but none of `keys`. Returns nullopt and changes nothing if not all of these keys fit. The keys should differ: a key that is
  // given twice gets two slots, and the first slot is lost permanently, as in vLLM.
  std::optional<PreparedStore> prepare_store(std::span<const OffloadKey> keys);
  // Like prepare_store(), but assigns slots to as many leading keys as fit, and evicts no key of `keys` or `kept`.
  PreparedStore prepare_store_of_leading(std::span<const OffloadKey> keys, std::span<const OffloadKey> kept);
  // Ends the stores of the `keys` that are being stored. After success, these keys can be loaded; otherwise they are removed. Other keys
  // are ignored.
  void complete_store(std::span<const OffloadKey> keys, bool success = true);

  // Reports what a slot contains from an earlier run (OffloadOptions::restores), once per slot: null for nothing, or `key`, which can be
  // loaded from now on. The key becomes the oldest resident key, so the most recently stored keys must be reported first. Returns whether
  // the slot now holds the key. If the key is already resident, or null, the slot is free. A slot is not used for stores before its report,
  // and nothing is evicted before all reports.
  bool restore(OffloadSlot slot, const OffloadKey* key);

  // Removes the key, as an eviction does. Returns false and changes nothing if the key is absent, being stored or being loaded.
  bool discard(const OffloadKey& key);

  // Appends keys that are likely to be evicted next; see EvictionPolicy::append_next_victims().
  void append_next_victims(std::size_t most, std::vector<OffloadKey>& keys) const;

  // Events since the last clear_events(), oldest first. Reading does not remove events, because vLLM's take_events also removes them only
  // after all were read.
  [[nodiscard]] std::size_t num_events() const { return events_.size(); }
  [[nodiscard]] OffloadEvent event(std::size_t position) const;
  void clear_events();
  // Returns the number of keys whose events were dropped because of max_pending_event_keys.
  [[nodiscard]] std::uint64_t num_lost_event_keys() const { return num_lost_event_keys_; }

  [[nodiscard]] std::uint32_t num_slots() const { return num_slots_; }
  [[nodiscard]] std::uint32_t num_free() const {
    QUIRE_CHECK(num_taken_ <= num_slots_, "no more slots are taken than there are");
    return static_cast<std::uint32_t>(free_.size()) + num_slots_ - num_taken_;
  }
  [[nodiscard]] std::uint32_t num_lost() const { return num_lost_; }
  // Returns the number of slots that were not reported with restore() yet.
  [[nodiscard]] std::uint32_t num_unread() const { return num_unread_; }
  [[nodiscard]] bool contains(const OffloadKey& key) const { return index_.find(key) != kNoIndex; }
  // Returns -1 while the key is being stored, then the number of its loads in flight. Returns nullopt if the key is not resident.
  [[nodiscard]] std::optional<std::int32_t> ref_count(const OffloadKey& key) const;
  // Returns all resident keys in the order of their slots.
  [[nodiscard]] std::vector<OffloadKey> resident_keys() const;
  [[nodiscard]] PolicySnapshot snapshot() const { return policy_->snapshot(); }
  // Returns null if no reuse filter is used.
  [[nodiscard]] const ReuseFilter* filter() const { return filter_.get(); }
  void check_invariants() const;

 private:
  // The keys of all events are concatenated; each event stores where its keys end.
  struct EventRange {
    std::size_t end;  // index into event_keys_; the event begins at the end of the previous one
    bool removed;
  };

  OffloadLedger(const OffloadOptions& options, std::unique_ptr<ReuseFilter> filter);
  void begin_prepare();
  [[nodiscard]] bool collect_missing(std::span<const OffloadKey> keys);
  [[nodiscard]] bool make_room(std::span<const OffloadKey> keys, std::uint32_t count);
  [[nodiscard]] bool evict(std::uint32_t count, std::span<const OffloadKey> incoming);
  [[nodiscard]] std::uint32_t evict_as_many_as_possible();
  PreparedStore take_slots(std::uint32_t count);
  void set_protected(std::span<const OffloadKey> keys, bool is_protected);
  std::uint32_t take_slot();
  void begin_store(const OffloadKey& key, std::uint32_t slot);
  void release(std::uint32_t slot);
  void add_event(std::span<const OffloadKey> keys, bool removed);

  std::uint32_t num_slots_;
  std::uint32_t num_taken_ = 0;  // slots that were used at least once, the lowest ones; with `restores`: all slots
  std::uint32_t num_lost_ = 0;
  std::uint32_t num_unread_ = 0;
  std::vector<std::uint32_t> free_;  // slots that were used and are free again; the last freed slot is at the back
  KeyIndex index_;                   // by slot
  std::vector<std::int32_t> ref_counts_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<ReuseFilter> filter_;

  // Results of the last call. Their memory grows to the largest call so far, at most num_slots.
  std::vector<OffloadKey> keys_;
  std::vector<OffloadSlot> slots_;
  std::vector<std::uint32_t> evicted_;
  std::vector<OffloadKey> evicted_keys_;
  std::vector<OffloadKey> stored_keys_;  // scratch of complete_store

  bool enable_events_;
  std::size_t max_pending_event_keys_;
  std::vector<OffloadKey> event_keys_;
  std::vector<EventRange> events_;
  std::uint64_t num_lost_event_keys_ = 0;
};

}  // namespace quire
