#pragma once
// The blocks of one sequence, per cache group. Only KvCacheManager changes them, on the core's thread. They live in the request and keep
// their memory after free(). Other classes see spans, which the next change of the sequence's blocks invalidates.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"

namespace quire {

// One cache group's block list. Null blocks stand where nothing is kept.
struct GroupBlockList {
  std::vector<BlockId> blocks;                     // in order of the tokens
  std::optional<std::uint32_t> num_cached_blocks;  // unset until blocks were attached or cached; only then may hits be attached
  std::uint32_t num_before_allocation = 0;         // the last allocate_slots() added blocks[num_before_allocation ..]
  std::optional<std::uint32_t> last_state_block;   // mamba align: index of the state before the running one
  std::optional<std::uint32_t> shared_block;       // after a fork: index of a block that is still written to and has other holders too
  std::uint32_t copied_block = 0;                  // index of the block that the last allocate_slots() replaced by a copy
  BlockId copied_from = kNullBlock;                // the block that it replaced; null block: it made no copy
  bool tracked = false;                            // its manager counts the sequence (for the common prefix)
  bool has_running_state = false;                  // mamba align: holds a running state and speculative blocks

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    auto& [blocks, num_cached_blocks, num_before_allocation, last_state_block, shared_block, copied_block, copied_from, tracked,
           has_running_state] = self;
    form(blocks, num_cached_blocks, num_before_allocation, last_state_block, shared_block, copied_from, tracked, has_running_state);
    if (copied_from != kNullBlock) form(copied_block);
  }
  // Returns true if its manager has not met the sequence or has freed it.
  [[nodiscard]] bool is_blank() const {
    return blocks.empty() && !num_cached_blocks && num_before_allocation == 0 && !last_state_block && !shared_block &&
           copied_from == kNullBlock && !tracked && !has_running_state;
  }
};

// Counts of tokens and blocks are signed, list indices are not.
inline std::size_t as_index(std::int64_t value) {
  QUIRE_CHECK(value >= 0, "an index is not negative");
  return static_cast<std::size_t>(value);
}

// A block that is now private to the sequence and gets the content of `source`.
struct CopyOnWriteBlock {
  std::uint32_t index = 0;
  BlockId source, destination;
};

// A block that a sequence has released, and its index in the list, which waits for another block with the same content.
struct SwappedOutBlock {
  std::uint32_t group = 0, index = 0;
  BlockId block;
  bool was_hashed = false;
};

// A blank sequence has no groups. A sequence that a manager has met has one list per group, perhaps empty. Freed lists keep their memory,
// because a preempted request comes back.
class KvBlocks {
 public:
  // Prefetches the memory that blocks() reads.
  void prefetch() const { __builtin_prefetch(groups_.data()); }
  [[nodiscard]] std::uint32_t num_groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  [[nodiscard]] std::span<const BlockId> blocks(std::uint32_t group) const {
    return group < groups_.size() ? std::span<const BlockId>(groups_[group].blocks) : std::span<const BlockId>();
  }
  // Returns the blocks that the last successful allocate_slots() appended, without hits and without blocks for external tokens.
  [[nodiscard]] std::span<const BlockId> new_blocks(std::uint32_t group) const {
    if (group >= groups_.size()) return {};
    const GroupBlockList& list = groups_[group];
    QUIRE_CHECK(list.num_before_allocation <= list.blocks.size(), "a block list does not shrink");
    return std::span<const BlockId>(list.blocks).subspan(list.num_before_allocation);
  }
  // Returns the copy that the last successful allocate_slots() made, if any.
  [[nodiscard]] std::optional<CopyOnWriteBlock> copy_on_write_block(std::uint32_t group) const {
    if (group >= groups_.size() || groups_[group].copied_from == kNullBlock) return std::nullopt;
    const GroupBlockList& list = groups_[group];
    QUIRE_CHECK(list.copied_block < list.blocks.size(), "the copied block is in the list");
    return CopyOnWriteBlock{list.copied_block, list.copied_from, list.blocks[list.copied_block]};
  }
  [[nodiscard]] std::optional<std::uint32_t> num_cached_blocks(std::uint32_t group) const {
    return group < groups_.size() ? groups_[group].num_cached_blocks : std::nullopt;
  }
  // Returns whether every stored index lies within its list and every block belongs to a pool of so many blocks.
  [[nodiscard]] bool is_sound(std::size_t num_groups, std::uint32_t num_pool_blocks) const;

  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    auto& [groups] = self;
    bool is_blank = std::ranges::all_of(groups, &GroupBlockList::is_blank);
    form(is_blank);
    if (!is_blank) form(groups);
  }

 private:
  friend class KvCacheManager;
  std::vector<GroupBlockList> groups_;  // empty until the manager meets the sequence
};

}  // namespace quire
