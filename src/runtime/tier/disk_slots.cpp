// The state of each slot of a disk tier, in memory and in its table. Called by the threads of the two I/O workers and, for counters and
// restored blocks, on any thread. One lock guards the states, another lock the file; a thread never holds both. A slot is claimed before
// its bytes are moved and released afterwards, so a block is never read while it is written. The entry is written after the payload: after
// a crash in between, the block does not verify and is a miss.
#include "runtime/tier/disk_slots.h"

#include <algorithm>
#include <array>

namespace quire {

using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t kEntriesPerRead = 512;
constexpr std::uint32_t kMaxSlotsInspected = 4096;  // slots per call, so that the lock is held only briefly
// Bits for the sequence numbers of one opening of a folder (an incarnation): 2^40 stores. A later opening has greater numbers.
constexpr unsigned kSequenceBits = 40;  // bits per incarnation

}  // namespace

DiskSlots::DiskSlots(TierFiles& files, const OpenedTier& tier)
    : header_(tier.header), files_(files), places_(tier.num_places), sequence_(tier.header.incarnation << kSequenceBits) {}

// Treats slots whose entries cannot be read as empty.
bool DiskSlots::read_more() {
  const std::uint32_t first = num_read_;  // written by this thread only
  if (first == places_.size()) return false;
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kEntriesPerRead, places_.size() - first));
  std::array<std::byte, kEntriesPerRead * kEntryBytes> bytes;
  bool is_read = false;
  {
    const std::lock_guard lock(files_mutex_);
    is_read = files_.read_table(entry_offset(first), std::span(bytes).first(count * kEntryBytes)).has_value();
  }
  const std::lock_guard lock(mutex_);
  for (std::uint32_t i = 0; i < count; ++i) {
    Place& place = places_[first + i];
    if (place.state != SlotState::unread) continue;
    const std::span<const std::byte> entry = std::span(bytes).subspan(i * kEntryBytes, kEntryBytes);
    const EntryState state = is_read ? decode_entry(entry, header_, first + i, place.entry) : EntryState::damaged;
    place.is_restored = state == EntryState::good;
    place.state = place.is_restored ? SlotState::held : SlotState::empty;
    stats_.num_restored += place.is_restored ? 1 : 0;
    stats_.num_entries_refused += state == EntryState::damaged ? 1 : 0;
  }
  num_read_ += count;
  return true;
}

bool DiskSlots::claim_to_store(const TierJob& job, const Checksum& checksum) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[job.place];
  if (place.state == SlotState::storing || place.num_loads > 0) return false;
  place = {.entry = {.sequence = ++sequence_, .name = job.name, .bytes = job.bytes, .checksum = checksum},
           .num_loads = 0,
           .state = SlotState::storing,
           .is_restored = false};
  return true;
}

std::optional<Checksum> DiskSlots::claim_to_load(const TierJob& job) {
  const std::lock_guard lock(mutex_);
  Place& place = places_[job.place];
  if (place.state != SlotState::held || place.entry.name != job.name || place.entry.bytes != job.bytes) return std::nullopt;
  ++place.num_loads;
  return place.entry.checksum;
}

// Writes the entry after its payload. After a crash between the two writes, the slot's previous entry does not match the new payload and is
// refused.
bool DiskSlots::end_store(const TierJob& job, bool is_written) {
  bool is_stored = false;
  if (is_written) {
    TierEntry entry;
    {
      const std::lock_guard lock(mutex_);
      entry = places_[job.place].entry;
    }
    std::array<std::byte, kEntryBytes> bytes;
    encode_entry(entry, header_, job.place, bytes);
    const std::lock_guard lock(files_mutex_);
    is_stored = files_.write_table(entry_offset(job.place), bytes).has_value();
  }
  if (!is_stored) clear_entry(job.place);
  const std::lock_guard lock(mutex_);
  places_[job.place].state = is_stored ? SlotState::held : SlotState::empty;
  return is_stored;
}

void DiskSlots::end_load(const TierJob& job, bool is_read, bool is_good) {
  {
    const std::lock_guard lock(mutex_);
    Place& place = places_[job.place];
    stats_.num_read += is_read ? 1 : 0;
    stats_.bytes_read += is_read ? job.bytes : 0;
    const bool is_lost = is_read && !is_good && place.state == SlotState::held;
    if (!is_lost) {
      --place.num_loads;
      return;
    }
    place.state = SlotState::empty;  // num_loads stays above 0 until the entry is cleared, so no store claims the slot
  }
  clear_entry(job.place);
  const std::lock_guard lock(mutex_);
  --places_[job.place].num_loads;
}

void DiskSlots::clear_entry(std::uint32_t place) {
  const std::array<std::byte, kEntryBytes> zeros{};
  const std::lock_guard lock(files_mutex_);
  static_cast<void>(files_.write_table(entry_offset(place), zeros));
}

void DiskSlots::count_submitted(const TierJob& job) {
  const std::lock_guard lock(mutex_);
  if (job.verb == TierJob::Verb::load) count_loading(1);
}

void DiskSlots::count_finished(const TierJob& job, TierOutcome outcome) {
  const std::lock_guard lock(mutex_);
  const bool is_store = job.verb == TierJob::Verb::store;
  if (!is_store) count_loading(-1);
  if (outcome == TierOutcome::done) {
    ++(is_store ? stats_.num_stored : stats_.num_loaded);
    (is_store ? stats_.bytes_stored : stats_.bytes_loaded) += job.bytes;
  }
  stats_.num_absent += outcome == TierOutcome::absent ? 1 : 0;
  stats_.num_refused += outcome == TierOutcome::refused ? 1 : 0;
  if (outcome == TierOutcome::failed) ++(is_store ? stats_.num_failed_stores : stats_.num_failed_loads);
  stats_.num_cancelled += outcome == TierOutcome::cancelled ? 1 : 0;
}

void DiskSlots::count_loading(std::int32_t by) {
  const SteadyClock::time_point now = SteadyClock::now();
  if (num_loading_ > 0) stats_.loading_s += std::chrono::duration<double>(now - loading_since_).count();
  loading_since_ = now;
  num_loading_ += by;
}

DiskStoreStats DiskSlots::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

RestoredBlock DiskSlots::block_at(std::uint32_t place) const {
  const TierEntry& entry = places_[place].entry;
  return {.place = place, .bytes = entry.bytes, .name = entry.name, .sequence = entry.sequence};
}

std::uint32_t DiskSlots::restored(std::uint32_t first, std::vector<RestoredBlock>& into) const {
  const std::lock_guard lock(mutex_);
  const std::uint32_t end = std::max(first, std::min(first + kMaxSlotsInspected, num_read_));
  for (std::uint32_t i = first; i < end; ++i)
    if (places_[i].state == SlotState::held && places_[i].is_restored) into.push_back(block_at(i));
  return end;
}

std::optional<RestoredBlock> DiskSlots::next_held_block(std::uint32_t first) const {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < std::min<std::size_t>(places_.size(), kMaxSlotsInspected); ++i) {
    const auto place = static_cast<std::uint32_t>((first + i) % places_.size());
    if (places_[place].state == SlotState::held) return block_at(place);
  }
  return std::nullopt;
}

}  // namespace quire
