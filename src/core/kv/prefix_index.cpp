// A block carries no name or one; insert gives it, remove and clear take it. Within a bucket the order is that of insertion, so the
// first match of a walk is the first inserted of its name.
// Owned by the block pool; asked once for each block of each prompt that is looked up, so a find allocates nothing and compares names only
// within one chain.
#include "core/kv/prefix_index.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace quire {

PrefixIndex::PrefixIndex(std::uint32_t num_blocks, std::uint32_t max_hashes)
    : max_hashes_(max_hashes),
      entries_(num_blocks),
      hashes_(std::size_t{num_blocks} * max_hashes),
      buckets_(std::bit_ceil(std::size_t{num_blocks} * 2 + 1)) {
  QUIRE_CHECK(max_hashes > 0);
}

BlockName PrefixIndex::name_of(BlockId block) const {
  const Entry& entry = entries_[block.value];
  QUIRE_CHECK(entry.num_hashes > 0, "the block carries no name");
  return {std::span(hashes_).subspan(std::size_t{block.value} * max_hashes_, entry.num_hashes), entry.group};
}

// The last hash is compared first: it is chained over the others, so unless a test makes hashes up it differs whenever one of them does.
bool PrefixIndex::matches(std::uint32_t block, const BlockName& name) const {
  const BlockHash* hashes = &hashes_[std::size_t{block} * max_hashes_];
  const std::size_t last = name.hashes.size() - 1;
  return hashes[last] == name.hashes[last] && entries_[block].group == name.group &&
         (last == 0 || std::ranges::equal(name.hashes, std::span(hashes, last + 1)));
}

std::optional<BlockId> PrefixIndex::find(const BlockName& name) const {
  QUIRE_CHECK(!name.hashes.empty(), "a name has a hash");
  for (std::uint32_t at = buckets_[bucket(name)].first; at != kEnd; at = entries_[at].next)
    if (matches(at, name)) return BlockId{at};
  return std::nullopt;
}

std::vector<BlockId> PrefixIndex::to_vector() const {
  std::vector<BlockId> blocks;
  for (const Bucket& bucket : buckets_)
    for (std::uint32_t block = bucket.first; block != kEnd; block = entries_[block].next) blocks.push_back(BlockId{block});
  QUIRE_CHECK(blocks.size() == size_, "blocks with a name are counted");
  return blocks;
}

void PrefixIndex::insert(const BlockName& name, BlockId block) {
  Entry& entry = entries_[block.value];
  QUIRE_CHECK(entry.num_hashes == 0, "a block has one name");
  QUIRE_CHECK(!name.hashes.empty() && name.hashes.size() <= max_hashes_, "a name has at least one hash and as many as its group has");
  Bucket& chain = buckets_[bucket(name)];
  QUIRE_CHECK(chain.last == kEnd || entries_[chain.last].next == kEnd, "the last of a chain");
  entry = {chain.last, kEnd, name.group, static_cast<std::uint32_t>(name.hashes.size())};
  std::ranges::copy(name.hashes, &hashes_[std::size_t{block.value} * max_hashes_]);
  (chain.last != kEnd ? entries_[chain.last].next : chain.first) = block.value;
  chain.last = block.value;
  ++size_;
}

void PrefixIndex::remove(BlockId block) {
  Bucket& chain = buckets_[bucket(name_of(block))];
  Entry& entry = entries_[block.value];
  QUIRE_CHECK((entry.prev != kEnd ? entries_[entry.prev].next : chain.first) == block.value, "the chain passes here");
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
