#pragma once
// One search for a cached prefix in a bucket: the cache groups of equal spec. A block is a hit only if all of them have it.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/kv/block_pool.h"
#include "core/kv/hash/hash_list.h"
#include "core/kv/tokens_per_block.h"
#include "quire/base/ids.h"

namespace quire {

// KvCoordinator creates a query, and find() of one kind of attention fills it. The query reads the pool and takes no blocks. The next
// allocation may evict found blocks, so a hit must be attached before any other allocation.
class HitQuery {
 public:
  struct Limits {
    std::int64_t max_tokens = 0;  // maximum length of the hit
    std::int64_t alignment = 0;   // the length of the hit in tokens is a multiple of this
    bool use_eagle = false;       // drop the last block, because the draft model needs it computed again
  };

  // Writes the result to hits[group] for each group of the bucket. `found` has room for one block per group of the bucket.
  HitQuery(const BlockPool& pool, const BlockHashList& hashes, std::span<const std::uint32_t> groups, const Limits& limits,
           std::span<std::vector<BlockId>> hits, std::span<BlockId> found)
      : limits_(limits), pool_(pool), hashes_(hashes), groups_(groups), hits_(hits), found_(found) {
    QUIRE_CHECK(!groups.empty() && groups.size() <= found.size(), "a bucket has groups, and there is room for a block of each");
  }

  [[nodiscard]] const Limits& limits() const { return limits_; }
  // Returns whether a hit of `num_blocks` blocks has an aligned length.
  [[nodiscard]] bool aligned(const TokensPerBlock& tokens, std::int64_t num_blocks) const {
    return tokens.size() == limits_.alignment || num_blocks * tokens.size() % limits_.alignment == 0;
  }
  [[nodiscard]] std::int64_t num_hashed() const { return static_cast<std::int64_t>(hashes_.size()); }

  // Returns whether every group has a block with the hash of block `index`. If so, put() or append() adds these blocks to the hit.
  [[nodiscard]] bool look_up(std::int64_t index) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto block = pool_.find_cached({hashes_[static_cast<std::size_t>(index)], groups_[i]});
      if (!block) return false;
      found_[i] = *block;
    }
    return true;
  }

  // Returns the length of the hit in blocks, which is the same for all groups of the bucket.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(hits_[groups_[0]].size()); }
  void assign_null(std::int64_t num_blocks) {
    QUIRE_CHECK(num_blocks >= 0, "the length of a list is not negative");
    for (const std::uint32_t group : groups_) hits_[group].assign(static_cast<std::size_t>(num_blocks), kNullBlock);
  }
  void append() {
    for (std::size_t i = 0; i < groups_.size(); ++i) hits_[groups_[i]].push_back(found_[i]);
  }
  void put(std::int64_t index) {
    QUIRE_CHECK(index < size(), "the index is below the length set by assign_null");
    for (std::size_t i = 0; i < groups_.size(); ++i) hits_[groups_[i]][static_cast<std::size_t>(index)] = found_[i];
  }
  void truncate(std::int64_t num_blocks) {
    QUIRE_CHECK(num_blocks >= 0 && num_blocks <= size(), "a hit only becomes shorter");
    for (const std::uint32_t group : groups_)
      hits_[group].resize(static_cast<std::size_t>(std::min(num_blocks, static_cast<std::int64_t>(hits_[group].size()))));
  }

 private:
  Limits limits_;
  const BlockPool& pool_;
  const BlockHashList& hashes_;
  std::span<const std::uint32_t> groups_;
  std::span<std::vector<BlockId>> hits_;
  std::span<BlockId> found_;
};

}  // namespace quire
