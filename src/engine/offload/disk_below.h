#pragma once
// The folder below the slots of host memory: writes what is stored there, and brings back what is asked for. It knows what each slot holds
// and decides what the folder does; who gets which slot is decided above (TieredOffload).
//
// States of a slot, and who moves it between them:
//   other -> awaited   expect(): a worker is to copy a block there
//   awaited -> writing the thread here: all workers have written its number
//   writing -> other   the block is in the folder, or is not
//   other -> coming    bring_up(): its bytes are read from the folder
//   coming -> other    take_arrived()
//   any -> awaited, coming   the slot goes to another block; a write that was under way is given up
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
#include "runtime/tier/place_index.h"
#include "runtime/tier/store_transport.h"
#include "runtime/tier/tier_watch.h"

namespace quire {

struct OffloadKeyHash {
  std::size_t operator()(const OffloadKey& key) const { return key.prefix() ^ key.group; }
};

class DiskBelow {
 public:
  // Errors: see TieredOffload::open().
  static Result<std::unique_ptr<DiskBelow>> open(std::unique_ptr<TierFiles> files, const TieredOffloadOptions& options,
                                                 std::uint32_t num_slots);
  ~DiskBelow();
  DiskBelow(const DiskBelow&) = delete;
  DiskBelow& operator=(const DiskBelow&) = delete;

  // One thread calls these; none waits for the disk.

  // A worker will copy the block there, and then write the number that is returned.
  std::uint64_t expect(OffloadSlot slot, const OffloadKey& key);
  // Whether the folder has the block, and is in order.
  [[nodiscard]] bool can_bring(const OffloadKey& key) const;
  // Begins to read the block into the slot. false: it is not there, or a worker has still to write what the slot was given for before.
  bool bring_up(const OffloadKey& key, OffloadSlot slot);
  struct Arrived {
    OffloadKey key;
    bool is_good = false;
  };
  // Appends those that have ended.
  void take_arrived(std::vector<Arrived>& arrived);
  [[nodiscard]] std::uint32_t num_coming() const { return num_coming_; }
  // The keys are wanted: they go last.
  void touch(std::span<const OffloadKey> keys);

  // Any thread.
  [[nodiscard]] TieredOffloadStats stats() const;

 private:
  struct Slot {
    OffloadKey key;
    std::uint64_t number = 0;  // 0: it was never given to a worker
    TransferId write{};        // under way; 0: none
    bool is_awaited = false;
  };
  struct Moving {
    OffloadKey key;
    std::uint32_t slot = 0, place = 0;
    bool is_load = false;
  };
  struct Waiting {
    std::uint32_t slot = 0;
    std::uint64_t number = 0;
  };

  DiskBelow(std::shared_ptr<DiskStore> store, const TieredOffloadOptions& options, std::uint32_t num_slots);
  void run();
  void find_restored();
  void leave(Slot& slot);
  void take_over();
  void write_some();
  void write(std::uint32_t slot, std::uint32_t place);
  [[nodiscard]] bool is_copied(std::uint32_t slot, std::uint64_t number) const;
  TransferId start(const Moving& moving, TransferDirection direction);

  const std::shared_ptr<DiskStore> store_;
  const std::uint32_t block_bytes_;
  const std::vector<const std::uint64_t*> written_;
  KvLayout layout_;
  StoreTransport transport_;
  TierWatch watch_;
  std::uint32_t num_coming_ = 0;  // the calling thread's

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_, as all that follows.
  std::vector<Slot> slots_;
  std::deque<Waiting> waiting_;  // to be written, oldest first; those whose slot has another number by now are passed over
  std::unordered_map<std::uint64_t, Moving> moving_;  // by transfer
  std::vector<Arrived> arrived_;
  std::vector<TransferCompletion> over_;
  PlaceIndex index_;
  std::uint64_t last_number_ = 0, last_transfer_ = 0;
  std::uint64_t num_dropped_ = 0;
  std::uint32_t num_writing_ = 0;
  bool stops_ = false;
  std::thread thread_;
};

}  // namespace quire
