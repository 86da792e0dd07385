// A block has one key or none: insert() sets it, remove() and clear() delete it. A bucket keeps the order of insertion, so the first match
// is the block that was inserted first. The block pool owns the index and searches it once per block of each looked-up prompt. find()
// therefore allocates nothing and compares keys only within one chain.
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

BlockKey PrefixIndex::name_of(BlockId block) const {
  QUIRE_CHECK(block.value < entries_.size(), "the named block is in the pool");
  const Entry& entry = entries_[block.value];
  QUIRE_CHECK(entry.num_hashes > 0, "the block has a hash");
  return {std::span(hashes_).subspan(std::size_t{block.value} * max_hashes_, entry.num_hashes), entry.group};
}

// Compares the last hash first. Each hash depends on the hashes before it, so the last one differs if any differs. The others are compared
// only because tests use invented hashes.
bool PrefixIndex::matches(std::uint32_t block, const BlockKey& name) const {
  QUIRE_CHECK(name.hashes.size() <= max_hashes_, "a block key has at most as many hashes as its group");
  const BlockHash* hashes = &hashes_[std::size_t{block} * max_hashes_];
  const std::size_t last = name.hashes.size() - 1;
  return hashes[last] == name.hashes[last] && entries_[block].group == name.group &&
         (last == 0 || std::ranges::equal(name.hashes, std::span(hashes, last + 1)));
}

std::optional<BlockId> PrefixIndex::find(const BlockKey& name) const {
  QUIRE_CHECK(!name.hashes.empty(), "a block key has at least one hash");
  for (std::uint32_t at = buckets_[bucket(name)].first; at != kEnd; at = entries_[at].next)
    if (matches(at, name)) return BlockId{at};
  return std::nullopt;
}

std::vector<BlockId> PrefixIndex::to_vector() const {
  std::vector<BlockId> blocks;
  for (const Bucket& bucket : buckets_)
    for (std::uint32_t block = bucket.first; block != kEnd; block = entries_[block].next) blocks.push_back(BlockId{block});
  QUIRE_CHECK(blocks.size() == size_, "the size equals the number of cached blocks");
  return blocks;
}

void PrefixIndex::insert(const BlockKey& name, BlockId block) {
  Entry& entry = entries_[block.value];
  QUIRE_CHECK(entry.num_hashes == 0, "the block has no hash yet");
  QUIRE_CHECK(!name.hashes.empty() && name.hashes.size() <= max_hashes_,
              "a block key has at least one hash, and at most as many as its group");
  Bucket& chain = buckets_[bucket(name)];
  QUIRE_CHECK(chain.last == kEnd || entries_[chain.last].next == kEnd, "the last block of a chain has no next block");
  entry = {chain.last, kEnd, name.group, static_cast<std::uint32_t>(name.hashes.size())};
  std::ranges::copy(name.hashes, &hashes_[std::size_t{block.value} * max_hashes_]);
  (chain.last != kEnd ? entries_[chain.last].next : chain.first) = block.value;
  chain.last = block.value;
  ++size_;
}

void PrefixIndex::remove(BlockId block) {
  Bucket& chain = buckets_[bucket(name_of(block))];
  Entry& entry = entries_[block.value];
  QUIRE_CHECK((entry.prev != kEnd ? entries_[entry.prev].next : chain.first) == block.value, "the chain of a block links to it");
  QUIRE_CHECK(size_ > 0, "a removed block was counted");
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

void PrefixIndex::check_invariants() const {
  std::uint32_t num_chained = 0;
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    QUIRE_CHECK((buckets_[i].first == kEnd) == (buckets_[i].last == kEnd), "a chain has both ends or none");
    std::uint32_t before = kEnd;
    for (std::uint32_t at = buckets_[i].first; at != kEnd; at = entries_[at].next) {
      QUIRE_CHECK(at < entries_.size() && ++num_chained <= size_, "a chain contains only cached blocks, each once");
      QUIRE_CHECK(entries_[at].prev == before, "a chain is linked both ways");
      QUIRE_CHECK(bucket(name_of(BlockId{at})) == i, "a block is in the chain of its hash");
      before = at;
    }
    QUIRE_CHECK(buckets_[i].last == before, "a chain ends with the last block of its bucket");
  }
  QUIRE_CHECK(num_chained == size_, "each cached block is in a chain");
}

std::uint32_t PrefixIndex::previous_of(std::uint32_t block, bool same_key) const {
  QUIRE_CHECK(block < entries_.size() && entries_[block].num_hashes > 0, "the queried block has a hash");
  std::uint32_t at = entries_[block].prev;
  while (same_key && at != kEnd && !matches(at, name_of(BlockId{block}))) at = entries_[at].prev;
  return at;
}

std::vector<PrefixIndex::CachedEntry> PrefixIndex::to_entries(std::vector<BlockHash>& hashes, bool replaced) const {
  std::vector<CachedEntry> all;
  all.reserve(size_);
  hashes.clear();
  hashes.reserve(std::size_t{size_} * max_hashes_);
  for (std::uint32_t block = 0; block < entries_.size(); ++block) {
    const Entry& entry = entries_[block];
    if (entry.num_hashes == 0) continue;
    all.push_back({.block = block, .previous = previous_of(block, replaced), .group = entry.group, .num_hashes = entry.num_hashes});
    const auto first = hashes_.begin() + static_cast<std::ptrdiff_t>(std::size_t{block} * max_hashes_);
    hashes.insert(hashes.end(), first, first + entry.num_hashes);
  }
  QUIRE_CHECK(all.size() == size_, "all cached blocks are listed");
  return all;
}

// Inserts chain by chain, each from its first block. Returns false if a block does not follow its `previous` afterwards.
bool PrefixIndex::assign(std::span<const CachedEntry> all, std::span<const BlockHash> hashes, bool replaced) {
  clear();
  std::vector<std::size_t> first_hash;
  std::vector<std::uint32_t> next(entries_.size(), kEnd), place(entries_.size(), kEnd);
  for (const CachedEntry& named : all) {
    const std::size_t at = first_hash.empty() ? 0 : first_hash.back() + all[first_hash.size() - 1].num_hashes;
    if (named.block >= entries_.size() || place[named.block] != kEnd || named.num_hashes == 0 || named.num_hashes > max_hashes_ ||
        named.num_hashes > hashes.size() - at)
      return false;
    place[named.block] = static_cast<std::uint32_t>(first_hash.size());
    first_hash.push_back(at);
    if (named.previous == kEnd) continue;
    if (named.previous >= entries_.size() || next[named.previous] != kEnd) return false;
    next[named.previous] = named.block;
  }
  for (const CachedEntry& named : all) {
    if (named.previous != kEnd) continue;
    for (std::uint32_t block = named.block; block != kEnd; block = next[block]) {
      const CachedEntry& one = all[place[block]];
      insert(BlockKey(hashes.subspan(first_hash[place[block]], one.num_hashes), one.group), BlockId{block});
      if (previous_of(block, replaced) != one.previous) return false;
    }
  }
  return size_ == all.size();
}

}  // namespace quire
