// States of a transfer, and what moves it between them:
//   open  start()
//   over  the end of its last block, on the thread of its direction or in wait()
// The thread that leads the step calls start(), poll() and wait(). One thread per direction copies blocks; wait() copies the remaining
// blocks of its transfer on the calling thread. The only lock is released while bytes are copied. Each block has a checksum: if the memory
// of a slot has changed, the load is a miss.
#include "runtime/tier/memory_transport.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/cpu_share.h"
#include "base/thread_nice.h"

namespace quire {

using SteadyClock = std::chrono::steady_clock;

namespace {

// Ensures that copies of different slots never share a cache line.
constexpr std::uint64_t kAlignment = 64;  // bytes of a cache line
constexpr std::uint64_t kPageBytes = 4096;
// Memory that stays free for other programs when slots are touched in advance, and the number of bytes touched between two checks of the
// free memory.
constexpr std::uint64_t kLeftOver = std::uint64_t{1} << 30U, kTakenAtOnce = std::uint64_t{1} << 26U;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// Copies between a slot and the pages of a block. The slot holds the pages one after the other.
void copy_pages(const KvPages& pages, std::uint32_t group, BlockId block, std::span<std::byte> place, bool to_place) {
  const std::size_t num_tensors = pages.layout->groups[group].layers.size();
  for (std::uint32_t tensor = 0; tensor < num_tensors; ++tensor) {
    const std::span<std::byte> page = pages.page(tensor, block);
    std::memcpy(to_place ? place.data() : page.data(), to_place ? page.data() : place.data(), page.size());
    place = place.subspan(page.size());
  }
}

}  // namespace

// Guarded by the transport's mutex, except for members that never change.
struct MemoryTransport::PendingTransfer {
  TransferId id;
  TransferDirection direction = TransferDirection::load;
  std::uint32_t group = 0;
  std::vector<BlockId> blocks;
  std::vector<std::uint64_t> numbers;
  SteadyClock::time_point begin;

  std::size_t num_begun = 0, num_over = 0;  // in blocks
  std::uint64_t bytes = 0;
  std::vector<bool> is_bad;

  [[nodiscard]] bool is_begun() const { return num_begun == blocks.size(); }
};

void MemoryTransport::Unmap::operator()(std::byte* memory) const {
  munmap(memory, bytes);
}

Result<std::unique_ptr<MemoryTransport>> MemoryTransport::create(const MemoryTransportOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes > kMaxTierBlockBytes)
    return fail(ErrorCode::invalid_argument, "block_bytes", fmt::format("{} is not 1 to {}", options.block_bytes, kMaxTierBlockBytes),
                "choose a smaller block_size");
  if (options.num_places == 0)
    return fail(ErrorCode::invalid_argument, "num_places", "must be at least 1, got 0", "use a larger memory size");
  const std::uint64_t place_bytes = (options.block_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::uint64_t bytes = place_bytes * options.num_places;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return fail(ErrorCode::too_large, "num_places", fmt::format("cannot reserve {} bytes: {}", bytes, std::strerror(errno)),
                "use a smaller memory size");
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::unique_ptr<std::byte[], Unmap> owned(static_cast<std::byte*>(memory), Unmap{bytes});
  return std::unique_ptr<MemoryTransport>(new MemoryTransport(std::move(owned), options, place_bytes));
}

MemoryTransport::MemoryTransport(std::unique_ptr<std::byte[], Unmap> memory, const MemoryTransportOptions& options,
                                 std::uint64_t place_bytes)
    : memory_(std::move(memory)),
      block_bytes_(options.block_bytes),
      place_bytes_(place_bytes),
      yields_cores_(options.yields_cores),
      usable_memory_(options.usable_memory),
      places_(options.num_places),
      num_untouched_(options.yields_cores ? options.num_places : 0) {}

MemoryTransport::~MemoryTransport() {
  if (store_thread_.joinable()) detach();
}

std::uint64_t MemoryTransport::assign(std::uint32_t place, const OffloadKey& name) {
  const std::lock_guard lock(mutex_);
  Place& assigned = places_[place];
  assigned.name = name;
  ++assigned.generation;
  return std::uint64_t{assigned.generation} << 32U | place;
}

MemoryTransportStats MemoryTransport::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

bool MemoryTransport::read(std::uint64_t number, std::span<std::byte> into) {
  const auto at = static_cast<std::uint32_t>(number);
  Lock lock(mutex_);
  QUIRE_CHECK(at < places_.size(), "the slot exists");
  Place& place = places_[at];
  if (!is_held(place, number)) {
    ++stats_.num_absent;
    return false;
  }
  ++place.num_reads;
  const Place stored = place;
  lock.unlock();
  const std::span<const std::byte> bytes = memory_of(at).first(into.size());
  const bool is_good = checksum_of(at, stored, bytes) == stored.checksum;
  if (is_good) std::ranges::copy(bytes, into.begin());
  lock.lock();
  if (!is_good) {
    place.state = SlotState::empty;
    ++stats_.num_refused;
  }
  if (--place.num_reads == 0) changed_.notify_all();
  return is_good;
}

bool MemoryTransport::holds(std::uint64_t number) const {
  const auto at = static_cast<std::uint32_t>(number);
  const std::lock_guard lock(mutex_);
  QUIRE_CHECK(at < places_.size(), "the slot exists");
  return is_held(places_[at], number);
}

void MemoryTransport::attach(const KvPages& pages, std::function<void()> notify) {
  QUIRE_CHECK(!store_thread_.joinable(), "a transport is attached once");
  for (std::size_t group = 0; group < pages.layout->groups.size(); ++group)
    QUIRE_CHECK(pages.layout->group_block_bytes(group) <= block_bytes_, "a slot is large enough for a block of each group");
  pages_ = pages;
  notify_ = std::move(notify);
  stops_ = false;
  store_thread_ = std::thread([this] { run(stores_); });
  load_thread_ = std::thread([this] { run(loads_); });
}

void MemoryTransport::start(const Transfer& transfer) {
  QUIRE_CHECK(!transfer.blocks.empty() && transfer.blocks.size() == transfer.places.size(), "each block of a transfer has a slot");
  auto pending = std::make_shared<PendingTransfer>();
  pending->id = transfer.id;
  pending->direction = transfer.direction;
  pending->group = transfer.group;
  pending->blocks.assign(transfer.blocks.begin(), transfer.blocks.end());
  pending->numbers.assign(transfer.places.begin(), transfer.places.end());
  pending->begin = SteadyClock::now();
  pending->is_bad.resize(transfer.blocks.size());
  const std::lock_guard lock(mutex_);
  open_[transfer.id] = pending;
  (transfer.direction == TransferDirection::store ? stores_ : loads_).push_back(std::move(pending));
  changed_.notify_all();
}

void MemoryTransport::run(Queue& queue) {
  const bool stores = &queue == &stores_;  // steps may wait for loads; stores must not disturb other threads
  stores ? set_thread_batch_policy(kBackgroundNice) : set_thread_nice(kBackgroundNice);
  std::optional<CpuShare> share;
  if (stores && yields_cores_) share.emplace(kStoringCpuShare);
  Lock lock(mutex_);
  while (!stops_) {
    if (queue.empty() && (!stores || num_untouched_ == 0)) {
      changed_.wait(lock);
    } else if (!queue.empty() && queue.front()->is_begun()) {
      queue.pop_front();
    } else if (share && (!share->may_continue() || (queue.empty() && !share->has_spare_credit()))) {
      changed_.wait_for(lock, kCpuShareSleep);
    } else if (queue.empty()) {
      start_next(lock);
    } else {
      // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the queue may drop it while the lock is open
      const std::shared_ptr<PendingTransfer> pending = queue.front();
      copy_next_block(lock, pending);
    }
  }
}

// Writes to each page of the next empty slot, so that the system allocates its memory before a store needs it. The writes count as a read,
// so a store to the slot waits. Stops for good when the machine has little memory left.
void MemoryTransport::start_next(Lock& lock) {
  const std::size_t at = --num_untouched_;
  if (at * place_bytes_ / kTakenAtOnce != (at + 1) * place_bytes_ / kTakenAtOnce && usable_memory_() < kLeftOver + kTakenAtOnce) {
    num_untouched_ = 0;
    return;
  }
  Place& place = places_[at];
  if (place.state != SlotState::empty) return;
  ++place.num_reads;
  lock.unlock();
  const std::span<std::byte> bytes = memory_of(static_cast<std::uint32_t>(at));
  for (std::size_t page = 0; page < bytes.size(); page += kPageBytes) bytes[page] = std::byte{0};
  lock.lock();
  if (--place.num_reads == 0) changed_.notify_all();
}

void MemoryTransport::copy_next_block(Lock& lock, const std::shared_ptr<PendingTransfer>& pending) {
  const std::size_t index = pending->num_begun++;
  const SteadyClock::time_point begin = SteadyClock::now();
  const CopyOutcome outcome = pending->direction == TransferDirection::store ? store(lock, *pending, index) : load(lock, *pending, index);
  count(*pending, outcome, seconds_since(begin));
  pending->is_bad[index] = outcome != CopyOutcome::done;
  if (outcome == CopyOutcome::done) pending->bytes += pages_.layout->group_block_bytes(pending->group);
  if (++pending->num_over == pending->blocks.size()) end(lock, *pending);
}

MemoryTransport::CopyOutcome MemoryTransport::store(Lock& lock, const PendingTransfer& pending, std::size_t index) {
  const std::uint64_t number = pending.numbers[index];
  const auto at = static_cast<std::uint32_t>(number);
  QUIRE_CHECK(at < places_.size(), "the slot of a transfer exists");
  Place& place = places_[at];
  changed_.wait(lock, [&place] { return place.num_reads == 0; });
  if (place.generation != number >> 32U) return CopyOutcome::absent;
  if (place.state == SlotState::storing || place.num_loads > 0) return CopyOutcome::in_use;
  place.state = SlotState::storing;
  place.stored_name = place.name;
  place.stored_generation = place.generation;
  place.group = pending.group;
  const Place stored = place;
  lock.unlock();
  const std::span<std::byte> bytes = payload(at, pending.group);
  copy_pages(pages_, pending.group, pending.blocks[index], bytes, true);
  const Checksum checksum = checksum_of(at, stored, bytes);
  lock.lock();
  place.checksum = checksum;
  place.state = SlotState::held;
  return CopyOutcome::done;
}

MemoryTransport::CopyOutcome MemoryTransport::load(Lock& lock, const PendingTransfer& pending, std::size_t index) {
  const std::uint64_t number = pending.numbers[index];
  const auto at = static_cast<std::uint32_t>(number);
  QUIRE_CHECK(at < places_.size(), "the slot of a transfer exists");
  Place& place = places_[at];
  const bool is_held = place.state == SlotState::held && place.stored_name == place.name && place.group == pending.group;
  if (place.generation != number >> 32U || !is_held) return CopyOutcome::absent;
  ++place.num_loads;
  const Place stored = place;
  lock.unlock();
  const std::span<std::byte> bytes = payload(at, pending.group);
  const bool is_good = checksum_of(at, stored, bytes) == stored.checksum;
  if (is_good) copy_pages(pages_, pending.group, pending.blocks[index], bytes, false);
  lock.lock();
  --place.num_loads;
  if (!is_good) place.state = SlotState::empty;
  return is_good ? CopyOutcome::done : CopyOutcome::refused;
}

void MemoryTransport::count(const PendingTransfer& pending, CopyOutcome outcome, double seconds) {
  const bool is_store = pending.direction == TransferDirection::store;
  if (outcome == CopyOutcome::done) {
    ++(is_store ? stats_.num_stored : stats_.num_loaded);
    (is_store ? stats_.seconds_stored : stats_.seconds_loaded) += seconds;
    (is_store ? stats_.bytes_stored : stats_.bytes_loaded) += pages_.layout->group_block_bytes(pending.group);
  }
  stats_.num_absent += outcome == CopyOutcome::absent ? 1 : 0;
  stats_.num_refused += outcome == CopyOutcome::refused ? 1 : 0;
  stats_.num_in_use += outcome == CopyOutcome::in_use ? 1 : 0;
}

// Ends the transfer. The completion of a load lists the blocks that were not loaded; no caller needs such a list for a store.
void MemoryTransport::end(Lock& lock, const PendingTransfer& pending) {
  const bool is_good = std::ranges::count(pending.is_bad, true) == 0;
  std::vector<BlockId> bad;
  for (std::size_t i = 0; i < pending.blocks.size() && pending.direction == TransferDirection::load; ++i)
    if (pending.is_bad[i]) bad.push_back(pending.blocks[i]);
  ended_.add({.transfer = pending.id,
              .outcome = is_good ? TransferOutcome::done : TransferOutcome::failed,
              .bytes = pending.bytes,
              .seconds = seconds_since(pending.begin)},
             std::move(bad));
  open_.erase(pending.id);
  changed_.notify_all();
  lock.unlock();
  notify_();
  lock.lock();
}

void MemoryTransport::poll(std::vector<TransferCompletion>& over) {
  const std::lock_guard lock(mutex_);
  ended_.report(over);
}

void MemoryTransport::wait(TransferId transfer) {
  Lock lock(mutex_);
  for (auto found = open_.find(transfer); found != open_.end(); found = open_.find(transfer)) {
    const std::shared_ptr<PendingTransfer> pending = found->second;
    if (pending->is_begun())
      changed_.wait(lock);
    else
      copy_next_block(lock, pending);
  }
}

void MemoryTransport::detach() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    changed_.notify_all();
  }
  store_thread_.join();
  load_thread_.join();
  open_.clear();
  stores_.clear();
  loads_.clear();
}

std::span<std::byte> MemoryTransport::payload(std::uint32_t place, std::uint32_t group) {
  return memory_of(place).first(pages_.layout->group_block_bytes(group));
}

Checksum MemoryTransport::checksum_of(std::uint32_t place, const Place& stored, std::span<const std::byte> bytes) {
  TierHeader bound;
  std::memcpy(bound.identity.data(), &place, sizeof place);
  std::memcpy(bound.identity.data() + sizeof place, &stored.group, sizeof stored.group);
  return payload_checksum(bound, stored.stored_name, static_cast<std::uint32_t>(bytes.size()), bytes);
}

}  // namespace quire
