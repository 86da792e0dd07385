#pragma once
// Recovers requests that ran on blocks whose load failed (moves/failed_load_tracker.h), if they do not end instead.
//
//   running -> preempted                         The request is computed again from the first token and loads nothing more.
//   waiting_*, preempted -> waiting, preempted   A request that holds such a block is computed again. If a load of the request is in
//                                                progress, its blocks are freed when the load has ended.
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
  // block. With `start_again`, affected running requests start again from their first token; otherwise they have ended.
  void recover(bool start_again);

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
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
