#pragma once
// The folder below the slots of host memory: writes blocks of host memory to the folder, and reads them back on request. It knows which
// block is in each slot, and decides which blocks are written. TieredOffload, the layer above, decides which block gets which slot.
//
// States of a slot, and what moves it between them:
//   other -> awaited         expect(): a worker will copy a block into the slot
//   awaited -> writing       the private thread: all workers have written the slot's number
//   writing -> other         the block is in the folder, or the write failed
//   other -> coming          bring_up(): the block is read from the folder
//   coming -> other          take_promoted()
//   any -> awaited, coming   the slot gets another block; a write in flight is cancelled
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "quire/base/kv_layout.h"
#include "quire/tiered_offload.h"
#include "runtime/tier/disk_store.h"
#include "runtime/tier/slot_index.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/tier_monitor.h"

namespace quire {

struct OffloadKeyHash {
  std::size_t operator()(const OffloadKey& key) const { return key.prefix() ^ key.group; }
};

class OffloadDiskTier {
 public:
  // Opens the store on these files. Errors: the errors of TieredOffload::open().
  static Result<std::unique_ptr<OffloadDiskTier>> open(std::unique_ptr<TierFiles> files, const TieredOffloadOptions& options,
                                                       std::uint32_t num_slots);
  ~OffloadDiskTier();
  OffloadDiskTier(const OffloadDiskTier&) = delete;
  OffloadDiskTier& operator=(const OffloadDiskTier&) = delete;

  // One thread calls the following functions, down to touch(). No call waits for the disk.

  // Registers that the workers will copy the block to the slot. Returns the number that each worker must write to its list of copied slots
  // afterwards.
  std::uint64_t expect(OffloadSlot slot, const OffloadKey& key);
  // Returns whether the folder has the block and reads are possible now.
  [[nodiscard]] bool can_promote(const OffloadKey& key) const;
  // Begins to read the block into the slot. Returns false if the folder does not have the block, or if a worker has not yet copied the
  // slot's previous block.
  bool bring_up(const OffloadKey& key, OffloadSlot slot);
  struct PromotedBlock {
    OffloadKey key;
    bool is_good = false;
  };
  // Appends the reads that have ended since the last call.
  void take_promoted(std::vector<PromotedBlock>& arrived);
  [[nodiscard]] std::uint32_t num_promoting() const { return num_promoting_; }
  // Marks the keys as used, so that they are evicted last.
  void touch(std::span<const OffloadKey> keys);

  // May be called on any thread.
  [[nodiscard]] TieredOffloadStats stats() const;

 private:
  struct Slot {
    OffloadKey key;
    std::uint64_t number = 0;  // 0: the slot was never assigned to a worker
    TransferId write{};        // write in flight; 0: none
    bool awaits_copy = false;
  };
  struct OpenTransfer {
    OffloadKey key;
    std::uint32_t slot = 0, place = 0;
    bool is_load = false;
  };
  struct Waiting {
    std::uint32_t slot = 0;
    std::uint64_t number = 0;
  };

  OffloadDiskTier(std::shared_ptr<DiskStore> store, const TieredOffloadOptions& options, std::uint32_t num_slots);
  void run();
  void find_restored();
  void leave(Slot& slot);
  void take_over();
  void write_some();
  void write(std::uint32_t slot, std::uint32_t place);
  [[nodiscard]] bool is_copied(std::uint32_t slot, std::uint64_t number) const;
  TransferId start(const OpenTransfer& moving, TransferDirection direction);

  const std::shared_ptr<DiskStore> store_;
  const std::uint32_t block_bytes_;
  const std::vector<const std::uint64_t*> written_;
  KvLayout layout_;
  StoreTransport transport_;
  TierMonitor monitor_;
  std::uint32_t num_promoting_ = 0;  // used by the calling thread only

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, like all members below.
  std::vector<Slot> slots_;
  std::deque<Waiting> waiting_;  // blocks to write, oldest first; an entry is skipped if its slot has a newer number
  std::unordered_map<std::uint64_t, OpenTransfer> open_transfers_;  // by transfer
  std::vector<PromotedBlock> promoted_;
  std::vector<TransferCompletion> over_;
  SlotIndex index_;
  std::uint64_t last_number_ = 0, last_transfer_ = 0;
  std::uint64_t num_dropped_ = 0;
  std::uint32_t num_writing_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
