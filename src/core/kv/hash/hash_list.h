#pragma once
// The keys of blocks that are larger than the hash block size. Instead of a new hash, a key of this kind is the list of the hashes of the
// block's hash blocks (vLLM: BlockHashListWithBlockSize).
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "quire/hash_function.h"

namespace quire {

// A view of a request's hashes. block_size must be a multiple of hash_block_size. Cheap to make for each call.
class BlockHashList {
 public:
  BlockHashList(std::span<const BlockHash> hashes, std::uint32_t hash_block_size, std::uint32_t block_size)
      : hashes_(hashes), hashes_per_block_(hash_block_size == 0 ? 0 : block_size / hash_block_size) {
    QUIRE_CHECK(hash_block_size > 0, "the hash block size is positive");
    QUIRE_CHECK(block_size % hash_block_size == 0, "a block is a whole number of hash blocks");
  }

  // Returns the number of full blocks.
  [[nodiscard]] std::size_t size() const { return hashes_.size() / hashes_per_block_; }
  // Returns the hashes of block `index` < size().
  [[nodiscard]] std::span<const BlockHash> operator[](std::size_t index) const {
    QUIRE_CHECK((index + 1) * hashes_per_block_ <= hashes_.size(), "the block has all of its hashes");
    return hashes_.subspan(index * hashes_per_block_, hashes_per_block_);
  }

 private:
  std::span<const BlockHash> hashes_;
  std::size_t hashes_per_block_;
};

}  // namespace quire
