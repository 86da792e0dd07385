#pragma once
// The contents of a disk tier's slots, in memory and in the table on disk.
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/tier/disk_store.h"
#include "runtime/tier/tier_files.h"
#include "runtime/tier/tier_opening.h"
#include "runtime/tier/tier_table.h"

namespace quire {

// All functions may be called on any thread, except for read_more(): only one thread may call read_more(). disk_store.h explains the states
// of a slot.
class DiskSlots {
 public:
  DiskSlots(TierFiles& files, const OpenedTier& tier);
  DiskSlots(const DiskSlots&) = delete;
  DiskSlots& operator=(const DiskSlots&) = delete;

  [[nodiscard]] const TierHeader& header() const { return header_; }
  [[nodiscard]] std::uint32_t num_places() const { return static_cast<std::uint32_t>(places_.size()); }
  // Reads the next part of the table. Returns false if the whole table was read before this call.
  bool read_more();

  // Claims the job's slot for a store. Returns false if another store or a load uses the slot. Each successful claim must be followed by
  // end_store() or end_load().
  bool claim_to_store(const TierJob& job, const Checksum& checksum);
  // Claims the job's slot for a load. Returns the checksum of the stored block; nullopt if the slot is empty or holds another block.
  std::optional<Checksum> claim_to_load(const TierJob& job);
  // Returns whether the block is stored.
  bool end_store(const TierJob& job, bool is_written);
  void end_load(const TierJob& job, bool is_read, bool is_good);

  void count_submitted(const TierJob& job);
  void count_finished(const TierJob& job, TierOutcome outcome);
  [[nodiscard]] DiskStoreStats stats() const;

  std::uint32_t restored(std::uint32_t first, std::vector<RestoredBlock>& into) const;
  [[nodiscard]] std::optional<RestoredBlock> next_held_block(std::uint32_t first) const;

 private:
  // See disk_store.h. No load begins while a slot is `storing`.
  enum class SlotState : std::uint8_t { unread, empty, storing, held };
  // The content of a slot. A tier may have millions of slots.
  struct Place {
    TierEntry entry;  // valid in the states storing and held
    std::uint32_t num_loads = 0;
    SlotState state = SlotState::unread;
    bool is_restored = false;  // held since before this store was opened
  };

  [[nodiscard]] RestoredBlock block_at(std::uint32_t place) const;
  // Overwrites the slot's table entry with zeros. If the write fails, the next opening of the folder finds the old entry, and a load
  // verifies its bytes.
  void clear_entry(std::uint32_t place);
  void count_loading(std::int32_t by);

  const TierHeader header_;
  std::mutex files_mutex_;  // never held together with mutex_
  TierFiles& files_;

  mutable std::mutex mutex_;
  std::vector<Place> places_;
  std::uint32_t num_read_ = 0;  // slots read from the table
  std::uint64_t sequence_;
  DiskStoreStats stats_;
  std::int32_t num_loading_ = 0;  // loads from submission to end
  std::chrono::steady_clock::time_point loading_since_;
};

}  // namespace quire
