#pragma once
// A connector's transfers, and those of swapped requests (swap.h): they begin with a plan, and their ends become what vLLM's workers report
// of a request, which a host that begins none reports itself. The rules of the latter are vLLM V1's _update_from_kv_xfer_finished
// (v0.19.0).
//
//   waiting_for_remote_kv -> same, finished_receiving   its last load is over: the waiting loop promotes it
//   waiting_for_remote_kv -> waiting, preempted         the same, but a load failed where a window or another group may miss what lies
//   before finished, known -> unknown                          its last transfer was what kept the blocks
#include <cstdint>
#include <span>
#include <vector>

#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/ended_requests.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request_table.h"
#include "quire/base/error.h"
#include "quire/base/plan.h"

namespace quire {

// Called at the end of a plan and around the taking of a result, on the core's thread. What a result says is checked as a whole before
// anything changes: a worker's mistake is an error, not a broken core.
class Transfers {
 public:
  Transfers(const Foundation& base, RequestTable& table, EndedRequests& ended, OpenTransfers& open, Swap& swap)
      : context_(base.context),
        kv_(base.kv),
        table_(table),
        requests_(base.requests),
        queues_(base.queues),
        ended_(ended),
        open_(open),
        swap_(swap) {}

  // Whether plans may have any.
  [[nodiscard]] bool are_possible() const { return context_.seams.connector != nullptr || swap_.is_on(); }
  // Completes the plan.
  void plan(PlanArena& arena);

  [[nodiscard]] Result<void> check(const StepResult& result) const;
  // The result as a host that begins none would give it; `finished` are those that its plan says have ended. Valid until the next call.
  [[nodiscard]] StepResult take_completions(const StepResult& result, std::span<const RequestId> finished);
  // A load of the last take_completions() failed, and its request can keep nothing of it.
  [[nodiscard]] bool lost_loads() const { return lost_loads_; }
  // Blocks that somebody ran on, and that the result, which need not be checked, says were not loaded.
  [[nodiscard]] std::vector<BlockId> find_not_loaded(const StepResult& result) const;
  // Those that are over.
  void take(const StepResult& result);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    // What a result says counts while it is taken.
    [[maybe_unused]] auto& [context, kv, table, requests, queues, ended, open, swap, refused, asked_again, sent, received, not_loaded,
                            lost_loads] = self;
    form(refused, asked_again);
  }

 private:
  void find_fences(PlanArena& arena, TransferId first_new) const;
  [[nodiscard]] Result<void> check_completions(const StepResult& result) const;
  [[nodiscard]] Result<void> check_lists(const StepResult& result) const;
  void end(const TransferCompletion& completion);
  void end_failed_load(const OpenTransfers::Entry& load, std::span<const BlockId> bad_blocks);
  // Nobody runs on what the load was to bring, nor ever has.
  [[nodiscard]] bool is_awaited(const OpenTransfers::Entry& load) const;
  // What was loaded before a bad block is good to go on from: with one group that keeps all blocks.
  [[nodiscard]] bool keeps_all_blocks() const;
  // Nothing that has begun or is to begin keeps its blocks.
  [[nodiscard]] static bool is_sent(const Request& request);
  void find_sent(RequestId id);
  void give_back(Request& request);

  Context& context_;
  const KvCacheManager& kv_;
  RequestTable& table_;
  Requests& requests_;
  Queues& queues_;
  EndedRequests& ended_;
  OpenTransfers& open_;
  Swap& swap_;
  std::vector<RequestId> refused_;          // a transfer, in the newest plan
  std::vector<RequestId> asked_again_;      // in plans since the last result: had been refused
  std::vector<RequestId> sent_, received_;  // what the result says and what follows from the completions
  std::vector<BlockId> not_loaded_;
  bool lost_loads_ = false;
};

}  // namespace quire
