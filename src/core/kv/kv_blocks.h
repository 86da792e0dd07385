#pragma once
// The blocks of one sequence, per cache group. Changed by KvCacheManager only; lives in the request, survives free() with its memory.
// On the core's thread. Others see spans of it, which the next change of the sequence's blocks ends.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"

namespace quire {

// One cache group's part. Null blocks stand where nothing is kept.
struct GroupBlockList {
  std::vector<BlockId> blocks;                     // in the order of the tokens
  std::optional<std::uint32_t> num_cached_blocks;  // unset until something was attached or cached: only then may hits still be attached
  std::uint32_t num_before_allocation = 0;         // blocks[num_before_allocation ..] came with the last allocate_slots()
  std::optional<std::uint32_t> last_state_block;   // mamba align: index of the state before the running one
  std::optional<std::uint32_t> shared_block;       // since a fork: index of a block that is still written to, by others who hold it too
  std::uint32_t copied_block = 0;                  // the last allocate_slots() replaced this one,
  BlockId copied_from = kNullBlock;                // which was this block; null: it did not
  bool tracked = false;                            // is one of the sequences its manager counts (common prefix)
  bool has_running_state = false;                  // mamba align: holds a running state and speculative blocks

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    auto& [blocks, num_cached_blocks, num_before_allocation, last_state_block, shared_block, copied_block, copied_from, tracked,
           has_running_state] = self;
    form(blocks, num_cached_blocks, num_before_allocation, last_state_block, shared_block, copied_from, tracked, has_running_state);
    if (copied_from != kNullBlock) form(copied_block);
  }
  // As good as none: its manager has not met the sequence, or has freed it.
  [[nodiscard]] bool is_blank() const {
    return blocks.empty() && !num_cached_blocks && num_before_allocation == 0 && !last_state_block && !shared_block &&
           copied_from == kNullBlock && !tracked && !has_running_state;
  }
};

// Counts of tokens and blocks are signed, places in a list are not.
inline std::size_t as_index(std::int64_t value) {
  QUIRE_CHECK(value >= 0, "a place in a list");
  return static_cast<std::size_t>(value);
}

// A block that the sequence has to itself now: its content is that of `source`.
struct OwnCopy {
  std::uint32_t index = 0;
  BlockId source, destination;
};

// A block that a sequence has given away, and the place in its list that waits for another one with the same content.
struct TakenBlock {
  std::uint32_t group = 0, index = 0;
  BlockId block;
  bool had_name = false;

  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    auto& [group, index, block, had_name] = self;
    form(group, index, block, had_name);
  }
};

// The sequence is blank (no groups), or met by a manager (a list per group, perhaps empty). Lists keep their memory when they are freed,
// since a request that was preempted comes back.
class KvBlocks {
 public:
  // Asks the processor for what blocks() reads.
  void prefetch() const { __builtin_prefetch(groups_.data()); }
  [[nodiscard]] std::uint32_t num_groups() const { return static_cast<std::uint32_t>(groups_.size()); }
  [[nodiscard]] std::span<const BlockId> blocks(std::uint32_t group) const {
    return group < groups_.size() ? std::span<const BlockId>(groups_[group].blocks) : std::span<const BlockId>();
  }
  // What the last successful allocate_slots() appended, without the hit and without blocks for external tokens.
  [[nodiscard]] std::span<const BlockId> new_blocks(std::uint32_t group) const {
    if (group >= groups_.size()) return {};
    const GroupBlockList& list = groups_[group];
    QUIRE_CHECK(list.num_before_allocation <= list.blocks.size(), "a list does not shrink");
    return std::span<const BlockId>(list.blocks).subspan(list.num_before_allocation);
  }
  // What the last successful allocate_slots() took a copy of.
  [[nodiscard]] std::optional<OwnCopy> own_copy(std::uint32_t group) const {
    if (group >= groups_.size() || groups_[group].copied_from == kNullBlock) return std::nullopt;
    const GroupBlockList& list = groups_[group];
    QUIRE_CHECK(list.copied_block < list.blocks.size(), "the copy is in the list");
    return OwnCopy{list.copied_block, list.copied_from, list.blocks[list.copied_block]};
  }
  [[nodiscard]] std::optional<std::uint32_t> num_cached_blocks(std::uint32_t group) const {
    return group < groups_.size() ? groups_[group].num_cached_blocks : std::nullopt;
  }
  // Whether no place that a list names lies behind it, and all its blocks are of a pool of so many.
  [[nodiscard]] bool is_sound(std::size_t num_groups, std::uint32_t num_pool_blocks) const;

  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    auto& [groups] = self;
    bool is_blank = std::ranges::all_of(groups, &GroupBlockList::is_blank);
    form(is_blank);
    if (!is_blank) form(groups);
  }

 private:
  friend class KvCacheManager;
  std::vector<GroupBlockList> groups_;  // empty until the manager meets it
};

}  // namespace quire
