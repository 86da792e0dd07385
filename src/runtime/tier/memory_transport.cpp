// States of a transfer, and who moves it between them:
//   open  start()
//   over  its last block: the thread of its direction, or wait()
// start(), poll() and wait() come from the thread that leads the step; one thread per direction copies, and wait() copies what is left of
// its transfer on the calling thread. One lock, open while bytes are copied. A checksum of each block is kept beside it: memory that has
// changed is a miss, not a wrong answer.
#include "runtime/tier/memory_transport.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "base/core_share.h"
#include "base/thread_nice.h"
#include "base/usable_memory.h"

namespace quire {

using SteadyClock = std::chrono::steady_clock;

namespace {

// So that copies of one place never share a line with another.
constexpr std::uint64_t kAlignment = 64;  // of a place: a line of the cache
constexpr std::uint64_t kPageBytes = 4096;
// What is left to everybody else where memory is taken ahead of its use, and how much is taken between two looks.
constexpr std::uint64_t kLeftOver = std::uint64_t{1} << 30U, kTakenAtOnce = std::uint64_t{1} << 26U;

double seconds_since(SteadyClock::time_point begin) {
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

// Between the pages of a block, one after the other, and a place.
void copy_pages(const KvPages& pages, std::uint32_t group, BlockId block, std::span<std::byte> place, bool to_place) {
  const std::size_t num_tensors = pages.layout->groups[group].layers.size();
  for (std::uint32_t tensor = 0; tensor < num_tensors; ++tensor) {
    const std::span<std::byte> page = pages.page(tensor, block);
    std::memcpy(to_place ? place.data() : page.data(), to_place ? page.data() : place.data(), page.size());
    place = place.subspan(page.size());
  }
}

}  // namespace

// Guarded by the transport's mutex, but for what stays as it began.
struct MemoryTransport::Moving {
  TransferId id;
  TransferDirection direction = TransferDirection::load;
  std::uint32_t group = 0;
  std::vector<BlockId> blocks;
  std::vector<std::uint64_t> numbers;
  SteadyClock::time_point begin;

  std::size_t num_begun = 0, num_over = 0;  // blocks
  std::uint64_t bytes = 0;
  std::vector<bool> is_bad;

  [[nodiscard]] bool is_begun() const { return num_begun == blocks.size(); }
};

void MemoryTransport::Unmap::operator()(std::byte* memory) const {
  munmap(memory, bytes);
}

Result<std::unique_ptr<MemoryTransport>> MemoryTransport::create(const MemoryTransportOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes > kMostTierBlockBytes)
    return fail(ErrorCode::invalid_argument, "block_bytes", fmt::format("{} is not 1 to {}", options.block_bytes, kMostTierBlockBytes),
                "choose a smaller block_size");
  if (options.num_places == 0) return fail(ErrorCode::invalid_argument, "num_places", "there is room for no block", "give it more memory");
  const std::uint64_t place_bytes = (options.block_bytes + kAlignment - 1) / kAlignment * kAlignment;
  const std::uint64_t bytes = place_bytes * options.num_places;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED)
    return fail(ErrorCode::too_large, "num_places", fmt::format("cannot reserve {} bytes: {}", bytes, std::strerror(errno)),
                "give it less memory");
  madvise(memory, bytes, MADV_HUGEPAGE);
  std::unique_ptr<std::byte[], Unmap> owned(static_cast<std::byte*>(memory), Unmap{bytes});
  return std::unique_ptr<MemoryTransport>(new MemoryTransport(std::move(owned), options, place_bytes));
}

MemoryTransport::MemoryTransport(std::unique_ptr<std::byte[], Unmap> memory, const MemoryTransportOptions& options,
                                 std::uint64_t place_bytes)
    : memory_(std::move(memory)),
      block_bytes_(options.block_bytes),
      place_bytes_(place_bytes),
      gives_way_(options.gives_way),
      places_(options.num_places),
      num_untaken_(options.gives_way ? options.num_places : 0) {}

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
  QUIRE_CHECK(at < places_.size(), "a place that there is");
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
    place.state = PlaceState::empty;
    ++stats_.num_refused;
  }
  if (--place.num_reads == 0) changed_.notify_all();
  return is_good;
}

bool MemoryTransport::holds(std::uint64_t number) const {
  const auto at = static_cast<std::uint32_t>(number);
  const std::lock_guard lock(mutex_);
  QUIRE_CHECK(at < places_.size(), "a place that there is");
  return is_held(places_[at], number);
}

void MemoryTransport::attach(const KvPages& pages, std::function<void()> notify) {
  QUIRE_CHECK(!store_thread_.joinable(), "attached once");
  for (std::size_t group = 0; group < pages.layout->groups.size(); ++group)
    QUIRE_CHECK(pages.layout->group_block_bytes(group) <= block_bytes_, "the places were made for smaller blocks");
  pages_ = pages;
  notify_ = std::move(notify);
  stops_ = false;
  store_thread_ = std::thread([this] { run(stores_); });
  load_thread_ = std::thread([this] { run(loads_); });
}

void MemoryTransport::start(const Transfer& transfer) {
  QUIRE_CHECK(!transfer.blocks.empty() && transfer.blocks.size() == transfer.places.size(), "each block has its place");
  auto moving = std::make_shared<Moving>();
  moving->id = transfer.id;
  moving->direction = transfer.direction;
  moving->group = transfer.group;
  moving->blocks.assign(transfer.blocks.begin(), transfer.blocks.end());
  moving->numbers.assign(transfer.places.begin(), transfer.places.end());
  moving->begin = SteadyClock::now();
  moving->is_bad.resize(transfer.blocks.size());
  const std::lock_guard lock(mutex_);
  open_[transfer.id] = moving;
  (transfer.direction == TransferDirection::store ? stores_ : loads_).push_back(std::move(moving));
  changed_.notify_all();
}

void MemoryTransport::run(Queue& queue) {
  const bool stores = &queue == &stores_;  // who loads is waited for; who stores must not be noticed
  stores ? set_thread_patient(kNiceBeside) : set_thread_nice(kNiceBeside);
  std::optional<CoreShare> share;
  if (stores && gives_way_) share.emplace(kStoringShare);
  Lock lock(mutex_);
  while (!stops_) {
    if (queue.empty() && (!stores || num_untaken_ == 0)) {
      changed_.wait(lock);
    } else if (!queue.empty() && queue.front()->is_begun()) {
      queue.pop_front();
    } else if (share && (!share->may_go_on() || (queue.empty() && !share->has_to_spare()))) {
      changed_.wait_for(lock, kShareRest);
    } else if (queue.empty()) {
      take_one(lock);
    } else {
      // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the queue may let go of it while the lock is open
      const std::shared_ptr<Moving> moving = queue.front();
      move_one(lock, moving);
    }
  }
}

// A place that is being taken counts as being read: a store to it waits. Its bytes mean nothing to anybody.
void MemoryTransport::take_one(Lock& lock) {
  const std::size_t at = --num_untaken_;
  if (at * place_bytes_ / kTakenAtOnce != (at + 1) * place_bytes_ / kTakenAtOnce && usable_memory_bytes() < kLeftOver + kTakenAtOnce) {
    num_untaken_ = 0;
    return;
  }
  Place& place = places_[at];
  if (place.state != PlaceState::empty) return;
  ++place.num_reads;
  lock.unlock();
  const std::span<std::byte> bytes = memory_of(static_cast<std::uint32_t>(at));
  for (std::size_t page = 0; page < bytes.size(); page += kPageBytes) bytes[page] = std::byte{0};
  lock.lock();
  if (--place.num_reads == 0) changed_.notify_all();
}

void MemoryTransport::move_one(Lock& lock, const std::shared_ptr<Moving>& moving) {
  const std::size_t index = moving->num_begun++;
  const SteadyClock::time_point begin = SteadyClock::now();
  const Moved moved = moving->direction == TransferDirection::store ? store(lock, *moving, index) : load(lock, *moving, index);
  count(*moving, moved, seconds_since(begin));
  moving->is_bad[index] = moved != Moved::done;
  if (moved == Moved::done) moving->bytes += pages_.layout->group_block_bytes(moving->group);
  if (++moving->num_over == moving->blocks.size()) end(lock, *moving);
}

MemoryTransport::Moved MemoryTransport::store(Lock& lock, const Moving& moving, std::size_t index) {
  const std::uint64_t number = moving.numbers[index];
  const auto at = static_cast<std::uint32_t>(number);
  QUIRE_CHECK(at < places_.size(), "transfers name places that there are");
  Place& place = places_[at];
  changed_.wait(lock, [&place] { return place.num_reads == 0; });
  if (place.generation != number >> 32U) return Moved::absent;
  if (place.state == PlaceState::storing || place.num_loads > 0) return Moved::in_use;
  place.state = PlaceState::storing;
  place.stored_name = place.name;
  place.stored_as = place.generation;
  place.group = moving.group;
  const Place stored = place;
  lock.unlock();
  const std::span<std::byte> bytes = payload(at, moving.group);
  copy_pages(pages_, moving.group, moving.blocks[index], bytes, true);
  const Checksum checksum = checksum_of(at, stored, bytes);
  lock.lock();
  place.checksum = checksum;
  place.state = PlaceState::held;
  return Moved::done;
}

MemoryTransport::Moved MemoryTransport::load(Lock& lock, const Moving& moving, std::size_t index) {
  const std::uint64_t number = moving.numbers[index];
  const auto at = static_cast<std::uint32_t>(number);
  QUIRE_CHECK(at < places_.size(), "transfers name places that there are");
  Place& place = places_[at];
  const bool is_held = place.state == PlaceState::held && place.stored_name == place.name && place.group == moving.group;
  if (place.generation != number >> 32U || !is_held) return Moved::absent;
  ++place.num_loads;
  const Place stored = place;
  lock.unlock();
  const std::span<std::byte> bytes = payload(at, moving.group);
  const bool is_good = checksum_of(at, stored, bytes) == stored.checksum;
  if (is_good) copy_pages(pages_, moving.group, moving.blocks[index], bytes, false);
  lock.lock();
  --place.num_loads;
  if (!is_good) place.state = PlaceState::empty;
  return is_good ? Moved::done : Moved::refused;
}

void MemoryTransport::count(const Moving& moving, Moved moved, double seconds) {
  const bool is_store = moving.direction == TransferDirection::store;
  if (moved == Moved::done) {
    ++(is_store ? stats_.num_stored : stats_.num_loaded);
    (is_store ? stats_.seconds_stored : stats_.seconds_loaded) += seconds;
    (is_store ? stats_.bytes_stored : stats_.bytes_loaded) += pages_.layout->group_block_bytes(moving.group);
  }
  stats_.num_absent += moved == Moved::absent ? 1 : 0;
  stats_.num_refused += moved == Moved::refused ? 1 : 0;
  stats_.num_in_use += moved == Moved::in_use ? 1 : 0;
}

// Of a load, blocks that did not come are named; of a store nobody asks which.
void MemoryTransport::end(Lock& lock, const Moving& moving) {
  const bool is_good = std::ranges::count(moving.is_bad, true) == 0;
  std::vector<BlockId> bad;
  for (std::size_t i = 0; i < moving.blocks.size() && moving.direction == TransferDirection::load; ++i)
    if (moving.is_bad[i]) bad.push_back(moving.blocks[i]);
  ended_.add({.transfer = moving.id,
              .outcome = is_good ? TransferOutcome::done : TransferOutcome::failed,
              .bytes = moving.bytes,
              .seconds = seconds_since(moving.begin)},
             std::move(bad));
  open_.erase(moving.id);
  changed_.notify_all();
  lock.unlock();
  notify_();
  lock.lock();
}

void MemoryTransport::poll(std::vector<TransferCompletion>& over) {
  const std::lock_guard lock(mutex_);
  ended_.tell(over);
}

void MemoryTransport::wait(TransferId transfer) {
  Lock lock(mutex_);
  for (auto found = open_.find(transfer); found != open_.end(); found = open_.find(transfer)) {
    const std::shared_ptr<Moving> moving = found->second;
    if (moving->is_begun())
      changed_.wait(lock);
    else
      move_one(lock, moving);
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
