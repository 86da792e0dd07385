#pragma once
// What a disk tier's places hold: the table in memory, and on disk.
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

// Any thread may call it, but for read_more(), which is one thread's. States of a place: disk_store.h.
class DiskPlaces {
 public:
  DiskPlaces(TierFiles& files, const OpenedTier& tier);
  DiskPlaces(const DiskPlaces&) = delete;
  DiskPlaces& operator=(const DiskPlaces&) = delete;

  [[nodiscard]] const TierHeader& header() const { return header_; }
  [[nodiscard]] std::uint32_t num_places() const { return static_cast<std::uint32_t>(places_.size()); }
  // A part of the table is read; false: there was none left.
  bool read_more();

  // false: the place is in use. Each that is true ends with end_store(), each load with end_load().
  bool claim_to_store(const TierJob& job, const Checksum& checksum);
  // The checksum of what was stored there; nullopt: something else was, or nothing.
  std::optional<Checksum> claim_to_load(const TierJob& job);
  // Whether the block is stored.
  bool end_store(const TierJob& job, bool is_written);
  void end_load(const TierJob& job, bool is_read, bool is_good);

  void count_coming(const TierJob& job);
  void count_end(const TierJob& job, TierOutcome outcome);
  [[nodiscard]] DiskStoreStats stats() const;

  std::uint32_t restored(std::uint32_t first, std::vector<RestoredBlock>& into) const;
  [[nodiscard]] std::optional<RestoredBlock> held_from(std::uint32_t first) const;

 private:
  // See disk_store.h. `storing` also keeps loads away.
  enum class PlaceState : std::uint8_t { unread, empty, storing, held };
  // One for each place, of which a tier may have millions.
  struct Place {
    TierEntry entry;  // storing, held
    std::uint32_t num_loads = 0;
    PlaceState state = PlaceState::unread;
    bool is_restored = false;  // held since before this store was opened
  };

  [[nodiscard]] RestoredBlock block_at(std::uint32_t place) const;
  // As well as the disk can: what stays names bytes that do not verify.
  void clear_entry(std::uint32_t place);
  void count_loading(std::int32_t by);

  const TierHeader header_;
  std::mutex files_mutex_;  // none is taken while the other is held
  TierFiles& files_;

  mutable std::mutex mutex_;
  std::vector<Place> places_;
  std::uint32_t num_read_ = 0;  // places whose entries were read
  std::uint64_t sequence_;
  DiskStoreStats stats_;
  std::int32_t num_loading_ = 0;  // from their coming to their end
  std::chrono::steady_clock::time_point loading_since_;
};

}  // namespace quire
