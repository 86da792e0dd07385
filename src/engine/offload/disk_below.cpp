// The disk below a host's memory, for vLLM's offloading. Two threads meet here under one mutex: the host's, which gives out slots and asks
// for blocks, and this object's own, which looks every few milliseconds for slots that all workers have filled and begins to write them.
// Bytes are moved by neither of them but by the store's threads. What other processes do to the memory shows in nothing but the numbers
// that they write (is_copied()).
#include "engine/offload/disk_below.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

namespace quire {
namespace {

constexpr double kDiskPatience_s = 5.0;  // of a disk that moves nothing
constexpr std::chrono::milliseconds kBetweenWrites(5), kBetweenWatches(250);
constexpr std::uint32_t kMostWriting = 64;     // blocks under way to the folder
constexpr std::size_t kLookedAtAtOnce = 1024;  // of those that wait, so that the mutex is held for a moment only

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

Result<std::unique_ptr<DiskBelow>> DiskBelow::open(std::unique_ptr<TierFiles> files, const TieredOffloadOptions& options,
                                                   std::uint32_t num_slots) {
  std::uint64_t block_bytes = 0;
  for (const HostPages& pages : options.pages) block_bytes += pages.page_bytes;
  if (block_bytes == 0) return fail(ErrorCode::invalid_argument, "pages", "a block has no bytes", "give the tensors of all workers");
  auto store = DiskStore::open(std::move(files), {.budget_bytes = options.budget_bytes,
                                                  .block_bytes = block_bytes,
                                                  .fingerprint = options.fingerprint,
                                                  .bytes_per_second = options.bytes_per_second,
                                                  .gives_way = true});
  if (!store) return std::unexpected(std::move(store.error()));
  std::unique_ptr<DiskBelow> disk(new DiskBelow(*std::move(store), options, num_slots));
  // Last: it uses all the others.
  disk->thread_ = std::thread([&one = *disk] { one.run(); });
  return disk;
}

DiskBelow::DiskBelow(std::shared_ptr<DiskStore> store, const TieredOffloadOptions& options, std::uint32_t num_slots)
    : store_(std::move(store)),
      block_bytes_(static_cast<std::uint32_t>(store_->block_bytes())),
      written_(options.written),
      layout_(layout_of(options, num_slots)),
      transport_(store_, kDiskPatience_s, true),
      watch_(store_, transport_, options.folder),
      slots_(num_slots),
      // What was given out for this memory before is none of the numbers from here on.
      last_number_(static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count())) {
  KvPages pages{.layout = &layout_, .tensors = {}};
  for (const HostPages& one : options.pages) pages.tensors.push_back(one.begin);
  transport_.attach(pages, [] {});
}

DiskBelow::~DiskBelow() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  transport_.detach();
}

std::uint64_t DiskBelow::expect(OffloadSlot slot, const OffloadKey& key) {
  const std::lock_guard lock(mutex_);
  Slot& one = slots_[slot.value];
  leave(one);
  one = {.key = key, .number = ++last_number_, .write = {}, .is_awaited = true};
  waiting_.push_back({slot.value, one.number});
  if (waiting_.size() == 1) changed_.notify_all();
  return one.number;
}

// The slot's block is gone from host memory: a write of it must not read what comes next.
void DiskBelow::leave(Slot& slot) {
  const bool is_pending = slot.is_awaited || slot.write.value != 0;
  if (slot.write.value != 0) {
    transport_.wait(slot.write);
    take_over();
  }
  if (is_pending && !index_.contains(slot.key)) ++num_dropped_;
}

bool DiskBelow::can_bring(const OffloadKey& key) const {
  if (!watch_.service().loads) return false;
  const std::lock_guard lock(mutex_);
  return index_.contains(key);
}

bool DiskBelow::bring_up(const OffloadKey& key, OffloadSlot slot) {
  const std::lock_guard lock(mutex_);
  Slot& one = slots_[slot.value];
  const std::optional<std::uint32_t> place = index_.find(key);
  if (!place || (one.number != 0 && !is_copied(slot.value, one.number))) return false;
  leave(one);
  one = {.key = key, .number = one.number, .write = {}, .is_awaited = false};
  start({.key = key, .slot = slot.value, .place = *place, .is_load = true}, TransferDirection::load);
  ++num_coming_;
  return true;
}

void DiskBelow::take_arrived(std::vector<Arrived>& arrived) {
  if (num_coming_ == 0) return;
  const std::lock_guard lock(mutex_);
  take_over();
  num_coming_ -= static_cast<std::uint32_t>(arrived_.size());
  arrived.insert(arrived.end(), arrived_.begin(), arrived_.end());
  arrived_.clear();
}

void DiskBelow::touch(std::span<const OffloadKey> keys) {
  const std::lock_guard lock(mutex_);
  for (std::size_t i = keys.size(); i-- > 0;) static_cast<void>(index_.find(keys[i]));
}

TransferId DiskBelow::start(const Moving& moving, TransferDirection direction) {
  const TransferId id{++last_transfer_};
  moving_.emplace(id.value, moving);
  const BlockId block{moving.slot};
  const std::uint64_t number = transport_.assign(moving.place, moving.key);
  transport_.start({.id = id, .request = {}, .direction = direction, .blocks = {&block, 1}, .places = {&number, 1}});
  return id;
}

// With the mutex. A block that could not be read is forgotten: it is a miss from now on.
void DiskBelow::take_over() {
  over_.clear();
  transport_.poll(over_);
  for (const TransferCompletion& one : over_) {
    const auto found = moving_.find(one.transfer.value);
    const Moving moving = found->second;
    moving_.erase(found);
    const bool is_done = one.outcome == TransferOutcome::done;
    if (moving.is_load) {
      // It may have been written anew, elsewhere, in the meantime.
      if (!is_done && index_.place_of(moving.key) == moving.place) index_.forget(moving.key);
      arrived_.push_back({moving.key, is_done});
      continue;
    }
    --num_writing_;
    Slot& slot = slots_[moving.slot];
    if (slot.write == one.transfer) slot.write = {};
    is_done ? index_.stored(moving.key, moving.place) : index_.give_back(moving.place);
  }
}

bool DiskBelow::is_copied(std::uint32_t slot, std::uint64_t number) const {
  return std::ranges::all_of(written_,
                             [&](const std::uint64_t* of_worker) { return __atomic_load_n(of_worker + slot, __ATOMIC_ACQUIRE) == number; });
}

// With the mutex. What no worker has copied yet waits behind the others.
void DiskBelow::write_some() {
  for (std::size_t left = std::min(waiting_.size(), kLookedAtAtOnce); left > 0 && num_writing_ < kMostWriting; --left) {
    const Waiting next = waiting_.front();
    Slot& slot = slots_[next.slot];
    const bool is_current = slot.number == next.number && slot.is_awaited;
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
    if (is_current) slot.is_awaited = false;
    waiting_.pop_front();
  }
}

void DiskBelow::write(std::uint32_t slot, std::uint32_t place) {
  ++num_writing_;
  slots_[slot].write = start({.key = slots_[slot].key, .slot = slot, .place = place, .is_load = false}, TransferDirection::store);
}

void DiskBelow::run() {
  find_restored();
  const auto begin = std::chrono::steady_clock::now();
  auto next_watch = begin;
  std::unique_lock lock(mutex_);
  while (!stops_) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= next_watch) {
      next_watch = now + kBetweenWatches;
      lock.unlock();
      static_cast<void>(watch_.look(std::chrono::duration<double>(now - begin).count()));
      lock.lock();
    }
    take_over();
    if (watch_.service().stores) write_some();
    const bool is_busy = !waiting_.empty() || num_writing_ > 0;
    changed_.wait_for(lock, is_busy ? kBetweenWrites : kBetweenWatches);
  }
}

// The store reads its table in parts. Blocks of another size are none of ours; the fingerprint should have kept them out.
void DiskBelow::find_restored() {
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

TieredOffloadStats DiskBelow::stats() const {
  const DiskStoreStats store = store_->stats();
  const TierService service = watch_.service();
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
          .num_failed = store.num_failed() + transport_.num_late(TransferDirection::load) + transport_.num_late(TransferDirection::store),
          .num_dropped = num_dropped_,
          .loads_left_out = !service.loads,
          .stores_left_out = !service.stores};
}

}  // namespace quire
