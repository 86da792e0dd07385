#pragma once
// Blocks in host memory and, below it, in a folder, for a host that plans and copies by itself: vLLM's offloading connector. OffloadManager
// (offload_manager.h) decides what host memory holds; what is stored there is written to the folder behind it, and a name that only the
// folder has is brought up before lookup() counts it. So a disk that fails, lies or hangs is a miss, and never a load that comes to
// nothing.
//
// Other processes, the workers, copy between the device and the host memory, which all of them map. What a slot holds is there when each
// worker has written the slot's number beside it; nothing is written to the folder before.
//
// One thread calls it, which never waits for the disk.
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

// What blocks have in one tensor of one worker: page_bytes for each slot, one after the other.
struct HostPages {
  std::byte* begin = nullptr;
  std::uint64_t page_bytes = 0;
};

struct TieredOffloadOptions {
  OffloadOptions host;           // enable_events: of host memory
  std::vector<HostPages> pages;  // of all workers; the memory outlives the object
  // By worker: for each slot the number of what it has copied there last. Written by the worker, after the bytes.
  std::vector<const std::uint64_t*> written;
  std::string folder;
  std::uint64_t budget_bytes = 0;              // of everything in the folder, as `du` counts it
  std::array<std::uint8_t, 32> fingerprint{};  // of all that the bits of a block depend on and its name does not say
  std::uint64_t bytes_per_second = 0;          // of the disk at most, in each direction; 0: as fast as it is
};

// From the start.
struct TieredOffloadStats {
  std::uint32_t num_places = 0, num_held = 0;  // blocks that fit into the folder, and that lie there
  std::uint64_t num_restored = 0;              // from earlier processes
  std::uint64_t num_written = 0, bytes_written = 0;
  std::uint64_t num_read = 0, bytes_read = 0;  // brought up to host memory
  double reading_s = 0.0;                      // while at least one block was wanted
  std::uint64_t num_refused = 0;               // did not verify
  std::uint64_t num_failed = 0;                // the disk failed, or took too long
  std::uint64_t num_dropped = 0;               // left host memory before they were written
  bool loads_left_out = false, stores_left_out = false;
};

// PreparedStore with numbers: what a worker writes beside the slot when it has copied the block. Views as there.
struct NumberedStore {
  std::span<const OffloadKey> keys;
  std::span<const OffloadSlot> slots;
  std::span<const std::uint64_t> numbers;
  std::span<const OffloadKey> evicted;
};

class QUIRE_API TieredOffload {
 public:
  // Errors: an option out of range; those of opening a folder: no rights, in use, of another model, layout or version, no room.
  static Result<std::unique_ptr<TieredOffload>> open(const TieredOffloadOptions& options);
  // The same on files that are open already; `options.folder` is where they are looked for later.
  QUIRE_HIDDEN static Result<std::unique_ptr<TieredOffload>> open_on(std::unique_ptr<TierFiles> files, const TieredOffloadOptions& options);
  // What is being written is finished.
  ~TieredOffload();
  TieredOffload(const TieredOffload&) = delete;
  TieredOffload& operator=(const TieredOffload&) = delete;

  // How many of the keys, from the first one on, can be loaded from host memory without a gap. nullopt: ask again, some of them are on
  // their way up from the folder.
  std::optional<std::uint32_t> lookup(std::span<const OffloadKey> keys);
  // What lookup() does, for a host that decides by itself what is worth bringing up. Of each key, with nothing begun or counted:
  [[nodiscard]] std::vector<OffloadPlace> find(std::span<const OffloadKey> keys);
  // Those that lie below come up, from the first one on, as many as find room beside the others. Whether any of the keys are on their way.
  // Keys that are there already, behind the last one that comes, may go for them: touch() all before.
  bool bring_up(std::span<const OffloadKey> keys);
  // For the reuse filter: they were asked for.
  void count(std::span<const OffloadKey> keys);
  // As those of OffloadManager.
  Result<std::span<const OffloadSlot>> prepare_load(std::span<const OffloadKey> keys);
  Result<void> complete_load(std::span<const OffloadKey> keys);
  void touch(std::span<const OffloadKey> keys);
  void use(std::span<const OffloadKey> keys);
  std::optional<NumberedStore> prepare_store(std::span<const OffloadKey> keys);
  void complete_store(std::span<const OffloadKey> keys, bool success = true);
  // As OffloadManager's, of host memory: what lies below stays.
  bool discard(const OffloadKey& key);
  [[nodiscard]] std::uint32_t num_slots() const;
  [[nodiscard]] std::size_t num_events() const;
  [[nodiscard]] OffloadEvent event(std::size_t position) const;
  void clear_events();

  // Any thread.
  [[nodiscard]] TieredOffloadStats stats() const;

 private:
  struct State;
  QUIRE_HIDDEN explicit TieredOffload(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire
