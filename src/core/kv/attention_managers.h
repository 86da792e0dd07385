#pragma once
// One manager per kind of attention, by the rules of vLLM V1's single_type_kv_cache_manager (v0.19.0).
// Called by KvCoordinator on the core's thread. A kind says three things: what of a prefix is a hit, what no later token attends to, and
// how many blocks a sequence holds at once. All else is GroupManager's.
#include <cstdint>
#include <span>

#include "core/kv/group_manager.h"
#include "core/kv/hit_query.h"
#include "quire/base/kv_spec.h"

namespace quire {

// Every token attends to all before it.
class FullAttentionManager : public SkippingManager<FullAttentionManager> {
 public:
  using SkippingManager::SkippingManager;

  static std::int64_t num_skipped_tokens(std::int64_t /*num_computed*/) { return 0; }
  // Of one sequence at once, if at most so many tokens run in a step.
  static std::int64_t max_held_blocks(std::int64_t /*step_tokens*/) { return INT64_MAX; }
  // vLLM 0.32.0's max_admission_blocks_per_request.
  static std::int64_t cap_on_blocks(std::int64_t /*in_flight*/, std::int64_t /*max_model_len*/) { return INT64_MAX; }
  // From the left as long as blocks hit. EAGLE drops the last one; then what is not aligned is dropped.
  void find(HitQuery& query) const;
  // Leading blocks with as many references as there are sequences. A running sequence that has no blocks counts from now on.
  std::uint32_t common_prefix(GroupBlockList& running);
};

// Full attention; the blocks of the sink are set aside at once.
// The sink's blocks are never given out: kernels read them for every sequence, under ids that the worker knows.
class SinkFullAttentionManager : public FullAttentionManager {
 public:
  SinkFullAttentionManager(const GroupOptions& options, std::uint32_t sink_len, BlockPool& pool);
};

// A token attends to `window` tokens, itself among them.
class SlidingWindowManager : public SkippingManager<SlidingWindowManager> {
 public:
  SlidingWindowManager(const GroupOptions& options, std::uint32_t window, BlockPool& pool);

  [[nodiscard]] std::int64_t num_skipped_tokens(std::int64_t num_computed) const {
    return std::max<std::int64_t>(0, num_computed - window_ + 1);
  }
  // One more than the tokens fill: the window need not begin where a block does.
  [[nodiscard]] std::int64_t max_held_blocks(std::int64_t step_tokens) const { return tokens_.ceil(window_ - 1 + step_tokens) + 1; }
  [[nodiscard]] std::int64_t cap_on_blocks(std::int64_t in_flight, std::int64_t max_model_len) const {
    return tokens_.ceil(std::min(window_ - 1 + in_flight, max_model_len)) + 1;
  }
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens);
  // The rightmost run of blocks that covers a window, nulls before it; a shorter one only at the very start. EAGLE wants one block more
  // and drops the last.
  void find(HitQuery& query) const;

 private:
  [[nodiscard]] WindowReach reach_of(const KvRequest& request, std::int64_t retention) const;

  std::int64_t window_;  // tokens
};

// A token attends to the tokens of its chunk.
class ChunkedLocalManager : public SkippingManager<ChunkedLocalManager> {
 public:
  ChunkedLocalManager(const GroupOptions& options, std::uint32_t chunk, BlockPool& pool);

  [[nodiscard]] std::int64_t num_skipped_tokens(std::int64_t num_computed) const { return num_computed / chunk_ * chunk_; }
  [[nodiscard]] std::int64_t max_held_blocks(std::int64_t step_tokens) const { return tokens_.ceil(chunk_ - 1 + step_tokens) + 1; }
  [[nodiscard]] std::int64_t cap_on_blocks(std::int64_t in_flight, std::int64_t max_model_len) const {
    return tokens_.ceil(std::min(chunk_ + in_flight, max_model_len));
  }
  // Blocks of earlier chunks are null hits without a look-up; from there on as long as blocks hit.
  void find(HitQuery& query) const;

 private:
  std::int64_t chunk_;  // tokens
};

// States of the encoder, one set per request: never shared, never cached.
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
  // All of them, however few tokens are computed.
  [[nodiscard]] std::uint32_t num_own(const GroupBlockList& list, std::int64_t num_tokens) const;
  void take_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<TakenBlock>& taken);
};

}  // namespace quire
