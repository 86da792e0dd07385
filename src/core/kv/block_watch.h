#pragma once
// Keeps per-block data for a watcher (quire/watch.h) up to date while a watcher is attached, so that reading all blocks is a single copy.
// The data affects no decision and is not part of a checkpoint.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"
#include "quire/watch.h"

namespace quire {

// Belongs to the block pool, which reports every change of a block. Without a watcher it uses no memory, and each call only checks a flag.
class BlockWatch {
 public:
  [[nodiscard]] bool is_on() const { return !blocks_.empty(); }
  // Begins with the current state of all blocks. The time of their earlier uses is unknown.
  void begin(std::vector<WatchedBlock> blocks) {
    QUIRE_CHECK(!blocks.empty(), "the pool has at least one block");
    blocks_ = std::move(blocks);
  }
  void end() { blocks_ = {}; }
  // Sets the time of the following calls, in seconds.
  void at(double now_s) { now_ = now_s > 0.0 ? static_cast<std::uint32_t>(static_cast<std::uint64_t>(now_s * kPerSecond)) : 0; }

  void on_allocated(BlockId block) {
    if (is_on()) blocks_[block.value] = {.last_use = now_, .num_holders = 1};
  }
  // Records that one more request uses the block, which now has `num_holders` holders.
  void on_found(BlockId block, std::uint32_t num_holders) {
    if (!is_on()) return;
    QUIRE_CHECK(block.value < blocks_.size(), "a found block is in the pool");
    WatchedBlock& shown = blocks_[block.value];
    shown.last_use = now_;
    shown.num_holders = saturated(num_holders);
    if (shown.num_hits < std::numeric_limits<std::uint16_t>::max()) ++shown.num_hits;
  }
  void on_released(BlockId block, std::uint32_t num_holders) {
    if (!is_on()) return;
    QUIRE_CHECK(block.value < blocks_.size(), "a released block is in the pool");
    blocks_[block.value].last_use = now_;
    blocks_[block.value].num_holders = saturated(num_holders);
  }
  void on_hashed(BlockId block) {
    if (is_on()) blocks_[block.value].flags = WatchedBlock::kCached;
  }
  void on_hash_removed(BlockId block) {
    if (is_on()) blocks_[block.value].flags = 0;
  }
  void on_all_hashes_removed() {
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
  std::vector<WatchedBlock> blocks_;  // by block id, without owners and transfers; empty without a watcher
};

}  // namespace quire
