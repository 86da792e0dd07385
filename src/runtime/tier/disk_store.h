#pragma once
// Stores KV blocks in numbered slots of a folder, within a budget. The user of the store decides which block is in which slot. A load
// either yields the bytes that a tier with the same fingerprint stored under the key, or is a miss. Blocks are not synced to the disk:
// after a crash, a block that was not written completely is a miss.
//
// States of a slot, and what moves it between them:
//   unread   its entry in the table was not read yet     open()
//   empty    no block                                    the reading of the table; a store that failed, a load that was refused
//   storing  a block is being written                    a store
//   held     a block                                     the reading of the table, the end of a store
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/offload.h"
#include "runtime/tier/block_store.h"
#include "runtime/tier/tier_files.h"
#include "runtime/tier/tier_table.h"

namespace quire {

struct DiskStoreOptions {
  std::uint64_t budget_bytes = 0;  // of everything in the folder, as `du` counts it
  std::uint64_t block_bytes = 0;   // of the largest block; at most 1 GiB
  TierFingerprint fingerprint{};
  std::uint32_t depth = 8;             // blocks that the disk moves at a time, per direction; 1 to 256; the store has 4 * depth buffers
  std::uint64_t bytes_per_second = 0;  // limit per direction; 0: no limit
  bool yields_cores = false;           // stores take little of cores that other threads want (base/cpu_share.h)
};

struct RestoredBlock {
  std::uint32_t place = 0;
  std::uint32_t bytes = 0;
  OffloadKey name;
  std::uint64_t sequence = 0;  // blocks that were stored later have greater numbers
};

struct DiskStoreStats {
  std::uint64_t num_stored = 0, num_loaded = 0;
  std::uint64_t bytes_stored = 0, bytes_loaded = 0;
  std::uint64_t num_read = 0, bytes_read = 0;  // read for loads, also for loads that did not succeed
  std::uint64_t num_absent = 0, num_refused = 0, num_cancelled = 0;
  std::uint64_t num_failed_stores = 0, num_failed_loads = 0;
  double loading_s = 0.0;                 // time with at least one load queued or in flight
  std::uint64_t num_restored = 0;         // blocks found in the table when it was read
  std::uint64_t num_entries_refused = 0;  // table entries that did not verify

  [[nodiscard]] std::uint64_t num_failed() const { return num_failed_stores + num_failed_loads; }
};

// A load must name the key that was stored in its slot. The folder is locked, so that only one process uses it at a time.
class DiskStore final : public BlockStore {
 public:
  // Opens the store. Errors: an option is out of range; the budget has no room for a block, or is larger than the disk; the folder holds
  // blocks of another model, layout or version; the table is a file of another program. A tier with a damaged header begins empty.
  static Result<std::unique_ptr<DiskStore>> open(std::unique_ptr<TierFiles> files, const DiskStoreOptions& options);
  // Finishes the blocks in flight; jobs that have not begun fail.
  ~DiskStore() override;
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  // All functions below may be called on any thread.

  [[nodiscard]] std::uint32_t num_places() const override;
  [[nodiscard]] std::uint64_t block_bytes() const override;
  // Returns immediately. Loads begin in the order of submission, and so do stores; they may end in any order.
  void submit(TierJob job) override;
  // Appends the restored blocks of the slots from `first` on, and returns the slot at which to continue. One call covers at most 4,096
  // slots, and only slots whose table entries were read. Call the function again until it returns num_places().
  std::uint32_t restored(std::uint32_t first, std::vector<RestoredBlock>& into) const;
  // Returns the first held block at or after slot `first`; slot 0 follows the last slot. One call inspects at most 4,096 slots and returns
  // nullopt if none of them holds a block.
  [[nodiscard]] std::optional<RestoredBlock> next_held_block(std::uint32_t first) const;
  [[nodiscard]] DiskStoreStats stats() const;

 private:
  struct State;
  explicit DiskStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Returns how many slots fit into a budget that also pays for the table, the lock file, the folder and the file system's extent maps.
std::uint32_t num_slots_within(std::uint64_t budget_bytes, std::uint64_t place_bytes);

}  // namespace quire
