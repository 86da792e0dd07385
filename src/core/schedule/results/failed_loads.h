#pragma once
// Handles blocks that could not be loaded. The rules are vLLM V1's _handle_invalid_blocks (v0.19.0). With FixOptions::unloaded_begin_anew,
// FailedLoadTracker finds the requests that ran on these blocks.
//
//   waiting_for_remote_kv -> same, failed_receiving     recompute: promoted with the part that was loaded
//   running, waiting_* -> finished                      fail; also if a load was lost (Transfers)
//   waiting -> same, without its shared blocks          a fork that has not run, under both policies
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/encoder_cache_order.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/moves/failed_load_tracker.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/shared_state.h"
#include "core/schedule/requests/updates.h"
#include "core/schedule/results/ending.h"

namespace quire {

// Called only from apply(), on the core's thread, before and after the results are taken: find() before, handle() after. In between, the
// affected requests have `load.skips_result` set, and nothing else may end them.
class FailedLoads {
 public:
  FailedLoads(const SharedState& base, const RequestTable& table, Forks& forks, Ending& ending, FailedLoadTracker& failed_load_tracker,
              Updates& updates)
      : context_(base.context),
        kv_(base.kv),
        table_(table),
        queues_(base.queues),
        forks_(forks),
        ending_(ending),
        failed_load_tracker_(failed_load_tracker),
        updates_(updates) {}

  // Called before the plan's results are taken. The results of requests that hold an invalid block will be skipped.
  void find(const PlanArena& arena, const StepResult& result);
  // Called after the results are taken. Ends the affected requests, or lets them be computed again. Returns whether affected requests must
  // free their blocks (FailedLoadTracker).
  bool handle();
  // The requests of the last handle(), in the order in which they were found.
  [[nodiscard]] std::span<const RequestId> ids() const { return ids_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    // Nothing is saved: affected requests are handled in the same call of the core, and `ids` belongs to the outcome of this call.
    [[maybe_unused]] auto& [context, kv, table, queues, forks, ending, failed_load_tracker, updates, has_found, failed, num_failed_async,
                            ids, finishing, reported, ending_now, invalid, marked, to_evict, evicted, evict_order] = self;
  }

 private:
  // Reduces the request's computed tokens to those before its first invalid block, unless an earlier request of the scan computes that
  // block again. Returns whether the request holds an invalid block.
  bool cut_at_invalid_block(Request& request, std::int32_t num_scheduled, bool evict);
  void find_reported(std::span<const RequestId> failed);
  void find_waiting(const PlanArena& arena);
  void find_running(const PlanArena& arena);
  void take_invalidated();
  [[nodiscard]] bool starts_again() const { return context_.rules.unloaded_begin_anew; }
  void add_to_evict(BlockId block);
  void evict_invalid();
  void finish();

  Context& context_;
  KvCacheManager& kv_;
  const RequestTable& table_;
  Queues& queues_;
  Forks& forks_;
  Ending& ending_;
  FailedLoadTracker& failed_load_tracker_;
  Updates& updates_;
  bool has_found_ = false;                       // find() ran since the last handle()
  std::vector<Request*> failed_;                 // requests whose results are skipped
  std::size_t num_failed_async_ = 0;             // leading requests of `failed_` that wait for their blocks
  std::vector<RequestId> ids_;                   // in the order in which they were found
  std::vector<RequestId> finishing_, reported_;  // `finishing_` is in the order of the ends, `reported_` in the order of the updates
  std::vector<Request*> ending_now_;
  std::vector<BlockId> invalid_, marked_;  // invalid_ is ascending
  std::vector<std::uint32_t> to_evict_;    // each block once
  std::vector<BlockId> evicted_;
  SmallIntSetOrder evict_order_;
};

}  // namespace quire
