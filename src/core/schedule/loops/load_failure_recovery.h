#pragma once
// Recovers requests that ran on blocks that were not loaded (moves/failed_load_tracker.h), unless they end.
//
//   running -> preempted     computed again from its beginning; nothing is loaded for it any more
//   waiting_*, -> waiting,   computed again: it found such a block, or was preempted since. A request with a load in progress frees its
//   preempted   preempted    blocks when the load is over
#include <vector>

#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/moves/failed_load_tracker.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/shared_state.h"

namespace quire {

class LoadFailureRecovery {
 public:
  LoadFailureRecovery(const SharedState& base, const FailedLoadTracker& failed_load_tracker, Preemption& preemption, Forks& forks,
                      Swap& swap, StepBudget& budget)
      : shared_(base), failed_load_tracker_(failed_load_tracker), preemption_(preemption), forks_(forks), swap_(swap), budget_(budget) {}

  // Called after the plan's results are taken, except for the results of affected requests. Afterwards no request finds or holds a bad
  // block. `start_again`: running requests start again from their beginning; otherwise they have ended.
  void recover(bool start_again);

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& /*form*/, Self& self) {
    [[maybe_unused]] auto& [shared, failed_load_tracker, preemption, forks, swap, budget, affected] = self;
  }

 private:
  void recover_running();
  void recover_waiting();
  void recover(Request& request);

  SharedState shared_;
  const FailedLoadTracker& failed_load_tracker_;
  Preemption& preemption_;
  Forks& forks_;
  Swap& swap_;
  StepBudget& budget_;
  std::vector<Request*> affected_;  // scratch of recover()
};

}  // namespace quire
