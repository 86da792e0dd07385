#pragma once
// The managers of all cache groups, and the one search for a prefix that suits them all. The rules are those of vLLM V1's
// kv_cache_coordinator (v0.19.0): without caching nothing is searched; one group is searched alone; several are searched in buckets of
// equal spec until no bucket shortens the hit any more.
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
  // Takes the sinks' blocks from the pool, group by group.
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

  // Tokens of the longest hit; its blocks are in hits() until the next call.
  std::int64_t find(std::span<const BlockHash> hashes, std::int64_t max_tokens);
  [[nodiscard]] std::span<const std::vector<BlockId>> hits() const { return hits_; }
  // Of the last search: tokens of the longest hit that a bucket alone has had.
  [[nodiscard]] std::int64_t longest_found() const { return longest_found_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [pool, hash_block_size, use_eagle, eagle_drops_once, managers, buckets, alignment, longest_found, hits, found] =
        self;
    // Beside what all have, kinds have sizes from the configuration, and what is cached in a step, until the next one begins.
    static_assert(sizeof(FullAttentionManager) == sizeof(GroupManager) && sizeof(CrossAttentionManager) == sizeof(GroupManager));
    static_assert(sizeof(SlidingWindowManager) == sizeof(GroupManager) + 8 && sizeof(ChunkedLocalManager) == sizeof(SlidingWindowManager));
    static_assert(sizeof(MambaManager) == sizeof(GroupManager) + 24 + sizeof(HashSet));
    self.each([&](auto& manager, std::size_t) {
      using Base = std::conditional_t<std::is_const_v<Self>, const GroupManager, GroupManager>;
      form(static_cast<Base&>(manager));
    });
  }

 private:
  // Groups whose layers have equal specs: they always hit the same blocks, so one search writes the lists of all.
  struct Bucket {
    std::vector<std::uint32_t> groups;
    bool is_full = false;
    // Within one search that has EAGLE drop its block once.
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
  // One pass over the buckets, each bounded by what those before it left; full attention is searched in the first pass only.
  std::int64_t pass(std::span<const BlockHash> hashes, std::int64_t max_tokens, bool first);
  void truncate_full_hits(std::int64_t num_tokens);
  void truncate_hits(const Bucket& bucket, std::int64_t num_tokens);

  const BlockPool& pool_;
  std::uint32_t hash_block_size_;
  bool use_eagle_;
  bool eagle_drops_once_;
  std::vector<AnyGroupManager> managers_;
  std::vector<Bucket> buckets_;  // full attention first; none without caching
  std::int64_t alignment_ = 1;   // tokens: the least common multiple of all block sizes
  std::int64_t longest_found_ = 0;
  std::vector<std::vector<BlockId>> hits_;
  std::vector<BlockId> found_;
};

}  // namespace quire
