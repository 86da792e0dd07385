#pragma once
// Blocks move from the tier in host memory down to the disk as they cool: those that would be evicted next are copied to the folder, some
// at a time, and stay where they are until others need the place. What is evicted before that is lost to both.
//
// States of a block here, and who moves it between them:
//   (in memory) -> under way   tend(): held there, and given a place on disk
//   under way -> over          the disk's thread: it is written, or is not
//   over -> (on disk)          tend(): released there, and found here if it was written
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
  // `to` outlives it, and is the connector of the tier whose store this is. By cache group, what a block has.
  TierSpill(std::shared_ptr<DramTier> from, OffloadConnector& to, std::shared_ptr<DiskStore> store, std::vector<std::uint64_t> group_bytes);
  // Whoever is notified is so no more.
  ~TierSpill();
  TierSpill(const TierSpill&) = delete;
  TierSpill& operator=(const TierSpill&) = delete;

  // Called when a block is over, from the disk's thread.
  void notify_with(std::function<void()> notify);
  // The engine's thread, between two steps; whether it did anything. `may_store`: the disk does.
  bool tend(bool may_store);
  [[nodiscard]] std::uint64_t num_spilled() const { return num_spilled_; }

 private:
  struct Ended {
    OffloadKey key;
    bool is_stored;
  };
  struct Shared;  // with the disk's thread

  bool take_ended();
  bool begin_some();
  bool begin(const OffloadKey& key);

  const std::shared_ptr<DramTier> from_;
  OffloadConnector& to_;
  const std::shared_ptr<DiskStore> store_;
  const std::vector<std::uint64_t> group_bytes_;
  const std::shared_ptr<Shared> shared_;
  std::uint32_t num_under_way_ = 0;
  std::uint64_t num_spilled_ = 0;
  std::vector<OffloadKey> next_;
  std::vector<Ended> ended_;
};

}  // namespace quire
