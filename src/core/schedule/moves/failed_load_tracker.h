#pragma once
// Finds requests that ran on blocks that a load should have filled but did not (FixOptions::unloaded_begin_anew). These blocks are bad.
// Blocks computed from a bad block are bad too, and so are the computed tokens of each request that found a bad block. These requests are
// recovered (loops/load_failure_recovery.h), or they end (results/failed_loads.h).
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"

namespace quire {

class FailedLoadTracker {
 public:
  struct InvalidatedRequest {
    Request* request;                // may have ended
    std::uint32_t num_valid_tokens;  // tokens computed after these are invalid
  };

  FailedLoadTracker(const KvCacheManager& kv, const PlanRing& plans, const Queues& queues) : kv_(kv), plans_(plans), queues_(queues) {}

  // Finds the requests that outstanding plans run on the blocks `not_loaded`, or on blocks computed from them. `applied` is a plan that has
  // just left the ring, or null.
  void find(const PlanArena* applied, std::span<const BlockId> not_loaded);
  // The affected requests and the bad blocks of the last find(). Each block is listed once, in ascending order.
  [[nodiscard]] std::span<const InvalidatedRequest> invalidated() const { return invalidated_; }
  [[nodiscard]] std::span<const BlockId> bad_blocks() const { return bad_; }
  [[nodiscard]] bool is_invalidated(const Request& request) const { return find_invalidated(request) != nullptr; }
  [[nodiscard]] bool holds_invalid_blocks(const Request& request) const;

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    // Nothing is saved, because the results of find() are valid only within one call of the core.
    [[maybe_unused]] auto& [kv, plans, queues, is_bad, bad, invalidated] = self;
  }

 private:
  [[nodiscard]] bool is_bad(BlockId block) const {
    QUIRE_CHECK(block.value < is_bad_.size(), "find was called, and the block is in the pool");
    return block != kNullBlock && is_bad_[block.value];
  }
  // Return whether a block or a token became invalid that was valid before.
  bool invalidate(BlockId block);
  bool invalidate(Request& request, std::uint32_t num_valid_tokens);
  bool scan_plan(const PlanArena& arena);
  bool scan_table_delta(Request& request, const BlockTableDelta& delta, std::uint32_t num_computed_tokens);
  bool scan_running(const PlanArena* applied);

  [[nodiscard]] const InvalidatedRequest* find_invalidated(const Request& request) const;
  // Returns the index of the first bad block among the blocks of the first `num_tokens` tokens, or blocks.size() if none is bad.
  [[nodiscard]] std::size_t first_bad(std::span<const BlockId> blocks, std::uint32_t group, std::uint32_t num_tokens) const;
  [[nodiscard]] std::uint32_t num_planned_tokens(const Request& request, const PlanArena* applied) const;

  const KvCacheManager& kv_;
  const PlanRing& plans_;
  const Queues& queues_;
  std::vector<bool> is_bad_;  // indexed by block
  std::vector<BlockId> bad_;
  std::vector<InvalidatedRequest> invalidated_;
};

}  // namespace quire
