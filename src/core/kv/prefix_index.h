#pragma once
// Which block holds the content of a given name. Several blocks may carry one name (requests that computed the same prefix at the same
// time); the one inserted first is found. Chains run through arrays indexed by block id over a fixed number of buckets: nothing is
// allocated after construction.
#include <cstdint>
#include <optional>
#include <vector>

#include "core/kv/block_hash.h"
#include "quire/ids.h"

namespace quire {

class PrefixIndex {
 public:
  explicit PrefixIndex(std::uint32_t num_blocks);

  // Number of blocks that carry a name.
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool contains(BlockId block) const { return entries_[block.value].used; }
  // The name of a block that carries one.
  [[nodiscard]] const BlockHash& hash_of(BlockId block) const { return entries_[block.value].hash; }

  [[nodiscard]] std::optional<BlockId> find(const BlockHash& hash) const;
  void insert(const BlockHash& hash, BlockId block);
  void remove(BlockId block);
  void clear();

 private:
  static constexpr std::uint32_t kEnd = UINT32_MAX;
  struct Entry {
    BlockHash hash;
    std::uint32_t prev = kEnd;
    std::uint32_t next = kEnd;
    bool used = false;
  };
  struct Bucket {
    std::uint32_t first = kEnd;
    std::uint32_t last = kEnd;
  };

  [[nodiscard]] const Bucket& bucket(const BlockHash& hash) const { return buckets_[hash.prefix() & (buckets_.size() - 1)]; }
  [[nodiscard]] Bucket& bucket(const BlockHash& hash) { return buckets_[hash.prefix() & (buckets_.size() - 1)]; }

  std::vector<Entry> entries_;
  std::vector<Bucket> buckets_;  // a power of two, at least twice the blocks
  std::uint32_t size_ = 0;
};

}  // namespace quire
