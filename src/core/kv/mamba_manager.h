#pragma once
// States of linear-attention layers, by the rules of vLLM V1's MambaManager (v0.19.0). A block holds the state after its last token, and
// only the last state is ever read; drafts need num_speculative_blocks states beside the running one.
#include <cstdint>
#include <span>

#include "core/kv/group_manager.h"
#include "core/kv/hash/hash_set.h"
#include "core/kv/hit_query.h"
#include "quire/base/kv_spec.h"

namespace quire {

// A prefix of a state is no state, so what full attention does by dropping blocks at the end of a hit is done here by keeping states at the
// ends of blocks and finding the last one that is there.
class MambaManager : public SkippingManager<MambaManager> {
 public:
  MambaManager(const GroupOptions& options, const MambaSpec& spec, BlockPool& pool);

  // Tokens whose states are no longer read: all computed ones but the last. -1 when none is computed, as in vLLM.
  static std::int64_t num_skipped_tokens(std::int64_t num_computed) { return num_computed - 1; }
  // The hit is the last cached block, with null blocks before it. EAGLE changes nothing here.
  void find(HitQuery& query) const;
  // Blocks that allocate() will take. If the hit's block was cached in this step, more than the pool has: the state is written during this
  // step and can be copied from the next step on, so the request must wait.
  [[nodiscard]] std::int64_t blocks_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const;
  void allocate(GroupBlockList& list, const GroupDemand& demand);
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens);
  // Frees what is no longer read if every draft is rejected. Aligned: also frees the state before the running one, but
  // one step later than other kinds would, because it is copied from in between.
  void remove_skipped(GroupBlockList& list, std::int64_t num_computed);
  // A state is written over as its request goes on: it can be had where the request is now, or where a block ended.
  [[nodiscard]] bool can_share(const GroupBlockList& parent, const ForkPoint& point) const;
  // Only what is read if every draft is rejected is worth a transfer; what comes back begins like a hit.
  void take_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<TakenBlock>& taken);
  void new_step_starts() { cached_this_step_.clear(); }
  [[nodiscard]] std::int64_t max_blocks(std::int64_t num_tokens) const { return tokens_.ceil(num_tokens) + num_speculative_; }

 private:
  [[nodiscard]] bool aligns() const { return mode_ == MambaCacheMode::align; }
  // Aligned: the length of the block list once so many tokens are scheduled. Drafts take no place in the running state's block; each has a
  // speculative block of its own.
  [[nodiscard]] std::int64_t aligned_size(std::int64_t num_main_model_tokens) const {
    return tokens_.ceil(num_main_model_tokens) + num_speculative_;
  }
  [[nodiscard]] std::int64_t aligned_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const;
  void allocate_aligned(GroupBlockList& list, const GroupDemand& demand);
  void move_speculative_blocks(GroupBlockList& list, std::int64_t old_size, std::int64_t num_skipped);

  MambaCacheMode mode_;
  std::int64_t num_speculative_;
  std::int64_t spec_block_size_;  // tokens, without context parallelism
  HashSet cached_this_step_;
};

}  // namespace quire
