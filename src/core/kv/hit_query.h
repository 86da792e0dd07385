#pragma once
// One search for a cached prefix in a bucket: cache groups of equal spec, which hit together or not at all.
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

// Made by KvCoordinator, filled by the find() of one kind of attention. It reads the pool and takes nothing: blocks that are found may be
// evicted by the next allocation, so a hit is attached before anything else is allocated.
class HitQuery {
 public:
  struct Limits {
    std::int64_t max_tokens = 0;  // of the hit
    std::int64_t alignment = 0;   // the hit's tokens are a multiple of this
    bool use_eagle = false;       // the drafter must see the last block computed anew
  };

  // hits[group] is written for each group of the bucket; `found` has room for one block per group of the bucket.
  HitQuery(const BlockPool& pool, const BlockHashList& names, std::span<const std::uint32_t> groups, const Limits& limits,
           std::span<std::vector<BlockId>> hits, std::span<BlockId> found)
      : limits_(limits), pool_(pool), names_(names), groups_(groups), hits_(hits), found_(found) {
    QUIRE_CHECK(!groups.empty() && groups.size() <= found.size(), "a bucket has groups, and room for a block of each");
  }

  [[nodiscard]] const Limits& limits() const { return limits_; }
  // A hit of so many blocks keeps to the alignment.
  [[nodiscard]] bool aligned(const TokensPerBlock& tokens, std::int64_t num_blocks) const {
    return tokens.size() == limits_.alignment || num_blocks * tokens.size() % limits_.alignment == 0;
  }
  [[nodiscard]] std::int64_t num_named() const { return static_cast<std::int64_t>(names_.size()); }

  // Whether every group has a block with the name of block `index`; put(), append() then take those.
  [[nodiscard]] bool look_up(std::int64_t index) {
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const auto block = pool_.find_cached({names_[static_cast<std::size_t>(index)], groups_[i]});
      if (!block) return false;
      found_[i] = *block;
    }
    return true;
  }

  // All lists of the bucket have the same length.
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(hits_[groups_[0]].size()); }
  void assign_null(std::int64_t num_blocks) {
    QUIRE_CHECK(num_blocks >= 0, "a list has a length");
    for (const std::uint32_t group : groups_) hits_[group].assign(static_cast<std::size_t>(num_blocks), kNullBlock);
  }
  void append() {
    for (std::size_t i = 0; i < groups_.size(); ++i) hits_[groups_[i]].push_back(found_[i]);
  }
  void put(std::int64_t index) {
    QUIRE_CHECK(index < size(), "into a place made by assign_null");
    for (std::size_t i = 0; i < groups_.size(); ++i) hits_[groups_[i]][static_cast<std::size_t>(index)] = found_[i];
  }
  void truncate(std::int64_t num_blocks) {
    QUIRE_CHECK(num_blocks >= 0 && num_blocks <= size(), "a hit is cut, not extended");
    for (const std::uint32_t group : groups_)
      hits_[group].resize(static_cast<std::size_t>(std::min(num_blocks, static_cast<std::int64_t>(hits_[group].size()))));
  }

 private:
  Limits limits_;
  const BlockPool& pool_;
  const BlockHashList& names_;
  std::span<const std::uint32_t> groups_;
  std::span<std::vector<BlockId>> hits_;
  std::span<BlockId> found_;
};

}  // namespace quire
