#pragma once
// Which blocks a lower tier holds, in which slots, and who is reading or writing them; it moves no data. Decisions are those of vLLM's
// CPUOffloadingManager and FilterReusedOffloadingManager (v0.19.0): same answers, slots and victims, in the same order.
//
// A transfer is bracketed: prepare_load .. complete_load, prepare_store .. complete_store. What is between them is not evicted, and a
// store must be completed even if the request that asked for it is gone. One thread. prepare_store must not be given its own views.
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

// Memory is fixed by num_slots, but for the events. All calls are linear in their keys.
class OffloadLedger {
 public:
  // Errors: an option out of range.
  static Result<std::unique_ptr<OffloadLedger>> create(const OffloadOptions& options);
  OffloadLedger(const OffloadLedger&) = delete;
  OffloadLedger& operator=(const OffloadLedger&) = delete;

  // How many of the keys, from the first one on, can be loaded without a gap. The only call that the reuse filter counts.
  std::uint32_t lookup(std::span<const OffloadKey> keys);

  // The keys' slots, to be read until complete_load with the same keys. Valid until the next call. Error: a key cannot be loaded; then no
  // key is held.
  Result<std::span<const OffloadSlot>> prepare_load(std::span<const OffloadKey> keys);
  // Error: a key is not being loaded; then nothing changed.
  Result<void> complete_load(std::span<const OffloadKey> keys);

  // The keys were used, the first one last: the end of a prefix is evicted before its beginning.
  void touch(std::span<const OffloadKey> keys);
  // A request that begins with the keys was admitted, said once of each request: what arc_paper and s3fifo count instead of touches.
  void use(std::span<const OffloadKey> keys);

  // Gives slots to those keys that have none, evicting others but never one of `keys`. nullopt: not all of them find room; then nothing
  // changed. Keys should differ: a key given twice gets two slots, of which the first is lost for good, as in vLLM.
  std::optional<PreparedStore> prepare_store(std::span<const OffloadKey> keys);
  // Those of `keys` that were being stored can be loaded from now on; without success they are removed. Others are left alone.
  void complete_store(std::span<const OffloadKey> keys, bool success = true);

  // What a slot holds from before (OffloadOptions::restores), said once of each: nothing, or `key`, which can be loaded from now on and
  // goes before all that is resident, so the most recently stored are told of first. Answers whether the key is taken: not if it is
  // resident already; then the slot is free. Until a slot is told of nothing is stored there, and until all are nothing is evicted.
  bool restore(OffloadSlot slot, const OffloadKey* key);

  // The key leaves the tier as an evicted one does. False, and nothing happens: it is not there, or being stored or loaded.
  bool discard(const OffloadKey& key);

  // Appends keys that look as if they would be evicted next, as EvictionPolicy::append_next().
  void append_next(std::size_t most, std::vector<OffloadKey>& keys) const;

  // What happened since the last clear_events(), oldest first. Reading takes nothing away: vLLM's take_events, too, forgets its events
  // only once it was read to the end.
  [[nodiscard]] std::size_t num_events() const { return events_.size(); }
  [[nodiscard]] OffloadEvent event(std::size_t position) const;
  void clear_events();
  // Keys whose events found no room.
  [[nodiscard]] std::uint64_t num_lost_event_keys() const { return num_lost_event_keys_; }

  [[nodiscard]] std::uint32_t num_slots() const { return num_slots_; }
  [[nodiscard]] std::uint32_t num_free() const {
    QUIRE_CHECK(num_taken_ <= num_slots_, "no more slots are taken than there are");
    return static_cast<std::uint32_t>(free_.size()) + num_slots_ - num_taken_;
  }
  [[nodiscard]] std::uint32_t num_lost() const { return num_lost_; }
  // Slots that restore() has not told of.
  [[nodiscard]] std::uint32_t num_unread() const { return num_unread_; }
  [[nodiscard]] bool contains(const OffloadKey& key) const { return index_.find(key) != kNoIndex; }
  // Of a resident key: -1 while it is being stored, then the number of its loads under way.
  [[nodiscard]] std::optional<std::int32_t> ref_count(const OffloadKey& key) const;
  // Of all resident keys, in the order of their slots.
  [[nodiscard]] std::vector<OffloadKey> resident_keys() const;
  [[nodiscard]] PolicySnapshot snapshot() const { return policy_->snapshot(); }
  // Null without a filter.
  [[nodiscard]] const ReuseFilter* filter() const { return filter_.get(); }
  void check_invariants() const;

 private:
  // Keys of all events lie one after the other; an event says where its own end.
  struct EventRange {
    std::size_t end;  // in event_keys_; the event begins where the one before it ends
    bool removed;
  };

  OffloadLedger(const OffloadOptions& options, std::unique_ptr<ReuseFilter> filter);
  [[nodiscard]] bool collect_missing(std::span<const OffloadKey> keys);
  [[nodiscard]] bool make_room(std::span<const OffloadKey> keys, std::uint32_t count);
  void set_protected(std::span<const OffloadKey> keys, bool is_protected);
  std::uint32_t take_slot();
  void begin_store(const OffloadKey& key, std::uint32_t slot);
  void release(std::uint32_t slot);
  void add_event(std::span<const OffloadKey> keys, bool removed);

  std::uint32_t num_slots_;
  std::uint32_t num_taken_ = 0;  // slots that were ever taken: the lower ones; with `restores` all
  std::uint32_t num_lost_ = 0;
  std::uint32_t num_unread_ = 0;
  std::vector<std::uint32_t> free_;  // taken once and free again, last freed at the back
  KeyIndex index_;                   // by slot
  std::vector<std::int32_t> ref_counts_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::unique_ptr<ReuseFilter> filter_;

  // What the last call returned. They grow to the largest call there was, at most num_slots.
  std::vector<OffloadKey> keys_;
  std::vector<OffloadSlot> slots_;
  std::vector<std::uint32_t> evicted_;
  std::vector<OffloadKey> evicted_keys_;
  std::vector<OffloadKey> stored_keys_;  // of complete_store

  bool enable_events_;
  std::size_t max_pending_event_keys_;
  std::vector<OffloadKey> event_keys_;
  std::vector<EventRange> events_;
  std::uint64_t num_lost_event_keys_ = 0;
};

}  // namespace quire
