#pragma once
// One manager per kind of attention, following vLLM V1's single_type_kv_cache_manager (v0.19.0). Called by KvCoordinator on the core's
// thread. A manager defines three things: which cached prefix is a hit, which tokens no later token attends to, and how many blocks a
// sequence holds at the same time. GroupManager does the rest.
#include <cstdint>
#include <span>

#include "core/kv/group_manager.h"
#include "core/kv/hit_query.h"
#include "quire/base/kv_spec.h"

namespace quire {

// Full attention: a token attends to itself and to all tokens before it.
class FullAttentionManager : public SkippingManager<FullAttentionManager> {
 public:
  using SkippingManager::SkippingManager;

  static std::int64_t num_skipped_tokens(std::int64_t /*num_computed*/) { return 0; }
  // Returns the maximum number of blocks that one sequence holds at the same time if a step runs at most `step_tokens` tokens.
  static std::int64_t max_held_blocks(std::int64_t /*step_tokens*/) { return INT64_MAX; }
  // vLLM 0.32.0's max_admission_blocks_per_request: returns the maximum number of blocks that admission reserves for one request.
  static std::int64_t cap_on_blocks(std::int64_t /*in_flight*/, std::int64_t /*max_model_len*/) { return INT64_MAX; }
  // Takes cached blocks from the left until the first miss. With EAGLE, drops the last block. Then drops blocks at the end until the length
  // is aligned.
  void find(HitQuery& query) const;
  // Returns how many leading blocks all tracked sequences share: blocks with one reference per tracked sequence. Tracks a running sequence
  // without blocks from this call on.
  std::uint32_t common_prefix(GroupBlockList& running);
};

// Full attention with attention sinks. The constructor reserves the sink blocks, which are never allocated: kernels read them for every
// sequence, under ids that the worker knows.
class SinkFullAttentionManager : public FullAttentionManager {
 public:
  SinkFullAttentionManager(const GroupOptions& options, std::uint32_t sink_len, BlockPool& pool);
};

// A token attends to the last `window` tokens, itself included.
class SlidingWindowManager : public SkippingManager<SlidingWindowManager> {
 public:
  SlidingWindowManager(const GroupOptions& options, std::uint32_t window, BlockPool& pool);

  [[nodiscard]] std::int64_t num_skipped_tokens(std::int64_t num_computed) const {
    return std::max<std::int64_t>(0, num_computed - window_ + 1);
  }
  // Returns one block more than `step_tokens` and the window fill, because a window can begin inside a block.
  [[nodiscard]] std::int64_t max_held_blocks(std::int64_t step_tokens) const { return tokens_.ceil(window_ - 1 + step_tokens) + 1; }
  [[nodiscard]] std::int64_t cap_on_blocks(std::int64_t in_flight, std::int64_t max_model_len) const {
    return tokens_.ceil(std::min(window_ - 1 + in_flight, max_model_len)) + 1;
  }
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens);
  // Finds the rightmost run of cached blocks that covers a window, with null blocks before the run. A shorter run is a hit only if it
  // begins at the first block. With EAGLE, requires one block more and drops the last block.
  void find(HitQuery& query) const;

 private:
  [[nodiscard]] WindowReach reach_of(const KvRequest& request, std::int64_t retention) const;

  std::int64_t window_;  // in tokens
};

// A token attends only to tokens of its chunk.
class ChunkedLocalManager : public SkippingManager<ChunkedLocalManager> {
 public:
  ChunkedLocalManager(const GroupOptions& options, std::uint32_t chunk, BlockPool& pool);

  [[nodiscard]] std::int64_t num_skipped_tokens(std::int64_t num_computed) const { return num_computed / chunk_ * chunk_; }
  [[nodiscard]] std::int64_t max_held_blocks(std::int64_t step_tokens) const { return tokens_.ceil(chunk_ - 1 + step_tokens) + 1; }
  [[nodiscard]] std::int64_t cap_on_blocks(std::int64_t in_flight, std::int64_t max_model_len) const {
    return tokens_.ceil(std::min(chunk_ + in_flight, max_model_len));
  }
  // Takes null blocks for the chunks before the current one, without a look-up. Then takes cached blocks until the first miss.
  void find(HitQuery& query) const;

 private:
  std::int64_t chunk_;  // in tokens
};

// Cross-attention: the keys and values of a request's encoder states. They are not shared between requests and not cached.
class CrossAttentionManager : public GroupManager {
 public:
  using GroupManager::GroupManager;

  [[nodiscard]] std::int64_t blocks_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const;
  std::int64_t attach(GroupBlockList& list, std::span<const BlockId> hit, std::int64_t num_local, std::int64_t num_external);
  void allocate(GroupBlockList& list, const GroupDemand& demand) { extend(list, demand.num_encoder_tokens); }
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens);
  void remove_skipped(GroupBlockList&, std::int64_t /*num_computed*/) {}
  void find(HitQuery& query) const;
  static bool can_share(const GroupBlockList& /*parent*/, const ForkPoint& /*point*/) { return false; }
  void share(GroupBlockList& parent, GroupBlockList& child, const ForkPoint& point);
  // Counts all unshared blocks, regardless of the number of computed tokens.
  [[nodiscard]] std::uint32_t num_exclusive(const GroupBlockList& list, std::int64_t num_tokens) const;
  void swap_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<SwappedOutBlock>& taken);
};

}  // namespace quire
