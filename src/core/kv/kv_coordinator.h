#pragma once
// Owns the managers of all cache groups, and searches for a prefix that suits all of them. The rules are vLLM V1's kv_cache_coordinator
// (v0.19.0). Without caching, nothing is searched. A single group is searched once. Several groups are searched in buckets of equal spec,
// until no bucket shortens the hit any more.
#include <cstdint>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "core/kv/attention_managers.h"
#include "core/kv/block_pool.h"
#include "core/kv/kv_blocks.h"
#include "core/kv/mamba_manager.h"
#include "quire/base/kv_spec.h"

namespace quire {

struct KvCacheOptions;

using AnyGroupManager = std::variant<FullAttentionManager, SinkFullAttentionManager, SlidingWindowManager, ChunkedLocalManager,
                                     MambaManager, CrossAttentionManager>;

class KvCoordinator {
 public:
  // Reserves the blocks of attention sinks in the pool, group by group.
  KvCoordinator(const KvCacheConfig& config, const KvCacheOptions& options, BlockPool& pool);

  [[nodiscard]] std::size_t num_groups() const { return managers_.size(); }
  [[nodiscard]] std::uint32_t block_size(std::uint32_t group) const;

  // Calls use(manager of group g, g) for each group, in order.
  template <class Use>
  void each(Use use) {
    for (std::size_t group = 0; group < managers_.size(); ++group)
      std::visit([&](auto& manager) { use(manager, group); }, managers_[group]);
  }
  template <class Use>
  void each(Use use) const {
    for (std::size_t group = 0; group < managers_.size(); ++group)
      std::visit([&](const auto& manager) { use(manager, group); }, managers_[group]);
  }

  // Returns the length of the longest hit in tokens. hits() returns its blocks until the next call.
  std::int64_t find(std::span<const BlockHash> hashes, std::int64_t max_tokens);
  [[nodiscard]] std::span<const std::vector<BlockId>> hits() const { return hits_; }
  // Returns the length in tokens of the longest hit that any single bucket had in the last search. Set only with eagle_drops_once.
  [[nodiscard]] std::int64_t longest_found() const { return longest_found_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [pool, hash_block_size, use_eagle, eagle_drops_once, managers, buckets, alignment, longest_found, hits, found] =
        self;
    // Derived managers add only sizes from the configuration, and the hashes that were cached in the current step.
    static_assert(sizeof(FullAttentionManager) == sizeof(GroupManager) && sizeof(CrossAttentionManager) == sizeof(GroupManager));
    static_assert(sizeof(SlidingWindowManager) == sizeof(GroupManager) + 8 && sizeof(ChunkedLocalManager) == sizeof(SlidingWindowManager));
    static_assert(sizeof(MambaManager) == sizeof(GroupManager) + 24 + sizeof(HashSet));
    self.each([&](auto& manager, std::size_t) {
      using Base = std::conditional_t<std::is_const_v<Self>, const GroupManager, GroupManager>;
      form(static_cast<Base&>(manager));
    });
  }

 private:
  // Cache groups with equal specs. A search finds a block of the prefix only if every group of the bucket has cached it, so one search
  // fills the hits of all groups of the bucket (hits_).
  struct Bucket {
    std::vector<std::uint32_t> groups;
    bool is_full = false;
    // State of a search in which EAGLE drops a block only once.
    std::int64_t num_hit_tokens = -1;  // -1: not searched yet
    bool has_dropped = false;
  };

  void make_buckets(const KvCacheConfig& config);
  std::int64_t find_in(const Bucket& bucket, std::span<const BlockHash> hashes, std::int64_t max_tokens) {
    return find_in(bucket, hashes, max_tokens, use_eagle_);
  }
  std::int64_t find_in(const Bucket& bucket, std::span<const BlockHash> hashes, std::int64_t max_tokens, bool drops);
  // The search of vLLM 0.32.0, for groups of equal block size.
  std::int64_t find_dropping_once(std::span<const BlockHash> hashes, std::int64_t max_tokens);
  std::int64_t pass_dropping_once(std::span<const BlockHash> hashes, std::int64_t max_tokens);
  // Searches each bucket once. Each bucket is limited by the hit that the buckets before it left. Full attention is searched only in the
  // first pass.
  std::int64_t pass(std::span<const BlockHash> hashes, std::int64_t max_tokens, bool first);
  void truncate_full_hits(std::int64_t num_tokens);
  void truncate_hits(const Bucket& bucket, std::int64_t num_tokens);

  const BlockPool& pool_;
  std::uint32_t hash_block_size_;
  bool use_eagle_;
  bool eagle_drops_once_;
  std::vector<AnyGroupManager> managers_;
  std::vector<Bucket> buckets_;  // full attention first; empty without caching
  std::int64_t alignment_ = 1;   // in tokens: the least common multiple of all block sizes
  std::int64_t longest_found_ = 0;
  std::vector<std::vector<BlockId>> hits_;
  std::vector<BlockId> found_;
};

}  // namespace quire
