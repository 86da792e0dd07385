// States of a transfer, and who moves it between them:
//   open  start()
//   over  its last block (the store's thread); the watch, when it takes too long; wait(), of a store; detach()
// start(), poll() and wait() come from the thread that leads the step, block_over() from the store's threads, the watch has its own. Locks
// are taken in one order: a transfer's, then the transport's. Once a transfer is over, no thread of the store touches the KV cache for it:
// that is what lets a step go on beside a disk that hangs.
#include "runtime/tier/store_transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace quire {

using SteadyClock = std::chrono::steady_clock;

namespace {

SteadyClock::duration steady_seconds(double seconds) {
  return std::chrono::duration_cast<SteadyClock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

struct StoreTransport::Moving {
  TransferId id;
  TransferDirection direction = TransferDirection::load;
  std::uint32_t group = 0;
  std::vector<BlockId> blocks;
  SteadyClock::time_point begin;

  std::mutex mutex;  // held while blocks are copied, so that none is once the transfer is over; before the transport's
  bool is_over = false;
  std::size_t num_left = 0;
  std::uint64_t bytes = 0;
  std::vector<bool> is_bad;

  // Between the pages of a block and what the store has of it. false: too late.
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

StoreTransport::StoreTransport(std::shared_ptr<BlockStore> store, double patience_seconds, bool gives_up_stores,
                               std::optional<double> store_patience_seconds)
    : store_(std::move(store)),
      patience_{steady_seconds(patience_seconds), steady_seconds(store_patience_seconds.value_or(patience_seconds))},
      gives_up_stores_(gives_up_stores),
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
  QUIRE_CHECK(place < assigned_.size(), "a connector names places that it was given");
  name = assigned_[place].name;
  return assigned_[place].generation == number >> 32U;
}

void StoreTransport::attach(const KvPages& pages, std::function<void()> notify) {
  QUIRE_CHECK(!watch_.joinable(), "attached once");
  for (std::size_t group = 0; group < pages.layout->groups.size(); ++group)
    QUIRE_CHECK(pages.layout->group_block_bytes(group) <= store_->block_bytes(), "the store was opened for smaller blocks");
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
  QUIRE_CHECK(into.size() == pages_.layout->group_block_bytes(group), "room for the block");
  for (std::uint32_t tensor = 0; tensor < pages_.layout->groups[group].layers.size(); ++tensor) {
    const std::span<std::byte> page = pages_.page(tensor, block);
    std::memcpy(into.data(), page.data(), page.size());
    into = into.subspan(page.size());
  }
  return true;
}

void StoreTransport::start(const Transfer& transfer) {
  QUIRE_CHECK(!transfer.blocks.empty(), "a transfer of nothing");
  auto moving = std::make_shared<Moving>();
  moving->id = transfer.id;
  moving->direction = transfer.direction;
  moving->group = transfer.group;
  moving->blocks.assign(transfer.blocks.begin(), transfer.blocks.end());
  moving->begin = SteadyClock::now();
  moving->num_left = transfer.blocks.size();
  moving->is_bad.resize(transfer.blocks.size());
  {
    const std::lock_guard lock(mutex_);
    open_[transfer.id] = moving;
  }
  for (std::size_t i = 0; i < transfer.blocks.size(); ++i) submit(moving, i, transfer.places[i]);
}

void StoreTransport::submit(const std::shared_ptr<Moving>& moving, std::size_t index, std::uint64_t number) {
  // Once the transfer is over, these touch neither this object nor the pages: the store may outlive both.
  TierJob job{.verb = moving->direction == TransferDirection::store ? TierJob::Verb::store : TierJob::Verb::load,
              .place = 0,
              .name = {},
              .bytes = static_cast<std::uint32_t>(pages_.layout->group_block_bytes(moving->group)),
              .copy = [this, moving, index](std::span<std::byte> bytes) { return moving->copy(pages_, index, bytes); },
              .over = [this, moving, index](TierOutcome outcome) { block_over(moving, index, outcome); }};
  if (find(number, job.place, job.name))
    store_->submit(std::move(job));
  else
    block_over(moving, index, TierOutcome::absent);
}

void StoreTransport::block_over(const std::shared_ptr<Moving>& moving, std::size_t index, TierOutcome outcome) {
  std::unique_lock lock(moving->mutex);
  if (moving->is_over) return;
  moving->is_bad[index] = outcome != TierOutcome::done;
  if (outcome == TierOutcome::done) {
    moving->bytes += pages_.layout->group_block_bytes(moving->group);
    const std::lock_guard own(mutex_);
    // Patience counts from the last block that moved, so a slow disk is not a dead one.
    moved_[static_cast<std::size_t>(moving->direction)] = SteadyClock::now();
  }
  if (--moving->num_left == 0) end(*moving, lock);
}

// Of a load, blocks that did not come are named; of a store nobody asks which.
void StoreTransport::end(Moving& moving, std::unique_lock<std::mutex>& lock) {
  moving.is_over = true;
  const TransferCompletion completion{
      .transfer = moving.id,
      .outcome = std::ranges::count(moving.is_bad, true) == 0 ? TransferOutcome::done : TransferOutcome::failed,
      .bytes = moving.bytes,
      .seconds = std::chrono::duration<double>(SteadyClock::now() - moving.begin).count()};
  std::vector<BlockId> bad;
  for (std::size_t i = 0; i < moving.blocks.size() && moving.direction == TransferDirection::load; ++i)
    if (moving.is_bad[i]) bad.push_back(moving.blocks[i]);
  {
    const std::lock_guard own(mutex_);
    ended_.add(completion, std::move(bad));
    open_.erase(moving.id);
    ++num_notifying_;
    changed_.notify_all();
  }
  lock.unlock();
  notify_();
  const std::lock_guard own(mutex_);
  --num_notifying_;
  changed_.notify_all();
}

void StoreTransport::give_up(const std::shared_ptr<Moving>& moving) {
  std::unique_lock lock(moving->mutex);
  if (moving->is_over) return;
  moving->is_bad.assign(moving->is_bad.size(), true);
  end(*moving, lock);
}

void StoreTransport::poll(std::vector<TransferCompletion>& over) {
  const std::lock_guard lock(mutex_);
  ended_.tell(over);
}

void StoreTransport::wait(TransferId transfer) {
  std::unique_lock lock(mutex_);
  const auto found = open_.find(transfer);
  if (found == open_.end()) return;
  if (gives_up_stores_ && found->second->direction == TransferDirection::store) {
    const std::shared_ptr<Moving> moving = found->second;
    lock.unlock();
    give_up(moving);
    lock.lock();
  }
  changed_.wait(lock, [&] { return !open_.contains(transfer); });
}

// Ends what gets nowhere. Transfers begin in the order of their numbers, so the first one of a direction is the oldest.
void StoreTransport::watch() {
  std::unique_lock lock(mutex_);
  while (!stops_) {
    std::shared_ptr<Moving> late;
    SteadyClock::time_point next = SteadyClock::now() + std::min(patience_[0], patience_[1]);
    for (const TransferDirection direction : {TransferDirection::load, TransferDirection::store}) {
      const auto oldest = std::ranges::find_if(open_, [&](const auto& one) { return one.second->direction == direction; });
      if (oldest == open_.end()) continue;
      const SteadyClock::time_point due =
          std::max(oldest->second->begin, moved_[static_cast<std::size_t>(direction)]) + patience_[static_cast<std::size_t>(direction)];
      if (due <= SteadyClock::now()) late = oldest->second;
      next = std::min(next, due);
    }
    if (late == nullptr) {
      changed_.wait_until(lock, next);
      continue;
    }
    ++num_late_[static_cast<std::size_t>(late->direction)];
    lock.unlock();
    give_up(late);
    lock.lock();
  }
}

std::uint64_t StoreTransport::num_late(TransferDirection direction) const {
  const std::lock_guard lock(mutex_);
  return num_late_[static_cast<std::size_t>(direction)];
}

void StoreTransport::detach() {
  {
    const std::lock_guard lock(pages_mutex_);
    is_attached_ = false;
  }
  std::vector<std::shared_ptr<Moving>> left;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_all();
    for (const auto& [id, moving] : open_) left.push_back(moving);
  }
  watch_.join();
  for (const std::shared_ptr<Moving>& moving : left) give_up(moving);
  // Who was told that a transfer is over may destroy this before its notice has been given.
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return num_notifying_ == 0; });
}

}  // namespace quire
