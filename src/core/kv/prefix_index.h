#pragma once
// Maps a block hash to the block with this content. Several blocks may have the same hash, if requests computed the same prefix at the same
// time; find() returns the block that was inserted first. A hash table with chains through arrays indexed by block id. It has a fixed
// number of buckets, so nothing is allocated after construction.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"
#include "quire/hash_function.h"

namespace quire {

// The key of a cached block: its cache group and the hashes of its hash blocks. The key has one hash unless the group's blocks are larger
// than the hash block size. A view. vLLM concatenates the hashes and appends the group as four big-endian bytes.
struct BlockKey {
  std::span<const BlockHash> hashes;
  std::uint32_t group = 0;

  BlockKey(std::span<const BlockHash> all_hashes, std::uint32_t cache_group) : hashes(all_hashes), group(cache_group) {}
  BlockKey(const BlockHash& hash, std::uint32_t cache_group = 0) : hashes(&hash, 1), group(cache_group) {}  // NOLINT: a hash is a key
};

// Uses chains instead of open addressing: an evicted block is removed by its id in O(1), without a tombstone that would slow down later
// searches.
class PrefixIndex {
 public:
  // A key has at most max_hashes hashes. All keys of a group have the same number of hashes.
  explicit PrefixIndex(std::uint32_t num_blocks, std::uint32_t max_hashes = 1);

  // Returns the number of blocks that have a hash.
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool contains(BlockId block) const {
    QUIRE_CHECK(block.value < entries_.size(), "the queried block is in the pool");
    return entries_[block.value].num_hashes != 0;
  }
  // Returns the key of a block that has one; valid until the block is removed.
  [[nodiscard]] BlockKey name_of(BlockId block) const;
  // Returns the last hash of the block's key. It depends on the hashes before it, so it identifies the block.
  [[nodiscard]] const BlockHash& hash_of(BlockId block) const { return name_of(block).hashes.back(); }

  [[nodiscard]] std::optional<BlockId> find(const BlockKey& name) const;
  // Returns all blocks that have a hash. Blocks with equal keys are in order of insertion.
  [[nodiscard]] std::vector<BlockId> to_vector() const;
  void insert(const BlockKey& name, BlockId block);
  void remove(BlockId block);
  void clear();
  // Stops the program if a chain is broken or a key is in a wrong chain.
  void check_invariants() const;

  // A cached block, and the block before it in its chain (kEnd: none), which saves the order of insertion.
  struct CachedEntry {
    static constexpr bool kIsRaw = true;  // has no padding: stored as raw bytes
    std::uint32_t block = 0, previous = 0, group = 0, num_hashes = 0;
  };
  // Returns the cached blocks by id, and fills `hashes` with their hashes, concatenated. If `replaced`, the hashes will be replaced by
  // others, which changes the chains: `previous` is then the previous block with the same key.
  [[nodiscard]] std::vector<CachedEntry> to_entries(std::vector<BlockHash>& hashes, bool replaced) const;
  // Replaces the content by these blocks. Returns false if they contradict each other; the index is then unusable.
  [[nodiscard]] bool assign(std::span<const CachedEntry> all, std::span<const BlockHash> hashes, bool replaced);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [max_hashes, entries, hashes, buckets, size] = self;
    std::vector<CachedEntry> named;
    std::vector<BlockHash> names;
    bool replaced = false;
    if constexpr (!Archive::kIsReading) replaced = form.omits_tokens;
    if constexpr (!Archive::kIsReading) named = self.to_entries(names, replaced);
    form(replaced, named, names);
    if constexpr (Archive::kIsReading) form.expect(self.assign(named, names, replaced), "cached blocks are in the chains of their hashes");
  }

 private:
  static constexpr std::uint32_t kEnd = UINT32_MAX;
  struct Entry {
    std::uint32_t prev = kEnd;
    std::uint32_t next = kEnd;
    std::uint32_t group = 0;
    std::uint32_t num_hashes = 0;  // 0: the block has no hash
  };
  struct Bucket {
    std::uint32_t first = kEnd;
    std::uint32_t last = kEnd;
  };

  [[nodiscard]] std::size_t bucket(const BlockKey& name) const {
    return (name.hashes.back().prefix() + name.group * 0x9E3779B97F4A7C15ULL) & (buckets_.size() - 1);
  }
  [[nodiscard]] bool matches(std::uint32_t block, const BlockKey& name) const;
  // Returns the previous block in the chain of `block`; with `same_key`, the previous block with the same key. Returns kEnd if none exists.
  [[nodiscard]] std::uint32_t previous_of(std::uint32_t block, bool same_key) const;

  std::uint32_t max_hashes_;
  std::vector<Entry> entries_;
  std::vector<BlockHash> hashes_;  // max_hashes_ entries per block
  std::vector<Bucket> buckets_;    // the size is a power of two, more than twice the number of blocks
  std::uint32_t size_ = 0;
};

}  // namespace quire
