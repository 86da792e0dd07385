#include "runtime/tier/disk_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "base/check.h"
#include "base/thread_nice.h"
#include "runtime/tier/pace.h"
#include "runtime/tier/tier_opening.h"

namespace quire {

using SteadyClock = std::chrono::steady_clock;

namespace {

constexpr std::uint32_t kMostDepth = 256;
constexpr std::uint32_t kEntriesPerRead = 512;
constexpr std::uint32_t kMostRestoredAtOnce = 4096;  // so that the store is locked for a moment only
constexpr std::chrono::milliseconds kPacedSleep(1);
constexpr unsigned kSequenceBits = 40;  // of one incarnation

struct PageDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t{kTierPageBytes}); }
};

enum class PlaceState : std::uint8_t { unread, empty, storing, held };

struct Place {
  TierEntry entry;  // storing, held
  std::uint32_t num_loads = 0;
  PlaceState state = PlaceState::unread;
  bool is_restored = false;  // held since before this store was opened
};

// A block on its way, with its buffer.
struct Moving {
  TierJob job;
  TierEntry entry;
  std::span<std::byte> buffer;
};

}  // namespace

struct DiskStore::State {
  State(std::unique_ptr<TierFiles> opened, std::unique_ptr<BlockQueue> opened_queue, const DiskStoreOptions& options,
        const OpenedTier& tier)
      : files(std::move(opened)),
        header(tier.header),
        block_bytes(options.block_bytes),
        sequence(tier.header.incarnation << kSequenceBits),
        load_pace(options.bytes_per_second),
        store_pace(options.bytes_per_second),
        queue(std::move(opened_queue)),
        memory(new(std::align_val_t{kTierPageBytes}, std::nothrow) std::byte[options.depth * tier.header.place_bytes]),
        moving(options.depth),
        places(tier.num_places) {}
  void start() {
    for (std::uint32_t i = 0; i < moving.size(); ++i) {
      moving[i].buffer = {memory.get() + i * header.place_bytes, header.place_bytes};
      idle.push_back(i);
    }
    thread = std::thread([this] { run(); });
  }
  ~State() {
    {
      const std::lock_guard lock(mutex);
      stops = true;
    }
    queue->wake();
    if (thread.joinable()) thread.join();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void run();
  std::optional<TierJob> take_job(bool& is_paced);
  void begin(TierJob job);
  void begin_store(std::uint32_t tag);
  void begin_load(std::uint32_t tag);
  // Whether the place may be written or holds what is wanted; then it is as good as under way.
  bool claim_to_store(const Moving& one);
  bool claim_to_load(Moving& one);
  void submit(std::uint32_t tag, bool is_write);
  void finish(const BlockIoOver& ended);
  TierOutcome finish_store(const Moving& one, bool is_done);
  TierOutcome finish_load(const Moving& one, bool is_done);
  void end(std::uint32_t tag, TierOutcome outcome);
  void read_entries();
  void clear_entry(std::uint32_t place);
  void count(const TierJob& job, TierOutcome outcome);
  void count_loading(std::int32_t by);  // with the mutex

  // The store's thread.
  const std::unique_ptr<TierFiles> files;
  const TierHeader header;
  const std::uint64_t block_bytes;
  std::uint64_t sequence;
  Pace load_pace, store_pace;
  const std::unique_ptr<BlockQueue> queue;  // wake(): any thread
  const std::unique_ptr<std::byte[], PageDelete> memory;
  std::vector<Moving> moving;       // by tag
  std::vector<std::uint32_t> idle;  // tags
  std::vector<BlockIoOver> ended;

  mutable std::mutex mutex;
  std::deque<TierJob> loads, stores;
  std::vector<Place> places;
  std::uint32_t num_read = 0;  // places whose entries were read
  DiskStoreStats stats;
  std::int32_t num_loading = 0;  // from their coming to their end
  SteadyClock::time_point loading_since;
  bool stops = false;

  std::thread thread;
};

void DiskStore::State::run() {
  set_thread_nice(kNiceBeside);
  for (;;) {
    // Jobs that end at once must not keep those under way from ending.
    bool is_paced = false;
    for (std::size_t num_begun = 0; num_begun < moving.size() && !idle.empty(); ++num_begun) {
      std::optional<TierJob> job = take_job(is_paced);
      if (!job) break;
      begin(*std::move(job));
    }
    const bool is_reading = num_read < places.size();
    if (is_reading) read_entries();
    bool may_begin = false;
    {
      const std::lock_guard lock(mutex);
      may_begin = !idle.empty() && !(loads.empty() && stores.empty());
      if (stops && !may_begin && idle.size() == moving.size()) return;
    }
    ended.clear();
    queue->collect(!is_reading && !may_begin, ended);
    for (const BlockIoOver& one : ended) finish(one);
    if (is_paced && ended.empty() && !is_reading) std::this_thread::sleep_for(kPacedSleep);
  }
}

// One that can begin now; where there is none, `is_paced` says whether one waits for its time. Those that nobody will begin end here.
std::optional<TierJob> DiskStore::State::take_job(bool& is_paced) {
  const SteadyClock::time_point now = SteadyClock::now();
  is_paced = false;
  std::unique_lock lock(mutex);
  for (const bool is_store : {false, true}) {
    std::deque<TierJob>& jobs = is_store ? stores : loads;
    Pace& pace = is_store ? store_pace : load_pace;
    while (!jobs.empty()) {
      if (!stops && !pace.may_begin(now)) {
        is_paced = true;
        break;
      }
      TierJob job = std::move(jobs.front());
      jobs.pop_front();
      if (!stops) {
        pace.begin(job.bytes, now);
        return job;
      }
      lock.unlock();
      job.over(TierOutcome::failed);
      lock.lock();
    }
  }
  return std::nullopt;
}

void DiskStore::State::begin(TierJob job) {
  const std::uint32_t tag = idle.back();
  idle.pop_back();
  moving[tag].job = std::move(job);
  moving[tag].job.verb == TierJob::Verb::store ? begin_store(tag) : begin_load(tag);
}

void DiskStore::State::begin_store(std::uint32_t tag) {
  Moving& one = moving[tag];
  const std::span<std::byte> payload = one.buffer.first(padded_to_page(one.job.bytes));
  if (!one.job.copy(payload.first(one.job.bytes))) return end(tag, TierOutcome::given_up);
  std::ranges::fill(payload.subspan(one.job.bytes), std::byte{0});
  one.entry = {.sequence = ++sequence, .name = one.job.name, .bytes = one.job.bytes, .checksum = {}};
  one.entry.checksum = payload_checksum(header, one.job.name, one.job.bytes, payload);
  if (claim_to_store(one)) return submit(tag, true);
  end(tag, TierOutcome::failed);
}

bool DiskStore::State::claim_to_store(const Moving& one) {
  const std::lock_guard lock(mutex);
  Place& place = places[one.job.place];
  if (place.state == PlaceState::storing || place.num_loads > 0) return false;
  place = {.entry = one.entry, .num_loads = 0, .state = PlaceState::storing, .is_restored = false};
  return true;
}

void DiskStore::State::begin_load(std::uint32_t tag) {
  if (claim_to_load(moving[tag])) return submit(tag, false);
  end(tag, TierOutcome::absent);
}

bool DiskStore::State::claim_to_load(Moving& one) {
  const std::lock_guard lock(mutex);
  Place& place = places[one.job.place];
  if (place.state != PlaceState::held || place.entry.name != one.job.name || place.entry.bytes != one.job.bytes) return false;
  ++place.num_loads;
  one.entry = place.entry;
  return true;
}

void DiskStore::State::submit(std::uint32_t tag, bool is_write) {
  const Moving& one = moving[tag];
  queue->submit({.tag = tag,
                 .is_write = is_write,
                 .offset = one.job.place * header.place_bytes,
                 .bytes = one.buffer.first(padded_to_page(one.job.bytes))});
}

void DiskStore::State::finish(const BlockIoOver& one) {
  const Moving& moved = moving[one.tag];
  const bool is_store = moved.job.verb == TierJob::Verb::store;
  end(one.tag, is_store ? finish_store(moved, one.is_done) : finish_load(moved, one.is_done));
}

// The entry follows its payload. Without one, that of the block which lay there before leads to bytes that do not verify.
TierOutcome DiskStore::State::finish_store(const Moving& one, bool is_done) {
  std::array<std::byte, kEntryBytes> entry;
  encode_entry(one.entry, header, one.job.place, entry);
  const bool is_stored = is_done && files->write_table(entry_offset(one.job.place), entry).has_value();
  if (!is_stored) clear_entry(one.job.place);
  const std::lock_guard lock(mutex);
  places[one.job.place].state = is_stored ? PlaceState::held : PlaceState::empty;
  return is_stored ? TierOutcome::done : TierOutcome::failed;
}

TierOutcome DiskStore::State::finish_load(const Moving& one, bool is_done) {
  const std::span<std::byte> payload = one.buffer.first(padded_to_page(one.job.bytes));
  const bool is_good = is_done && payload_checksum(header, one.job.name, one.job.bytes, payload) == one.entry.checksum;
  bool is_lost = false;
  {
    const std::lock_guard lock(mutex);
    Place& place = places[one.job.place];
    --place.num_loads;
    stats.num_read += is_done ? 1 : 0;
    stats.bytes_read += is_done ? one.job.bytes : 0;
    is_lost = is_done && !is_good && place.state == PlaceState::held;
    if (is_lost) place.state = PlaceState::empty;
  }
  if (is_lost) clear_entry(one.job.place);
  if (!is_good) return is_done ? TierOutcome::refused : TierOutcome::failed;
  return one.job.copy(payload.first(one.job.bytes)) ? TierOutcome::done : TierOutcome::given_up;
}

void DiskStore::State::end(std::uint32_t tag, TierOutcome outcome) {
  const TierJob job = std::move(moving[tag].job);
  moving[tag].job = {};
  idle.push_back(tag);
  count(job, outcome);
  job.over(outcome);
}

void DiskStore::State::count(const TierJob& job, TierOutcome outcome) {
  const std::lock_guard lock(mutex);
  const bool is_store = job.verb == TierJob::Verb::store;
  if (!is_store) count_loading(-1);
  if (outcome == TierOutcome::done) {
    ++(is_store ? stats.num_stored : stats.num_loaded);
    (is_store ? stats.bytes_stored : stats.bytes_loaded) += job.bytes;
  }
  stats.num_absent += outcome == TierOutcome::absent ? 1 : 0;
  stats.num_refused += outcome == TierOutcome::refused ? 1 : 0;
  if (outcome == TierOutcome::failed) ++(is_store ? stats.num_failed_stores : stats.num_failed_loads);
  stats.num_given_up += outcome == TierOutcome::given_up ? 1 : 0;
}

void DiskStore::State::count_loading(std::int32_t by) {
  const SteadyClock::time_point now = SteadyClock::now();
  if (num_loading > 0) stats.loading_s += std::chrono::duration<double>(now - loading_since).count();
  loading_since = now;
  num_loading += by;
}

// A part of the table. What cannot be read holds nothing.
void DiskStore::State::read_entries() {
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(kEntriesPerRead, places.size() - num_read));
  std::array<std::byte, kEntriesPerRead * kEntryBytes> bytes;
  const bool is_read = files->read_table(entry_offset(num_read), std::span(bytes).first(count * kEntryBytes)).has_value();
  const std::lock_guard lock(mutex);
  for (std::uint32_t i = 0; i < count; ++i) {
    Place& place = places[num_read + i];
    if (place.state != PlaceState::unread) continue;
    const std::span<const std::byte> entry = std::span(bytes).subspan(i * kEntryBytes, kEntryBytes);
    const EntryState state = is_read ? decode_entry(entry, header, num_read + i, place.entry) : EntryState::damaged;
    place.is_restored = state == EntryState::good;
    place.state = place.is_restored ? PlaceState::held : PlaceState::empty;
    stats.num_restored += place.is_restored ? 1 : 0;
    stats.num_entries_refused += state == EntryState::damaged ? 1 : 0;
  }
  num_read += count;
}

// As well as the disk can: what stays names bytes that do not verify.
void DiskStore::State::clear_entry(std::uint32_t place) {
  const std::array<std::byte, kEntryBytes> zeros{};
  static_cast<void>(files->write_table(entry_offset(place), zeros));
}

Result<std::unique_ptr<DiskStore>> DiskStore::open(std::unique_ptr<TierFiles> files, const DiskStoreOptions& options) {
  if (options.block_bytes == 0 || options.block_bytes > kMostTierBlockBytes)
    return fail(ErrorCode::invalid_argument, "block_bytes", fmt::format("{} is not 1 to {}", options.block_bytes, kMostTierBlockBytes),
                "choose a smaller block_size");
  if (options.depth == 0 || options.depth > kMostDepth)
    return fail(ErrorCode::invalid_argument, "depth", fmt::format("{} is not 1 to {}", options.depth, kMostDepth));
  const TierShape shape{options.budget_bytes, padded_to_page(options.block_bytes), options.fingerprint};
  const Result<OpenedTier> tier = open_tier(*files, shape);
  if (!tier) return std::unexpected(tier.error());
  std::unique_ptr<BlockQueue> queue = files->open_queue(options.depth);
  if (queue == nullptr)
    return fail(ErrorCode::unsupported, "io", "this build or this kernel has no io_uring", "leave the choice to quire, or take threads");
  auto state = std::make_unique<State>(std::move(files), std::move(queue), options, *tier);
  if (state->memory == nullptr)
    return fail(ErrorCode::too_large, "depth",
                fmt::format("there is no memory for {} blocks of {} bytes", options.depth, shape.place_bytes), "move fewer at a time");
  state->start();
  return std::unique_ptr<DiskStore>(new DiskStore(std::move(state)));
}

DiskStore::DiskStore(std::unique_ptr<State> state) : state_(std::move(state)) {}
DiskStore::~DiskStore() = default;

std::uint32_t DiskStore::num_places() const {
  return static_cast<std::uint32_t>(state_->places.size());
}

std::uint64_t DiskStore::block_bytes() const {
  return state_->block_bytes;
}

void DiskStore::submit(TierJob job) {
  QUIRE_CHECK(job.place < state_->places.size() && job.bytes > 0 && job.bytes <= state_->block_bytes, "no such place, or no such block");
  {
    const std::lock_guard lock(state_->mutex);
    if (job.verb == TierJob::Verb::load) state_->count_loading(1);
    (job.verb == TierJob::Verb::load ? state_->loads : state_->stores).push_back(std::move(job));
  }
  state_->queue->wake();
}

std::uint32_t DiskStore::restored(std::uint32_t first, std::vector<RestoredBlock>& into) const {
  const std::lock_guard lock(state_->mutex);
  const std::uint32_t end = std::max(first, std::min(first + kMostRestoredAtOnce, state_->num_read));
  for (std::uint32_t i = first; i < end; ++i) {
    const Place& place = state_->places[i];
    if (place.state == PlaceState::held && place.is_restored)
      into.push_back({.place = i, .bytes = place.entry.bytes, .name = place.entry.name, .sequence = place.entry.sequence});
  }
  return end;
}

std::optional<RestoredBlock> DiskStore::held_from(std::uint32_t first) const {
  const std::lock_guard lock(state_->mutex);
  const std::size_t num_places = state_->places.size();
  for (std::size_t i = 0; i < std::min<std::size_t>(num_places, kMostRestoredAtOnce); ++i) {
    const auto number = static_cast<std::uint32_t>((first + i) % num_places);
    const Place& place = state_->places[number];
    if (place.state == PlaceState::held)
      return RestoredBlock{.place = number, .bytes = place.entry.bytes, .name = place.entry.name, .sequence = place.entry.sequence};
  }
  return std::nullopt;
}

DiskStoreStats DiskStore::stats() const {
  const std::lock_guard lock(state_->mutex);
  return state_->stats;
}

}  // namespace quire
