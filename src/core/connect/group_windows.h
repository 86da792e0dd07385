#pragma once
// Computes which blocks of a prompt each cache group needs, and how much of the prompt a lower tier with some of these blocks can load. The
// rules equal the rules of the core's prefix cache (core/kv/attention_managers.h). A full-attention group needs all blocks. A window group
// needs the blocks that cover the last window - 1 tokens. A state group needs the block that ends where the prompt continues. All groups
// have the same block size.
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"

namespace quire {

// Created once per connector. Counts are in blocks of the cache unless a name says tokens.
class GroupWindows {
 public:
  // Returns an error if there is no group, if a group has another kind of attention or blocks of another size than `config.block_size`, if
  // there are several groups without hits_before_loads, or if all groups have sliding windows of one token.
  static Result<GroupWindows> create(const CoreConfig& config);

  [[nodiscard]] std::uint32_t num_groups() const { return static_cast<std::uint32_t>(windows_.size()); }
  [[nodiscard]] bool has_windows() const { return has_windows_; }
  // Returns whether there is a single group, which needs every block.
  [[nodiscard]] bool is_plain() const { return windows_.size() == 1 && !has_windows_; }
  // Returns the first block of the group to which the token after the first `num_blocks` blocks attends, or `num_blocks` if no such block
  // exists.
  [[nodiscard]] std::uint32_t first_needed(std::uint32_t group, std::uint32_t num_blocks) const {
    QUIRE_CHECK(group < windows_.size(), "the cache group exists");
    const std::uint32_t window = windows_[group];
    const std::uint64_t num_tokens = std::uint64_t{num_blocks} * block_size_;
    return window == 0 || num_tokens < window ? 0 : static_cast<std::uint32_t>((num_tokens - window + 1) / block_size_);
  }

  // Returns the largest number of blocks in [first, end] up to which every group can be filled: each block that the group needs is loadable
  // or lies before `first`. Calls is_loadable(block, group) at most once per pair, in the order of the blocks.
  template <std::predicate<std::uint32_t, std::uint32_t> Loadable>
  std::uint32_t longest(std::uint32_t first, std::uint32_t end, Loadable is_loadable) {
    QUIRE_CHECK(first <= end, "the range of blocks is not reversed");
    runs_.assign(windows_.size(), 0);
    std::uint32_t found = first;
    for (std::uint32_t size = first + 1; size <= end; ++size) {
      bool fits = true;
      for (std::uint32_t group = 0; group < num_groups(); ++group) {
        runs_[group] = is_loadable(size - 1, group) ? runs_[group] + 1 : 0;
        if (runs_[group] == 0 && windows_[group] == 0) return found;
        fits &= runs_[group] >= size - std::max(first_needed(group, size), first);
      }
      if (fits) found = size;
    }
    return found;
  }

 private:
  std::uint32_t block_size_ = 0;  // in tokens
  bool has_windows_ = false;
  std::vector<std::uint32_t> windows_;  // in tokens, by group; 0: all blocks are needed; 2: a state, of which only the last is read
  std::vector<std::uint32_t> runs_;     // by group: number of consecutive loadable blocks that end at the current block
};

}  // namespace quire
