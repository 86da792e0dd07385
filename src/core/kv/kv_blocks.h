#pragma once
// The blocks of one sequence, per cache group. Only KvCacheManager changes them, on the core's thread. The request owns the lists, which
// keep their memory after free(). Other classes get spans, which become invalid at the next change of the sequence's blocks.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"

namespace quire {

// The blocks of a sequence in one cache group. A null block replaces a block that is not held.
struct GroupBlockList {
  std::vector<BlockId> blocks;  // in order of the tokens
  // Unset until blocks were attached or cached; hits may be attached only while it is unset.
  std::optional<std::uint32_t> num_cached_blocks;
  std::uint32_t num_before_allocation = 0;        // the last allocate_slots() appended blocks[num_before_allocation ..]
  std::optional<std::uint32_t> last_state_block;  // mamba align: index of the state before the running one
  // After a fork: index of a block that other sequences may hold too and that is still written to.
  std::optional<std::uint32_t> shared_block;
  std::uint32_t copied_block = 0;  // index of the block that the last allocate_slots() replaced by a copy
  // The block at this index before the copy; the null block if the last allocate_slots() made no copy.
  BlockId copied_from = kNullBlock;
  bool tracked = false;            // the manager counts the sequence as tracked (for the common prefix)
  bool has_running_state = false;  // mamba align: the sequence has a running state and speculative blocks

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    auto& [blocks, num_cached_blocks, num_before_allocation, last_state_block, shared_block, copied_block, copied_from, tracked,
           has_running_state] = self;
    form(blocks, num_cached_blocks, num_before_allocation, last_state_block, shared_block, copied_from, tracked, has_running_state);
    if (copied_from != kNullBlock) form(copied_block);
  }
  // Returns whether the list is as at construction: its manager has not used it, or has freed the sequence since.
  [[nodiscard]] bool is_blank() const {
    return blocks.empty() && !num_cached_blocks && num_before_allocation == 0 && !last_state_block && !shared_block &&
           copied_from == kNullBlock && !tracked && !has_running_state;
  }
};

// Converts a count to an index. Counts of tokens and blocks are signed; list indices are not.
inline std::size_t as_index(std::int64_t value) {
  QUIRE_CHECK(value >= 0, "an index is not negative");
  return static_cast<std::size_t>(value);
}

// A copy on write: `destination` replaces `source` at `index` of the list and gets its content.
struct CopyOnWriteBlock {
  std::uint32_t index = 0;
  BlockId source, destination;
};

// A block that a swapped-out sequence has released, and its index in the list. At swap-in, a new block with the same content takes this
// index.
struct SwappedOutBlock {
  std::uint32_t group = 0, index = 0;
  BlockId block;
  bool was_hashed = false;
};

// A sequence that no manager has used has no groups. Otherwise it has one list per group, which may be empty. Freed lists keep their
// memory, because a preempted request needs them again.
class KvBlocks {
 public:
  // Prefetches the memory that blocks() reads.
  void prefetch() const { __builtin_prefetch(groups_.data()); }
  [[nodiscard]] std::uint32_t num_groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  [[nodiscard]] std::span<const BlockId> blocks(std::uint32_t group) const {
    return group < groups_.size() ? std::span<const BlockId>(groups_[group].blocks) : std::span<const BlockId>();
  }
  // Returns the blocks that the last successful allocate_slots() appended. Hit blocks and blocks for external tokens are not included.
  [[nodiscard]] std::span<const BlockId> new_blocks(std::uint32_t group) const {
    if (group >= groups_.size()) return {};
    const GroupBlockList& list = groups_[group];
    QUIRE_CHECK(list.num_before_allocation <= list.blocks.size(), "a block list does not shrink");
    return std::span<const BlockId>(list.blocks).subspan(list.num_before_allocation);
  }
  // Returns the copy that the last successful allocate_slots() made, or nullopt if it made none.
  [[nodiscard]] std::optional<CopyOnWriteBlock> copy_on_write_block(std::uint32_t group) const {
    if (group >= groups_.size() || groups_[group].copied_from == kNullBlock) return std::nullopt;
    const GroupBlockList& list = groups_[group];
    QUIRE_CHECK(list.copied_block < list.blocks.size(), "the copied block is in the list");
    return CopyOnWriteBlock{list.copied_block, list.copied_from, list.blocks[list.copied_block]};
  }
  [[nodiscard]] std::optional<std::uint32_t> num_cached_blocks(std::uint32_t group) const {
    return group < groups_.size() ? groups_[group].num_cached_blocks : std::nullopt;
  }
  // Returns whether every stored index is within its list and every block is in a pool of `num_pool_blocks` blocks.
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
  std::vector<GroupBlockList> groups_;  // empty until a manager uses the sequence
};

}  // namespace quire
