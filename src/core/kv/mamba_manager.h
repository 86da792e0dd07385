#pragma once
// Manages the states of linear-attention layers. Follows vLLM V1's MambaManager (v0.19.0). A block contains the state after its last token.
// Only the last state is read. Draft tokens need num_speculative_blocks states in addition to the running state.
#include <cstdint>
#include <span>

#include "core/kv/group_manager.h"
#include "core/kv/hash/hash_set.h"
#include "core/kv/hit_query.h"
#include "quire/base/kv_spec.h"

namespace quire {

// Unlike keys and values, a state cannot be cut to a shorter prefix. The manager therefore keeps states at the ends of blocks, and a hit
// ends at the last cached state.
class MambaManager : public SkippingManager<MambaManager> {
 public:
  MambaManager(const GroupOptions& options, const MambaSpec& spec, BlockPool& pool);

  // Returns the number of tokens whose states are no longer read: all computed tokens but the last. Returns -1 if no token is computed, as
  // in vLLM.
  static std::int64_t num_skipped_tokens(std::int64_t num_computed) { return num_computed - 1; }
  // Finds the last cached block and puts null blocks before it. EAGLE does not affect the result.
  void find(HitQuery& query) const;
  // Returns how many blocks allocate() will take. If the hit's block was cached in this step, returns more than the pool has, so that the
  // request waits: the step is still writing the state, which can be copied only from the next step on.
  [[nodiscard]] std::int64_t blocks_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const;
  void allocate(GroupBlockList& list, const GroupDemand& demand);
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens);
  // Releases blocks that are not read even if every draft token is rejected. With aligned states, also releases the state before the
  // running state. This happens one step later than for other kinds, because the state is copied in between.
  void remove_skipped(GroupBlockList& list, std::int64_t num_computed);
  // Returns whether the state at the fork can be shared. A state is overwritten as its request continues, so only the state at the
  // request's current position or at the end of a block can be shared.
  [[nodiscard]] bool can_share(const GroupBlockList& parent, const ForkPoint& point) const;
  // Swaps out only states that are needed if every draft token is rejected. A sequence that is swapped in continues like one with a prefix
  // hit.
  void swap_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<SwappedOutBlock>& taken);
  void new_step_starts() { cached_this_step_.clear(); }
  [[nodiscard]] std::int64_t max_blocks(std::int64_t num_tokens) const { return tokens_.ceil(num_tokens) + num_speculative_; }

 private:
  [[nodiscard]] bool aligns() const { return mode_ == MambaCacheMode::align; }
  // With aligned states: returns the length of the block list when `num_main_model_tokens` tokens are scheduled. Draft tokens use the
  // speculative blocks, not the block of the running state.
  [[nodiscard]] std::int64_t aligned_size(std::int64_t num_main_model_tokens) const {
    return tokens_.ceil(num_main_model_tokens) + num_speculative_;
  }
  [[nodiscard]] std::int64_t aligned_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const;
  void allocate_aligned(GroupBlockList& list, const GroupDemand& demand);
  void move_speculative_blocks(GroupBlockList& list, std::int64_t old_size, std::int64_t num_skipped);

  MambaCacheMode mode_;
  std::int64_t num_speculative_;
  std::int64_t spec_block_size_;  // in tokens, without context parallelism
  HashSet cached_this_step_;
};

}  // namespace quire
