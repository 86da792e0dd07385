#pragma once
// Manages the transfers of a connector and of swapped requests (swap.h). A transfer begins with a plan. When transfers have ended, they are
// reported as vLLM's workers report them: received or sent, per request. A host that begins no transfers makes these reports itself. The
// rules for reports are vLLM V1's _update_from_kv_xfer_finished (v0.19.0).
//
//   waiting_for_remote_kv -> same, finished_receiving   its last load has ended: the waiting loop promotes it
//   waiting_for_remote_kv -> waiting, preempted         its last load has ended, but a load failed, and earlier blocks may be missing in a
//                                                       window or in another group
//   finished, known -> unknown                          its last transfer, for which the blocks were kept, has ended
#include <cstdint>
#include <span>
#include <vector>

#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/ended_requests.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/shared_state.h"
#include "quire/base/error.h"
#include "quire/base/plan.h"

namespace quire {

// Called at the end of a plan, and before and after a result is taken, on the core's thread. A result is checked completely before anything
// changes: a mistake of a worker is reported as an error and does not damage the core.
class Transfers {
 public:
  Transfers(const SharedState& base, RequestTable& table, EndedRequests& ended, OpenTransfers& open, Swap& swap)
      : context_(base.context),
        kv_(base.kv),
        table_(table),
        requests_(base.requests),
        queues_(base.queues),
        ended_(ended),
        open_(open),
        swap_(swap) {}

  // Returns whether plans may contain transfers.
  [[nodiscard]] bool are_possible() const { return context_.seams.connector != nullptr || swap_.is_on(); }
  // Adds transfers and fences to the plan.
  void plan(PlanArena& arena);

  [[nodiscard]] Result<void> check(const StepResult& result) const;
  // Converts the result into one that a host without transfers would give. `finished` are the requests that the result's plan reports as
  // ended. The lists of the returned result are valid until the next call.
  [[nodiscard]] StepResult take_completions(const StepResult& result, std::span<const RequestId> finished);
  // Returns whether a load of the last take_completions() failed so that its request cannot keep any part of it.
  [[nodiscard]] bool lost_loads() const { return lost_loads_; }
  // Returns the blocks that requests ran on and that the result reports as not loaded. The result need not be checked.
  [[nodiscard]] std::vector<BlockId> find_blocks_not_loaded(const StepResult& result) const;
  // Handles the transfers that the result reports as ended.
  void take(const StepResult& result);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    // The other members are used only while a result is taken.
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
  // Returns whether no request runs, or has run, on the blocks that the load fills.
  [[nodiscard]] bool is_awaited(const OpenTransfers::Entry& load) const;
  // Returns whether a request can continue from the blocks before a bad block: only with one group, which must keep all blocks.
  [[nodiscard]] bool keeps_all_blocks() const;
  // Returns whether the request's blocks are no longer kept by any transfer, open or still to begin.
  [[nodiscard]] static bool is_sent(const Request& request);
  void find_sent(RequestId id);
  void release_sent(Request& request);

  Context& context_;
  const KvCacheManager& kv_;
  RequestTable& table_;
  Requests& requests_;
  Queues& queues_;
  EndedRequests& ended_;
  OpenTransfers& open_;
  Swap& swap_;
  std::vector<RequestId> refused_;          // requests to which the newest plan refused a transfer
  std::vector<RequestId> asked_again_;      // requests refused earlier, whose transfers were planned again since the last result
  std::vector<RequestId> sent_, received_;  // ids in the result and of its ended transfers
  std::vector<BlockId> not_loaded_;
  bool lost_loads_ = false;
};

}  // namespace quire
