#pragma once
// What somebody who watches is shown of each block (quire/watch.h), kept up to date while he does: a look is then one copy. Decides
// nothing, and is no part of a checkpoint.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"
#include "quire/watch.h"

namespace quire {

// Belongs to the block pool, which tells it what happens. While nobody watches it takes no memory, and a look at a flag per call.
class ShownBlocks {
 public:
  [[nodiscard]] bool is_on() const { return !blocks_.empty(); }
  // As they are now; nothing is known of their uses.
  void begin(std::vector<WatchedBlock> blocks) {
    QUIRE_CHECK(!blocks.empty(), "a pool has blocks: none would mean that nobody watches");
    blocks_ = std::move(blocks);
  }
  void end() { blocks_ = {}; }
  // What follows happens at this time, s.
  void at(double now_s) { now_ = now_s > 0.0 ? static_cast<std::uint32_t>(static_cast<std::uint64_t>(now_s * kPerSecond)) : 0; }

  void on_allocated(BlockId block) {
    if (is_on()) blocks_[block.value] = {.last_use = now_, .num_holders = 1};
  }
  // By one more request: so many hold it now.
  void on_found(BlockId block, std::uint32_t num_holders) {
    if (!is_on()) return;
    QUIRE_CHECK(block.value < blocks_.size(), "a block of the pool is found");
    WatchedBlock& shown = blocks_[block.value];
    shown.last_use = now_;
    shown.num_holders = saturated(num_holders);
    if (shown.num_hits < std::numeric_limits<std::uint16_t>::max()) ++shown.num_hits;
  }
  void on_released(BlockId block, std::uint32_t num_holders) {
    if (!is_on()) return;
    QUIRE_CHECK(block.value < blocks_.size(), "a block of the pool is let go");
    blocks_[block.value].last_use = now_;
    blocks_[block.value].num_holders = saturated(num_holders);
  }
  void on_named(BlockId block) {
    if (is_on()) blocks_[block.value].flags = WatchedBlock::kCached;
  }
  void on_forgotten(BlockId block) {
    if (is_on()) blocks_[block.value].flags = 0;
  }
  void on_all_forgotten() {
    for (WatchedBlock& shown : blocks_) shown.flags = 0;
  }

  [[nodiscard]] const std::vector<WatchedBlock>& all() const { return blocks_; }
  [[nodiscard]] static std::uint8_t saturated(std::uint32_t num_holders) {
    constexpr std::uint32_t kMost = std::numeric_limits<std::uint8_t>::max();
    return static_cast<std::uint8_t>(std::min(num_holders, kMost));
  }

 private:
  static constexpr double kPerSecond = 10.0;
  std::uint32_t now_ = 0;
  std::vector<WatchedBlock> blocks_;  // by id, without owners and transfers; empty: nobody watches
};

}  // namespace quire
