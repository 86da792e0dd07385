#pragma once
// The managers of all cache groups, and the search for a prefix that suits all of them. The rules are vLLM V1's kv_cache_coordinator
// (v0.19.0). Without caching nothing is searched. One group is searched alone. Several groups are searched in buckets of equal spec, until
// no bucket shortens the hit any more.
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
  // Reserves the sinks' blocks in the pool, group by group.
  KvCoordinator(const KvCacheConfig& config, const KvCacheOptions& options, BlockPool& pool);

  [[nodiscard]] std::size_t num_groups() const { return managers_.size(); }
  [[nodiscard]] std::uint32_t block_size(std::uint32_t group) const;

  // Calls use(manager of group g, g) for each group in order.
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

  // Returns the tokens of the longest hit. Its blocks are in hits() until the next call.
  std::int64_t find(std::span<const BlockHash> hashes, std::int64_t max_tokens);
  [[nodiscard]] std::span<const std::vector<BlockId>> hits() const { return hits_; }
  // Returns the tokens of the longest hit of a single bucket in the last search.
  [[nodiscard]] std::int64_t longest_found() const { return longest_found_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). The binding must name every member, or it does not compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [pool, hash_block_size, use_eagle, eagle_drops_once, managers, buckets, alignment, longest_found, hits, found] =
        self;
    // Kinds add only sizes from the configuration, and the hashes cached in a step until the next one begins.
    static_assert(sizeof(FullAttentionManager) == sizeof(GroupManager) && sizeof(CrossAttentionManager) == sizeof(GroupManager));
    static_assert(sizeof(SlidingWindowManager) == sizeof(GroupManager) + 8 && sizeof(ChunkedLocalManager) == sizeof(SlidingWindowManager));
    static_assert(sizeof(MambaManager) == sizeof(GroupManager) + 24 + sizeof(HashSet));
    self.each([&](auto& manager, std::size_t) {
      using Base = std::conditional_t<std::is_const_v<Self>, const GroupManager, GroupManager>;
      form(static_cast<Base&>(manager));
    });
  }

 private:
  // Groups of layers with equal specs. They always hit the same blocks, so one search writes the lists of all of them.
  struct Bucket {
    std::vector<std::uint32_t> groups;
    bool is_full = false;
    // State of one search in which EAGLE drops its block once.
    std::int64_t num_hit_tokens = -1;  // -1: not searched yet
    bool has_dropped = false;
  };

  void make_buckets(const KvCacheConfig& config);
  std::int64_t find_in(const Bucket& bucket, std::span<const BlockHash> hashes, std::int64_t max_tokens) {
    return find_in(bucket, hashes, max_tokens, use_eagle_);
  }
  std::int64_t find_in(const Bucket& bucket, std::span<const BlockHash> hashes, std::int64_t max_tokens, bool drops);
  // The search of vLLM 0.32.0, for groups of one block size.
  std::int64_t find_dropping_once(std::span<const BlockHash> hashes, std::int64_t max_tokens);
  std::int64_t pass_dropping_once(std::span<const BlockHash> hashes, std::int64_t max_tokens);
  // Runs one pass over the buckets. Each bucket is limited by the hit that earlier buckets left. Full attention is searched only in the
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
