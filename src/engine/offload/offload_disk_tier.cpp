// The folder below host memory, for vLLM's offloading connector. Two threads share one mutex. The host's thread assigns slots and requests
// blocks. This object's private thread checks every few milliseconds which slots all workers have filled, and begins to write them. The
// store's threads move the bytes. Other processes change the memory; only the numbers that they write show that they have done so
// (is_copied()).
#include "engine/offload/offload_disk_tier.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace quire {
namespace {

constexpr double kDiskTimeout_s = 5.0;  // a transfer fails if the disk moves no bytes for this time
constexpr std::chrono::milliseconds kWriteInterval(5), kHealthCheckInterval(250);
constexpr std::uint32_t kMaxWritesInFlight = 64;  // blocks in flight to the folder
constexpr std::size_t kMaxScannedPerTurn = 1024;  // waiting blocks that are checked per turn, so that the mutex is held only briefly

KvLayout layout_of(const TieredOffloadOptions& options, std::uint32_t num_slots) {
  KvLayout layout;
  layout.num_blocks = num_slots;
  layout.groups.resize(1);
  layout.groups[0].layers.resize(options.pages.size());
  std::iota(layout.groups[0].layers.begin(), layout.groups[0].layers.end(), 0U);
  for (const HostPages& pages : options.pages) layout.page_bytes.push_back(pages.page_bytes);
  return layout;
}

}  // namespace

Result<std::unique_ptr<OffloadDiskTier>> OffloadDiskTier::open(std::unique_ptr<TierFiles> files, const TieredOffloadOptions& options,
                                                               std::uint32_t num_slots) {
  std::uint64_t block_bytes = 0;
  for (const HostPages& pages : options.pages) block_bytes += pages.page_bytes;
  if (block_bytes == 0)
    return fail(ErrorCode::invalid_argument, "pages", "a block has a size of 0 bytes", "pass the tensors of all workers");
  auto store = DiskStore::open(std::move(files), {.budget_bytes = options.budget_bytes,
                                                  .block_bytes = block_bytes,
                                                  .fingerprint = options.fingerprint,
                                                  .bytes_per_second = options.bytes_per_second,
                                                  .yields_cores = true});
  if (!store) return std::unexpected(std::move(store.error()));
  std::unique_ptr<OffloadDiskTier> disk(new OffloadDiskTier(*std::move(store), options, num_slots));
  // Started last, because the thread uses all other members.
  disk->thread_ = std::thread([&one = *disk] { one.run(); });
  return disk;
}

OffloadDiskTier::OffloadDiskTier(std::shared_ptr<DiskStore> store, const TieredOffloadOptions& options, std::uint32_t num_slots)
    : store_(std::move(store)),
      block_bytes_(static_cast<std::uint32_t>(store_->block_bytes())),
      written_(options.written),
      layout_(layout_of(options, num_slots)),
      transport_(store_, kDiskTimeout_s, true),
      monitor_(store_, transport_, options.folder),
      slots_(num_slots),
      // Numbers start at the current time, so that numbers used earlier for the same memory do not occur again.
      last_number_(static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())) {
  KvPages pages{.layout = &layout_, .tensors = {}};
  for (const HostPages& one : options.pages) pages.tensors.push_back(one.begin);
  transport_.attach(pages, [] {});
}

OffloadDiskTier::~OffloadDiskTier() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  transport_.detach();
}

std::uint64_t OffloadDiskTier::expect(OffloadSlot slot, const OffloadKey& key) {
  const std::lock_guard lock(mutex_);
  Slot& one = slots_[slot.value];
  leave(one);
  one = {.key = key, .number = ++last_number_, .write = {}, .awaits_copy = true};
  waiting_.push_back({slot.value, one.number});
  if (waiting_.size() == 1) changed_.notify_all();
  return one.number;
}

// Called when the slot's block leaves host memory. Cancels a write of the block that is in flight, which would otherwise read the slot's
// next block.
void OffloadDiskTier::leave(Slot& slot) {
  const bool is_pending = slot.awaits_copy || slot.write.value != 0;
  if (slot.write.value != 0) {
    transport_.wait(slot.write);
    take_over();
  }
  if (is_pending && !index_.contains(slot.key)) ++num_dropped_;
}

bool OffloadDiskTier::can_promote(const OffloadKey& key) const {
  if (!monitor_.service().loads) return false;
  const std::lock_guard lock(mutex_);
  return index_.contains(key);
}

bool OffloadDiskTier::bring_up(const OffloadKey& key, OffloadSlot slot) {
  const std::lock_guard lock(mutex_);
  Slot& one = slots_[slot.value];
  const std::optional<std::uint32_t> place = index_.find(key);
  if (!place || (one.number != 0 && !is_copied(slot.value, one.number))) return false;
  leave(one);
  one = {.key = key, .number = one.number, .write = {}, .awaits_copy = false};
  start({.key = key, .slot = slot.value, .place = *place, .is_load = true}, TransferDirection::load);
  ++num_promoting_;
  return true;
}

void OffloadDiskTier::take_promoted(std::vector<PromotedBlock>& arrived) {
  if (num_promoting_ == 0) return;
  const std::lock_guard lock(mutex_);
  take_over();
  num_promoting_ -= static_cast<std::uint32_t>(promoted_.size());
  arrived.insert(arrived.end(), promoted_.begin(), promoted_.end());
  promoted_.clear();
}

void OffloadDiskTier::touch(std::span<const OffloadKey> keys) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = keys.size(); i-- > 0;) static_cast<void>(index_.find(keys[i]));
}

TransferId OffloadDiskTier::start(const OpenTransfer& moving, TransferDirection direction) {
  const TransferId id{++last_transfer_};
  open_transfers_.emplace(id.value, moving);
  const BlockId block{moving.slot};
  const std::uint64_t number = transport_.assign(moving.place, moving.key);
  transport_.start({.id = id, .request = {}, .direction = direction, .blocks = {&block, 1}, .places = {&number, 1}});
  return id;
}

// Handles transfers that have ended. The mutex must be held. A block that could not be read is removed from the index, so it is a miss from
// now on.
void OffloadDiskTier::take_over() {
  over_.clear();
  transport_.poll(over_);
  for (const TransferCompletion& one : over_) {
    const auto found = open_transfers_.find(one.transfer.value);
    const OpenTransfer moving = found->second;
    open_transfers_.erase(found);
    const bool is_done = one.outcome == TransferOutcome::done;
    if (moving.is_load) {
      // Removes the block only if it has not been written to another slot of the store meanwhile.
      if (!is_done && index_.slot_of(moving.key) == moving.place) index_.forget(moving.key);
      promoted_.push_back({moving.key, is_done});
      continue;
    }
    --num_writing_;
    Slot& slot = slots_[moving.slot];
    if (slot.write == one.transfer) slot.write = {};
    is_done ? index_.stored(moving.key, moving.place) : index_.release(moving.place);
  }
}

bool OffloadDiskTier::is_copied(std::uint32_t slot, std::uint64_t number) const {
  return std::ranges::all_of(written_,
                             [&](const std::uint64_t* of_worker) { return __atomic_load_n(of_worker + slot, __ATOMIC_ACQUIRE) == number; });
}

// Begins writes. The mutex must be held. A block that a worker has not copied yet moves to the end of the queue.
void OffloadDiskTier::write_some() {
  for (std::size_t left = std::min(waiting_.size(), kMaxScannedPerTurn); left > 0 && num_writing_ < kMaxWritesInFlight; --left) {
    const Waiting next = waiting_.front();
    Slot& slot = slots_[next.slot];
    const bool is_current = slot.number == next.number && slot.awaits_copy;
    if (is_current && !is_copied(next.slot, next.number)) {
      waiting_.pop_front();
      waiting_.push_back(next);
      continue;
    }
    if (is_current && !index_.find(slot.key)) {
      const std::optional<std::uint32_t> place = index_.take();
      if (!place) return;
      write(next.slot, *place);
    }
    if (is_current) slot.awaits_copy = false;
    waiting_.pop_front();
  }
}

void OffloadDiskTier::write(std::uint32_t slot, std::uint32_t place) {
  ++num_writing_;
  slots_[slot].write = start({.key = slots_[slot].key, .slot = slot, .place = place, .is_load = false}, TransferDirection::store);
}

void OffloadDiskTier::run() {
  find_restored();
  const auto begin = std::chrono::steady_clock::now();
  auto next_watch = begin;
  std::unique_lock lock(mutex_);
  while (!stops_) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_watch) {
      next_watch = now + kHealthCheckInterval;
      lock.unlock();
      static_cast<void>(monitor_.look(std::chrono::duration<double>(now - begin).count()));
      lock.lock();
    }
    take_over();
    if (monitor_.service().stores) write_some();
    const bool is_busy = !waiting_.empty() || num_writing_ > 0;
    changed_.wait_for(lock, is_busy ? kWriteInterval : kHealthCheckInterval);
  }
}

// Reads the store's table of restored blocks, which the store reads in parts. Drops blocks of another size, although the fingerprint should
// have excluded them.
void OffloadDiskTier::find_restored() {
  std::vector<RestoredBlock> found;
  for (std::uint32_t known = 0; known < store_->num_places();) {
    found.clear();
    const std::uint32_t before = std::exchange(known, store_->restored(known, found));
    if (known == before) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::erase_if(found, [this](const RestoredBlock& block) { return block.bytes != block_bytes_; });
    const std::lock_guard lock(mutex_);
    if (stops_) return;
    if (known != before) index_.add_restored(known, found);
  }
}

TieredOffloadStats OffloadDiskTier::stats() const {
  const DiskStoreStats store = store_->stats();
  const TierService service = monitor_.service();
  const std::lock_guard lock(mutex_);
  return {.num_places = store_->num_places(),
          .num_held = static_cast<std::uint32_t>(index_.size()),
          .num_restored = store.num_restored,
          .num_written = store.num_stored,
          .bytes_written = store.bytes_stored,
          .num_read = store.num_loaded,
          .bytes_read = store.bytes_loaded,
          .reading_s = store.loading_s,
          .num_refused = store.num_refused + store.num_entries_refused,
          .num_failed =
              store.num_failed() + transport_.num_timed_out(TransferDirection::load) + transport_.num_timed_out(TransferDirection::store),
          .num_dropped = num_dropped_,
          .loads_left_out = !service.loads,
          .stores_left_out = !service.stores};
}

}  // namespace quire
