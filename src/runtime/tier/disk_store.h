#pragma once
// KV blocks in a folder, in numbered places, within a budget. Who decides what lies where is its user; the store sees to the bytes: what
// load() gives was stored under that name by a tier of the same fingerprint, or it is a miss. Nothing is synchronised on the way: after a
// crash each block verifies or is missing.
//
// States of a place, and who moves it between them:
//   unread   what the table says of it was not read yet   open()
//   empty    nothing                                      the reading of the table; a store that failed, a load that was refused
//   storing  a block is being written                     a store
//   held     a block                                      the reading of the table, a store that is over
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
  std::uint32_t depth = 8;             // blocks that the disk moves at a time in each direction; 1 to 256; four times as many buffers
  std::uint64_t bytes_per_second = 0;  // at most, in each direction; 0: as fast as the disk is
  bool gives_way = false;              // stores take little of cores that others want (base/core_share.h)
};

struct RestoredBlock {
  std::uint32_t place = 0;
  std::uint32_t bytes = 0;
  OffloadKey name;
  std::uint64_t sequence = 0;  // greater: stored later
};

struct DiskStoreStats {
  std::uint64_t num_stored = 0, num_loaded = 0;
  std::uint64_t bytes_stored = 0, bytes_loaded = 0;
  std::uint64_t num_read = 0, bytes_read = 0;  // for loads, whatever became of them
  std::uint64_t num_absent = 0, num_refused = 0, num_given_up = 0;
  std::uint64_t num_failed_stores = 0, num_failed_loads = 0;
  double loading_s = 0.0;                 // while at least one block was wanted
  std::uint64_t num_restored = 0;         // blocks that the table named when it was read
  std::uint64_t num_entries_refused = 0;  // entries that did not verify then

  [[nodiscard]] std::uint64_t num_failed() const { return num_failed_stores + num_failed_loads; }
};

// What lies where is its user's decision, by number; a name that is asked for must be the one that was stored there. It serves one folder
// and one process: the folder is locked.
class DiskStore final : public BlockStore {
 public:
  // Errors: an option out of range; a budget without room for a block, or more than the disk has; a folder of another model, layout or
  // version, or one that is no tier's. A tier whose header is broken begins empty.
  static Result<std::unique_ptr<DiskStore>> open(std::unique_ptr<TierFiles> files, const DiskStoreOptions& options);
  // What is under way is finished, what was not begun fails.
  ~DiskStore() override;
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;

  // Any thread may call the rest.

  [[nodiscard]] std::uint32_t num_places() const override;
  [[nodiscard]] std::uint64_t block_bytes() const override;
  // Returns at once. Loads begin in the order of their coming, and so do stores; they end in any.
  void submit(TierJob job) override;
  // Appends blocks that were found in places [first, returned number), some thousands, as far as the table has been read: ask on until it
  // is num_places().
  std::uint32_t restored(std::uint32_t first, std::vector<RestoredBlock>& into) const;
  // The first block that is held, from this place on and around; some thousands of places are looked at.
  [[nodiscard]] std::optional<RestoredBlock> held_from(std::uint32_t first) const;
  [[nodiscard]] DiskStoreStats stats() const;

 private:
  struct State;
  explicit DiskStore(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// How many places fit into a budget beside table, lock, folder and what the file system needs to find them.
std::uint32_t places_within(std::uint64_t budget_bytes, std::uint64_t place_bytes);

}  // namespace quire
