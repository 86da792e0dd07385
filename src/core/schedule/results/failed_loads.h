#pragma once
// Blocks that could not be loaded. The rules are vLLM V1's _handle_invalid_blocks (v0.19.0).
//
// With cures.unloaded_begin_anew what ran on them is found by Unloaded.
//
//   waiting_for_remote_kv -> same, failed_receiving     recompute: promoted with what was loaded well
//   running, waiting_* -> finished                      fail; also where a load was lost (Transfers)
//   waiting -> same, without its share                  a fork that has not run, in either case
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/kv/encoder_cache_order.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/moves/unloaded.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/updates.h"
#include "core/schedule/results/ending.h"

namespace quire {

// Called from apply() alone, on the core's thread, around the taking of results: find() before, handle() after. In between the requests
// that were found carry `load_failed`, and nothing else may end them.
class FailedLoads {
 public:
  FailedLoads(const Foundation& base, const RequestTable& table, Forks& forks, Ending& ending, Unloaded& unloaded, Updates& updates)
      : context_(base.context),
        kv_(base.kv),
        table_(table),
        queues_(base.queues),
        forks_(forks),
        ending_(ending),
        unloaded_(unloaded),
        updates_(updates) {}

  // Before the plan's results are taken: those of requests that hold an invalid block are not.
  void find(const PlanArena& arena, const StepResult& result);
  // After: what becomes of the requests that were found. True: those who were spoiled are to give back what they have (Unloaded).
  bool handle();
  // As they were found, by the handle() before.
  [[nodiscard]] std::span<const RequestId> ids() const { return ids_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    // What is found is handled in the same call; `ids` are of the outcome.
    [[maybe_unused]] auto& [context, kv, table, queues, forks, ending, unloaded, updates, has_found, failed, num_failed_async, ids,
                            finishing, reported, ending_now, invalid, marked, to_evict, evicted, evict_order] = self;
  }

 private:
  // The request keeps the computed tokens before its first invalid block, unless an earlier request in the scan computes that block again.
  // True: it holds an invalid block.
  bool cut_at_invalid_block(Request& request, std::int32_t num_scheduled, bool evict);
  void find_named(std::span<const RequestId> failed);
  void find_waiting(const PlanArena& arena);
  void find_running(const PlanArena& arena);
  void take_spoiled();
  [[nodiscard]] bool begins_anew() const { return context_.config.cures.unloaded_begin_anew; }
  void add_to_evict(BlockId block);
  void evict_invalid();
  void finish();

  Context& context_;
  KvCacheManager& kv_;
  const RequestTable& table_;
  Queues& queues_;
  Forks& forks_;
  Ending& ending_;
  Unloaded& unloaded_;
  Updates& updates_;
  bool has_found_ = false;                       // since the last handle()
  std::vector<Request*> failed_;                 // their results are skipped
  std::size_t num_failed_async_ = 0;             // the first so many of them wait for their blocks
  std::vector<RequestId> ids_;                   // as they were found
  std::vector<RequestId> finishing_, reported_;  // as they end, where they do
  std::vector<Request*> ending_now_;
  std::vector<BlockId> invalid_, marked_;  // invalid_ is ascending
  std::vector<std::uint32_t> to_evict_;    // each once
  std::vector<BlockId> evicted_;
  SmallIntSetOrder evict_order_;
};

}  // namespace quire
