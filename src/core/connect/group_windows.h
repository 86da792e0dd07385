#pragma once
// Which blocks of a prompt each cache group needs, and how far a lower tier that holds some of them reaches. The rules are those of the
// core's own prefix cache (core/kv/attention_managers.h): a group of full attention needs all blocks, one with a window those that cover
// the last window - 1 tokens, one of states the block at whose end a prompt goes on. Groups have blocks of one size.
#include <algorithm>
#include <concepts>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"

namespace quire {

// A value, made once per connector. Counts are of blocks of the cache unless they say tokens.
class GroupWindows {
 public:
  // Errors: the groups keep something else, or blocks of another size than `config.block_size`; several without hits_before_loads.
  static Result<GroupWindows> create(const CoreConfig& config);

  [[nodiscard]] std::uint32_t num_groups() const { return static_cast<std::uint32_t>(windows_.size()); }
  [[nodiscard]] bool has_windows() const { return has_windows_; }
  // One group, and it needs every block.
  [[nodiscard]] bool is_plain() const { return windows_.size() == 1 && !has_windows_; }
  // The first block of the group that the token behind the first so many blocks attends to; there is none where it is `num_blocks`.
  [[nodiscard]] std::uint32_t first_needed(std::uint32_t group, std::uint32_t num_blocks) const {
    QUIRE_CHECK(group < windows_.size(), "a group of the cache");
    const std::uint32_t window = windows_[group];
    const std::uint64_t num_tokens = std::uint64_t{num_blocks} * block_size_;
    return window == 0 || num_tokens < window ? 0 : static_cast<std::uint32_t>((num_tokens - window + 1) / block_size_);
  }

  // The greatest number of blocks in [first, end] to which each group can be filled up: those that it needs are loadable, or lie before
  // `first`. Asks is_loadable(block, group) of each at most once, in the order of the blocks.
  template <std::predicate<std::uint32_t, std::uint32_t> Loadable>
  std::uint32_t longest(std::uint32_t first, std::uint32_t end, Loadable is_loadable) {
    QUIRE_CHECK(first <= end, "what is wanted lies behind what is there");
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
  std::uint32_t block_size_ = 0;  // tokens
  bool has_windows_ = false;
  std::vector<std::uint32_t> windows_;  // tokens, by group; 0: all; 2 where the state behind the last token is all that is read
  std::vector<std::uint32_t> runs_;     // of loadable blocks up to here, by group
};

}  // namespace quire
