#pragma once
// Ledger of a tier in host memory with a folder below it, for a host that plans and copies blocks itself (vLLM's offloading connector). The
// rules of OffloadManager (offload_manager.h) decide which blocks host memory holds. Blocks stored in host memory are also written to the
// folder. A block that is only in the folder is first copied to host memory; only then does lookup() count it. A disk that fails, corrupts
// data or hangs therefore causes a miss, and never a failed load.
//
// Worker processes copy between the device and the host memory, which all of them map. A slot is complete when each worker has written the
// store's number (StoreWithNumbers::numbers) to the slot's entry of `written`. Only then is the block written to the folder.
//
// One thread calls the ledger. No call waits for the disk.
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

// The pages of all slots in one tensor of one worker. They are contiguous, `page_bytes` per slot.
struct HostPages {
  std::byte* begin = nullptr;
  std::uint64_t page_bytes = 0;
};

struct TieredOffloadOptions {
  OffloadOptions host;           // options of host memory, including its `enable_events`
  std::vector<HostPages> pages;  // pages of all workers; the memory must outlive the object
  // One array per worker, indexed by slot: the number of the last store copied into the slot. The worker writes it after the bytes.
  std::vector<const std::uint64_t*> written;
  std::string folder;
  std::uint64_t budget_bytes = 0;              // limit for the whole folder, as `du` counts it
  std::array<std::uint8_t, 32> fingerprint{};  // digest of everything that determines a block's bytes, except its hash
  std::uint64_t bytes_per_second = 0;          // disk limit for each direction; 0: no limit
};

// Totals since the start.
struct TieredOffloadStats {
  std::uint32_t num_places = 0, num_held = 0;  // number of blocks that fit into the folder, and of blocks in it
  std::uint64_t num_restored = 0;              // blocks from earlier processes
  std::uint64_t num_written = 0, bytes_written = 0;
  std::uint64_t num_read = 0, bytes_read = 0;  // copied to host memory
  double reading_s = 0.0;                      // seconds with at least one read in flight
  std::uint64_t num_refused = 0;               // blocks that failed their checksum
  std::uint64_t num_failed = 0;                // blocks for which the disk failed or was too slow
  std::uint64_t num_dropped = 0;               // blocks evicted from host memory before they were written
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
  // Opens the folder. Errors: an option is out of range; the folder has wrong permissions, is in use, or belongs to another model, layout
  // or version; or its disk has no room.
  static Result<std::unique_ptr<TieredOffload>> open(const TieredOffloadOptions& options);
  // Works as open(), with files that are already open. After a failure, the files are opened again at the path `options.folder`.
  QUIRE_HIDDEN static Result<std::unique_ptr<TieredOffload>> open_on(std::unique_ptr<TierFiles> files, const TieredOffloadOptions& options);
  // Finishes the writes in flight.
  ~TieredOffload();
  TieredOffload(const TieredOffload&) = delete;
  TieredOffload& operator=(const TieredOffload&) = delete;

  // Returns how many leading keys can be loaded from host memory. nullopt: some of the keys are being copied from the folder to host
  // memory; call lookup() again later.
  std::optional<std::uint32_t> lookup(std::span<const OffloadKey> keys);
  // The next three functions are the parts of lookup(), for a host that decides itself which blocks to copy from the folder.
  // Returns the state of each key. Starts no copy and counts nothing.
  [[nodiscard]] std::vector<OffloadState> find(std::span<const OffloadKey> keys);
  // Starts copying keys that are only in the folder to host memory: as many leading keys as fit next to the keys that are already there.
  // Returns whether any of the keys are being copied. May evict keys from host memory after the last copied key; call touch() for all keys
  // first.
  bool bring_up(std::span<const OffloadKey> keys);
  // Counts a lookup of the keys for the reuse filter.
  void count(std::span<const OffloadKey> keys);
  // The next functions, up to complete_store(), work as in OffloadManager.
  Result<std::span<const OffloadSlot>> prepare_load(std::span<const OffloadKey> keys);
  Result<void> complete_load(std::span<const OffloadKey> keys);
  void touch(std::span<const OffloadKey> keys);
  void use(std::span<const OffloadKey> keys);
  std::optional<StoreWithNumbers> prepare_store(std::span<const OffloadKey> keys);
  void complete_store(std::span<const OffloadKey> keys, bool success = true);
  // Evicts a key from host memory, as OffloadManager::discard() does. A copy in the folder stays.
  bool discard(const OffloadKey& key);
  [[nodiscard]] std::uint32_t num_slots() const;
  [[nodiscard]] std::size_t num_events() const;
  [[nodiscard]] OffloadEvent event(std::size_t position) const;
  void clear_events();

  // Returns the statistics. Callable on any thread.
  [[nodiscard]] TieredOffloadStats stats() const;

 private:
  struct State;
  QUIRE_HIDDEN explicit TieredOffload(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire
