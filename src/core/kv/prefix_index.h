#pragma once
// Which block holds the content of a given name. Several blocks may carry one name (requests that computed the same prefix at the same
// time); the one inserted first is found. Chains run through arrays indexed by block id over a fixed number of buckets: nothing is
// allocated after construction.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/check.h"
#include "quire/base/ids.h"
#include "quire/hash_function.h"

namespace quire {

// The name of a block: the hashes of the hash blocks it spans (one, unless its group has larger blocks than are hashed) and its cache
// group. A view. vLLM writes the hashes one after the other, then the group as four big-endian bytes.
struct BlockName {
  std::span<const BlockHash> hashes;
  std::uint32_t group = 0;

  BlockName(std::span<const BlockHash> all_hashes, std::uint32_t cache_group) : hashes(all_hashes), group(cache_group) {}
  BlockName(const BlockHash& hash, std::uint32_t cache_group = 0) : hashes(&hash, 1), group(cache_group) {}  // NOLINT: a hash is a name
};

// Chained, not open addressing: a block leaves by its id when it is evicted, in O(1) and without a mark that would slow later searches.
class PrefixIndex {
 public:
  // Names have at most max_hashes hashes; all names of a group have equally many.
  explicit PrefixIndex(std::uint32_t num_blocks, std::uint32_t max_hashes = 1);

  // Number of blocks that carry a name.
  [[nodiscard]] std::uint32_t size() const { return size_; }
  [[nodiscard]] bool contains(BlockId block) const {
    QUIRE_CHECK(block.value < entries_.size(), "asked about a block of the pool");
    return entries_[block.value].num_hashes != 0;
  }
  // The name of a block that carries one; valid until the block is removed.
  [[nodiscard]] BlockName name_of(BlockId block) const;
  // Its last hash, which by the chain stands for all before it.
  [[nodiscard]] const BlockHash& hash_of(BlockId block) const { return name_of(block).hashes.back(); }

  [[nodiscard]] std::optional<BlockId> find(const BlockName& name) const;
  // All blocks that carry a name; those of equal names in the order of insertion.
  [[nodiscard]] std::vector<BlockId> to_vector() const;
  void insert(const BlockName& name, BlockId block);
  void remove(BlockId block);
  void clear();
  // Stops the program if a chain is broken, or a name is in another chain than its own.
  void check_invariants() const;

  // A block with a name, and the block before it in its chain (kEnd: none), by which the order of insertion is told without a walk.
  struct Named {
    static constexpr bool kIsRaw = true;  // all of its bytes count
    std::uint32_t block = 0, previous = 0, group = 0, num_hashes = 0;
  };
  // By id, with the hashes of their names one after the other. Where names will be replaced, which ones share a chain says nothing:
  // `previous` is then the block before it of the same name.
  [[nodiscard]] std::vector<Named> to_named(std::vector<BlockHash>& hashes, bool replaced) const;
  // These have names, and no others. False, and the index is good for nothing: they cannot have been so.
  [[nodiscard]] bool assign(std::span<const Named> all, std::span<const BlockHash> hashes, bool replaced);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [max_hashes, entries, hashes, buckets, size] = self;
    std::vector<Named> named;
    std::vector<BlockHash> names;
    bool replaced = false;
    if constexpr (!Form::kReads) replaced = form.leaves_tokens_out;
    if constexpr (!Form::kReads) named = self.to_named(names, replaced);
    form(replaced, named, names);
    if constexpr (Form::kReads) form.expect(self.assign(named, names, replaced), "names of blocks are in chains");
  }

 private:
  static constexpr std::uint32_t kEnd = UINT32_MAX;
  struct Entry {
    std::uint32_t prev = kEnd;
    std::uint32_t next = kEnd;
    std::uint32_t group = 0;
    std::uint32_t num_hashes = 0;  // 0: no name
  };
  struct Bucket {
    std::uint32_t first = kEnd;
    std::uint32_t last = kEnd;
  };

  [[nodiscard]] std::size_t bucket(const BlockName& name) const {
    return (name.hashes.back().prefix() + name.group * 0x9E3779B97F4A7C15ULL) & (buckets_.size() - 1);
  }
  [[nodiscard]] bool matches(std::uint32_t block, const BlockName& name) const;
  // The block before it in its chain, or the one of the same name; kEnd: none.
  [[nodiscard]] std::uint32_t previous_of(std::uint32_t block, bool same_name) const;

  std::uint32_t max_hashes_;
  std::vector<Entry> entries_;
  std::vector<BlockHash> hashes_;  // max_hashes_ per block
  std::vector<Bucket> buckets_;    // a power of two, at least twice the blocks
  std::uint32_t size_ = 0;
};

}  // namespace quire
