#pragma once
// Ledger of a tier in host memory with a folder below it, for a host that plans and copies blocks itself (vLLM's offloading connector). The
// rules of OffloadManager (offload_manager.h) decide which blocks host memory holds. Blocks stored there are also written to the folder. A
// block that only the folder has is first brought up, and only then counted by lookup(). So a disk that fails, corrupts data or hangs
// causes a miss, and never a failed load.
//
// Worker processes copy between the device and the host memory, which all of them map. A slot is complete when each worker has written the
// store's number (StoreWithNumbers::numbers) to the slot's entry of `written`. Only then is the block written to the folder.
//
// One thread calls it, and never waits for the disk.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/offload.h"

namespace quire {

class TierFiles;

// The pages of all slots in one tensor of one worker: `page_bytes` per slot, one after the other.
struct HostPages {
  std::byte* begin = nullptr;
  std::uint64_t page_bytes = 0;
};

// Options of a TieredOffload.
struct TieredOffloadOptions {
  OffloadOptions host;           // options of host memory, including its `enable_events`
  std::vector<HostPages> pages;  // pages of all workers; the memory must outlive the object
  // One array per worker, indexed by slot: the number of the last store copied into the slot. The worker writes it after the bytes.
  std::vector<const std::uint64_t*> written;
  std::string folder;
  std::uint64_t budget_bytes = 0;              // limit for the whole folder, as `du` counts it
  std::array<std::uint8_t, 32> fingerprint{};  // digest of all that determines a block's bytes, except its hash
  std::uint64_t bytes_per_second = 0;          // disk limit in each direction; 0: no limit
};

// Totals since the start.
struct TieredOffloadStats {
  std::uint32_t num_places = 0, num_held = 0;  // blocks that fit into the folder, and blocks in it
  std::uint64_t num_restored = 0;              // from earlier processes
  std::uint64_t num_written = 0, bytes_written = 0;
  std::uint64_t num_read = 0, bytes_read = 0;  // brought up to host memory
  double reading_s = 0.0;                      // seconds with at least one read in flight
  std::uint64_t num_refused = 0;               // checksum failed
  std::uint64_t num_failed = 0;                // the disk failed or was too slow
  std::uint64_t num_dropped = 0;               // evicted from host memory before they were written
  bool loads_left_out = false, stores_left_out = false;
};

// A PreparedStore with numbers: a worker writes `numbers[i]` to entry `slots[i]` of its `written` array after copying the block. Views are
// valid until the next call.
struct StoreWithNumbers {
  std::span<const OffloadKey> keys;
  std::span<const OffloadSlot> slots;
  std::span<const std::uint64_t> numbers;
  std::span<const OffloadKey> evicted;
};

// A tier in host memory with a folder below it.
class QUIRE_API TieredOffload {
 public:
  // Opens the folder. Errors: an option is out of range; or the folder is without permission, in use, of another model, layout or version,
  // or its disk has no room.
  static Result<std::unique_ptr<TieredOffload>> open(const TieredOffloadOptions& options);
  // Like open(), on files that are open already. `options.folder` is the path where they are looked for after a failure.
  QUIRE_HIDDEN static Result<std::unique_ptr<TieredOffload>> open_on(std::unique_ptr<TierFiles> files, const TieredOffloadOptions& options);
  // Finishes the writes in flight.
  ~TieredOffload();
  TieredOffload(const TieredOffload&) = delete;
  TieredOffload& operator=(const TieredOffload&) = delete;

  // Returns how many leading keys can be loaded from host memory without a gap. nullopt: ask again, some of the keys are being brought up
  // from the folder.
  std::optional<std::uint32_t> lookup(std::span<const OffloadKey> keys);
  // The next three functions are the parts of lookup(), for a host that decides itself what is worth bringing up.
  // Returns the state of each key. Starts and counts nothing.
  [[nodiscard]] std::vector<OffloadState> find(std::span<const OffloadKey> keys);
  // Starts bringing up the keys that only the folder has: as many leading keys as fit next to the resident ones. Returns whether any of the
  // keys are on their way. It may evict resident keys after the last one that comes up: call touch() for all keys first.
  bool bring_up(std::span<const OffloadKey> keys);
  // Counts a lookup of the keys, for the reuse filter.
  void count(std::span<const OffloadKey> keys);
  // The next functions, up to complete_store(), work as in OffloadManager.
  Result<std::span<const OffloadSlot>> prepare_load(std::span<const OffloadKey> keys);
  Result<void> complete_load(std::span<const OffloadKey> keys);
  void touch(std::span<const OffloadKey> keys);
  void use(std::span<const OffloadKey> keys);
  std::optional<StoreWithNumbers> prepare_store(std::span<const OffloadKey> keys);
  void complete_store(std::span<const OffloadKey> keys, bool success = true);
  // Evicts a key from host memory, as in OffloadManager. A copy in the folder stays.
  bool discard(const OffloadKey& key);
  [[nodiscard]] std::uint32_t num_slots() const;
  [[nodiscard]] std::size_t num_events() const;
  [[nodiscard]] OffloadEvent event(std::size_t position) const;
  void clear_events();

  // Callable on any thread.
  [[nodiscard]] TieredOffloadStats stats() const;

 private:
  struct State;
  QUIRE_HIDDEN explicit TieredOffload(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire
