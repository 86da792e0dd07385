// States of a transfer, and what moves it between them:
//   open  start()
//   over  the end of its last block (store's thread); timeout (watch()); wait() for a store (cancels_late_stores); detach()
// The thread that leads the step calls start(), poll() and wait(). The store's threads call on_block_done(). watch() has a private thread.
// A thread that needs both locks takes the transfer's first, then the transport's. Once a transfer is over, no thread of the store accesses
// the KV cache for it. A step can therefore continue while a disk hangs.
#include "runtime/tier/store_transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"
#include "base/seconds.h"

namespace quire {

using SteadyClock = std::chrono::steady_clock;

struct StoreTransport::PendingTransfer {
  TransferId id;
  TransferDirection direction = TransferDirection::load;
  std::uint32_t group = 0;
  std::vector<BlockId> blocks;
  SteadyClock::time_point begin;

  std::mutex mutex;  // held while blocks are copied, so that no copy runs after the transfer's end; taken before the transport's
  bool is_over = false;
  std::size_t num_left = 0;
  std::uint64_t bytes = 0;
  std::vector<bool> is_bad;

  // Copies the pages of a block to the store's buffer, or back. Returns false if the transfer is over.
  bool copy(const KvPages& pages, std::size_t index, std::span<std::byte> bytes_of_block) {
    const std::lock_guard lock(mutex);
    if (is_over) return false;
    const std::size_t num_tensors = pages.layout->groups[group].layers.size();
    for (std::uint32_t tensor = 0; tensor < num_tensors; ++tensor) {
      const std::span<std::byte> page = pages.page(tensor, blocks[index]);
      const std::span<std::byte> part = bytes_of_block.first(page.size());
      const bool is_store = direction == TransferDirection::store;
      std::memcpy(is_store ? part.data() : page.data(), is_store ? page.data() : part.data(), page.size());
      bytes_of_block = bytes_of_block.subspan(page.size());
    }
    return true;
  }
};

StoreTransport::StoreTransport(std::shared_ptr<BlockStore> store, double timeout_seconds, bool cancels_late_stores,
                               std::optional<double> store_timeout_seconds)
    : store_(std::move(store)),
      timeout_{steady_seconds(timeout_seconds), steady_seconds(store_timeout_seconds.value_or(timeout_seconds))},
      cancels_late_stores_(cancels_late_stores),
      assigned_(store_->num_places()) {}

StoreTransport::~StoreTransport() {
  if (watch_.joinable()) detach();
}

std::uint64_t StoreTransport::assign(std::uint32_t place, const OffloadKey& name) {
  const std::lock_guard lock(mutex_);
  Assigned& assigned = assigned_[place];
  assigned.name = name;
  ++assigned.generation;
  return std::uint64_t{assigned.generation} << 32U | place;
}

bool StoreTransport::find(std::uint64_t number, std::uint32_t& place, OffloadKey& name) const {
  place = static_cast<std::uint32_t>(number);
  const std::lock_guard lock(mutex_);
  QUIRE_CHECK(place < assigned_.size(), "the slot of a transfer exists");
  name = assigned_[place].name;
  return assigned_[place].generation == number >> 32U;
}

void StoreTransport::attach(const KvPages& pages, std::function<void()> notify) {
  QUIRE_CHECK(!watch_.joinable(), "a transport is attached once");
  for (std::size_t group = 0; group < pages.layout->groups.size(); ++group)
    QUIRE_CHECK(pages.layout->group_block_bytes(group) <= store_->block_bytes(),
                "a slot of the store is large enough for a block of each group");
  pages_ = pages;
  notify_ = std::move(notify);
  {
    const std::lock_guard lock(pages_mutex_);
    is_attached_ = true;
  }
  watch_ = std::thread([this] { watch(); });
}

bool StoreTransport::read_block(std::uint32_t group, BlockId block, std::span<std::byte> into) const {
  const std::lock_guard lock(pages_mutex_);
  if (!is_attached_) return false;
  QUIRE_CHECK(into.size() == pages_.layout->group_block_bytes(group), "the buffer has the size of the block");
  for (std::uint32_t tensor = 0; tensor < pages_.layout->groups[group].layers.size(); ++tensor) {
    const std::span<std::byte> page = pages_.page(tensor, block);
    std::memcpy(into.data(), page.data(), page.size());
    into = into.subspan(page.size());
  }
  return true;
}

void StoreTransport::start(const Transfer& transfer) {
  QUIRE_CHECK(!transfer.blocks.empty(), "a transfer has at least one block");
  auto pending = std::make_shared<PendingTransfer>();
  pending->id = transfer.id;
  pending->direction = transfer.direction;
  pending->group = transfer.group;
  pending->blocks.assign(transfer.blocks.begin(), transfer.blocks.end());
  pending->begin = SteadyClock::now();
  pending->num_left = transfer.blocks.size();
  pending->is_bad.resize(transfer.blocks.size());
  {
    const std::lock_guard lock(mutex_);
    open_[transfer.id] = pending;
  }
  for (std::size_t i = 0; i < transfer.blocks.size(); ++i) submit(pending, i, transfer.places[i]);
}

void StoreTransport::submit(const std::shared_ptr<PendingTransfer>& pending, std::size_t index, std::uint64_t number) {
  // Once the transfer is over, copy() and over() use neither this object nor the pages, because the store may outlive both.
  TierJob job{.verb = pending->direction == TransferDirection::store ? TierJob::Verb::store : TierJob::Verb::load,
              .place = 0,
              .name = {},
              .bytes = static_cast<std::uint32_t>(pages_.layout->group_block_bytes(pending->group)),
              .copy = [this, pending, index](std::span<std::byte> bytes) { return pending->copy(pages_, index, bytes); },
              .over = [this, pending, index](TierOutcome outcome) { on_block_done(pending, index, outcome); }};
  if (find(number, job.place, job.name))
    store_->submit(std::move(job));
  else
    on_block_done(pending, index, TierOutcome::absent);
}

void StoreTransport::on_block_done(const std::shared_ptr<PendingTransfer>& pending, std::size_t index, TierOutcome outcome) {
  std::unique_lock lock(pending->mutex);
  if (pending->is_over) return;
  pending->is_bad[index] = outcome != TierOutcome::done;
  if (outcome == TierOutcome::done) {
    pending->bytes += pages_.layout->group_block_bytes(pending->group);
    const std::lock_guard own(mutex_);
    // The timeout is counted from the last moved block, so that a slow disk does not count as a hanging one.
    last_progress_[static_cast<std::size_t>(pending->direction)] = SteadyClock::now();
  }
  if (--pending->num_left == 0) end(*pending, lock);
}

// Ends the transfer. The completion of a load lists the blocks that were not loaded; no caller needs such a list for a store.
void StoreTransport::end(PendingTransfer& pending, std::unique_lock<std::mutex>& lock) {
  pending.is_over = true;
  const TransferCompletion completion{
      .transfer = pending.id,
      .outcome = std::ranges::count(pending.is_bad, true) == 0 ? TransferOutcome::done : TransferOutcome::failed,
      .bytes = pending.bytes,
      .seconds = std::chrono::duration<double>(SteadyClock::now() - pending.begin).count()};
  std::vector<BlockId> bad;
  for (std::size_t i = 0; i < pending.blocks.size() && pending.direction == TransferDirection::load; ++i)
    if (pending.is_bad[i]) bad.push_back(pending.blocks[i]);
  {
    const std::lock_guard own(mutex_);
    ended_.add(completion, std::move(bad));
    open_.erase(pending.id);
    ++num_notifying_;
    changed_.notify_all();
  }
  lock.unlock();
  notify_();
  const std::lock_guard own(mutex_);
  --num_notifying_;
  changed_.notify_all();
}

void StoreTransport::cancel(const std::shared_ptr<PendingTransfer>& pending) {
  std::unique_lock lock(pending->mutex);
  if (pending->is_over) return;
  pending->is_bad.assign(pending->is_bad.size(), true);
  end(*pending, lock);
}

void StoreTransport::poll(std::vector<TransferCompletion>& over) {
  const std::lock_guard lock(mutex_);
  ended_.report(over);
}

void StoreTransport::wait(TransferId transfer) {
  std::unique_lock lock(mutex_);
  const auto found = open_.find(transfer);
  if (found == open_.end()) return;
  if (cancels_late_stores_ && found->second->direction == TransferDirection::store) {
    const std::shared_ptr<PendingTransfer> pending = found->second;
    lock.unlock();
    cancel(pending);
    lock.lock();
  }
  changed_.wait(lock, [&] { return !open_.contains(transfer); });
}

// Cancels transfers whose timeout has passed. Transfers begin in the order of their IDs, so the first open transfer of a direction is the
// oldest.
void StoreTransport::watch() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    std::shared_ptr<PendingTransfer> late;
    SteadyClock::time_point next = SteadyClock::now() + std::min(timeout_[0], timeout_[1]);
    for (const TransferDirection direction : {TransferDirection::load, TransferDirection::store}) {
      const auto oldest = std::ranges::find_if(open_, [&](const auto& one) { return one.second->direction == direction; });
      if (oldest == open_.end()) continue;
      const SteadyClock::time_point due = std::max(oldest->second->begin, last_progress_[static_cast<std::size_t>(direction)]) +
                                          timeout_[static_cast<std::size_t>(direction)];
      if (due <= SteadyClock::now()) late = oldest->second;
      next = std::min(next, due);
    }
    if (late == nullptr) {
      changed_.wait_until(lock, next);
      continue;
    }
    ++num_timed_out_[static_cast<std::size_t>(late->direction)];
    lock.unlock();
    cancel(late);
    lock.lock();
  }
}

std::uint64_t StoreTransport::num_timed_out(TransferDirection direction) const {
  const std::lock_guard lock(mutex_);
  return num_timed_out_[static_cast<std::size_t>(direction)];
}

void StoreTransport::detach() {
  {
    const std::lock_guard lock(pages_mutex_);
    is_attached_ = false;
  }
  std::vector<std::shared_ptr<PendingTransfer>> left;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_all();
    for (const auto& [id, pending] : open_) left.push_back(pending);
  }
  watch_.join();
  for (const std::shared_ptr<PendingTransfer>& pending : left) cancel(pending);
  // Waits for the callbacks: a caller that has got the last completion from poll() may destroy this object before its callback has
  // returned.
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return num_notifying_ == 0; });
}

}  // namespace quire
