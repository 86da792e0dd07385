#pragma once
// Moves blocks from the tier in host memory to disk before they are evicted. The blocks that would be evicted next are copied to the
// folder, a few at a time. Copied blocks also stay in memory until other blocks need their slots. A block that is evicted before it is
// copied is lost.
//
// States of a block here, and what moves it to the next state:
//   (in memory) -> in flight   maintain(): held in memory, with a slot on disk
//   in flight -> over          the disk's thread: the block is written, or the write failed
//   over -> (on disk)          maintain(): released in memory, and found on disk if it was written
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/connect/offload_connector.h"
#include "engine/tiers/dram_tier.h"
#include "runtime/tier/disk_store.h"

namespace quire {

class TierSpill {
 public:
  // One in kReadyShare slots in memory, at most 256 slots, is kept ready: it is free, or holds a block that is on disk or is being written
  // to disk.
  static constexpr std::uint32_t kReadyShare = 2;

  // Creates a spill. `to` is the connector of the tier that uses `store`, and must outlive this object. `group_bytes` are the bytes of a
  // block, by cache group.
  TierSpill(std::shared_ptr<DramTier> from, OffloadConnector& to, std::shared_ptr<DiskStore> store, std::vector<std::uint64_t> group_bytes);
  // Removes the callback, so that it is not called any more.
  ~TierSpill();
  TierSpill(const TierSpill&) = delete;
  TierSpill& operator=(const TierSpill&) = delete;

  // Sets the callback, which the disk's thread calls when the write of a block is over.
  void set_notify(std::function<void()> notify);
  // Handles writes that are over, and starts new ones. Called on the engine thread between two steps. Returns whether the call did
  // anything. `may_store`: the disk accepts stores.
  bool maintain(bool may_store);
  [[nodiscard]] std::uint64_t num_spilled() const { return num_spilled_; }

 private:
  struct Ended {
    OffloadKey key;
    bool is_stored;
  };
  struct Shared;  // state shared with the disk's thread

  bool take_ended();
  bool start_stores();
  bool begin(const OffloadKey& key);

  const std::shared_ptr<DramTier> from_;
  OffloadConnector& to_;
  const std::shared_ptr<DiskStore> store_;
  const std::vector<std::uint64_t> group_bytes_;
  const std::shared_ptr<Shared> shared_;
  std::uint32_t num_in_flight_ = 0;
  std::uint64_t num_spilled_ = 0;
  std::vector<OffloadKey> next_;
  std::vector<Ended> ended_;
};

}  // namespace quire
