// A block carries no name or one; insert gives it, remove and clear take it. Within a bucket the order is that of insertion, so the
// first match of a walk is the first inserted of its name.
#include "core/kv/prefix_index.h"

#include <bit>

#include "base/check.h"

namespace quire {

PrefixIndex::PrefixIndex(std::uint32_t num_blocks) : entries_(num_blocks), buckets_(std::bit_ceil(std::size_t{num_blocks} * 2 + 1)) {}

std::optional<BlockId> PrefixIndex::find(const BlockHash& hash) const {
  for (std::uint32_t at = bucket(hash).first; at != kEnd; at = entries_[at].next) {
    if (entries_[at].hash == hash) {
      return BlockId{at};
    }
  }
  return std::nullopt;
}

void PrefixIndex::insert(const BlockHash& hash, BlockId block) {
  Entry& entry = entries_[block.value];
  QUIRE_CHECK(!entry.used, "a block has one name");
  Bucket& chain = bucket(hash);
  entry = {hash, chain.last, kEnd, true};
  (chain.last != kEnd ? entries_[chain.last].next : chain.first) = block.value;
  chain.last = block.value;
  ++size_;
}

void PrefixIndex::remove(BlockId block) {
  Entry& entry = entries_[block.value];
  QUIRE_CHECK(entry.used, "the block carries no name");
  Bucket& chain = bucket(entry.hash);
  (entry.prev != kEnd ? entries_[entry.prev].next : chain.first) = entry.next;
  (entry.next != kEnd ? entries_[entry.next].prev : chain.last) = entry.prev;
  entry = {};
  --size_;
}

void PrefixIndex::clear() {
  entries_.assign(entries_.size(), {});
  buckets_.assign(buckets_.size(), {});
  size_ = 0;
}

}  // namespace quire
