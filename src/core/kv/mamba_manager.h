#pragma once
// States of linear-attention layers, following vLLM V1's MambaManager (v0.19.0). A block holds the state after its last token, and only the
// last state is ever read. Draft tokens need num_speculative_blocks states in addition to the running one.
#include <cstdint>
#include <span>

#include "core/kv/group_manager.h"
#include "core/kv/hash/hash_set.h"
#include "core/kv/hit_query.h"
#include "quire/base/kv_spec.h"

namespace quire {

// A state cannot be cut to a prefix. Full attention drops blocks at the end of a hit; this manager keeps states at the ends of blocks and
// finds the last one that is cached.
class MambaManager : public SkippingManager<MambaManager> {
 public:
  MambaManager(const GroupOptions& options, const MambaSpec& spec, BlockPool& pool);

  // Returns how many tokens have states that are no longer read: all computed ones but the last. -1 if no token is computed, as in vLLM.
  static std::int64_t num_skipped_tokens(std::int64_t num_computed) { return num_computed - 1; }
  // Finds the last cached block and puts null blocks before it. EAGLE changes nothing here.
  void find(HitQuery& query) const;
  // Returns how many blocks allocate() will take. If the hit's block was cached in this step, returns more than the pool has: the step is
  // still writing the state, which can be copied only from the next step on, so the request must wait.
  [[nodiscard]] std::int64_t blocks_needed(const GroupBlockList& list, const GroupDemand& demand, std::span<const BlockId> hit) const;
  void allocate(GroupBlockList& list, const GroupDemand& demand);
  void cache(GroupBlockList& list, const KvRequest& request, std::int64_t num_tokens);
  // Releases blocks that are not read even if every draft token is rejected. Aligned: also releases the state before the running one, one
  // step later than other kinds would, because it is copied from in between.
  void remove_skipped(GroupBlockList& list, std::int64_t num_computed);
  // A state is overwritten as its request continues. It can be shared only at the request's current position or at the end of a block.
  [[nodiscard]] bool can_share(const GroupBlockList& parent, const ForkPoint& point) const;
  // Takes only states that are read if every draft token is rejected; others are not worth a transfer. A sequence that comes back begins
  // like a hit.
  void swap_out(GroupBlockList& list, std::int64_t num_tokens, std::vector<SwappedOutBlock>& taken);
  void new_step_starts() { cached_this_step_.clear(); }
  [[nodiscard]] std::int64_t max_blocks(std::int64_t num_tokens) const { return tokens_.ceil(num_tokens) + num_speculative_; }

 private:
  [[nodiscard]] bool aligns() const { return mode_ == MambaCacheMode::align; }
  // Aligned: returns the length of the block list once so many tokens are scheduled. Draft tokens need no room in the running state's
  // block: each has a separate speculative block.
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
