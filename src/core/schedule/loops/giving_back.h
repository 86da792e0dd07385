#pragma once
// What becomes of those who have run on blocks that were not loaded (moves/unloaded.h), where they do not end.
//
//   running -> preempted     computed again from its beginning, and nothing is loaded for it any more
//   waiting_*, -> waiting,   the same, of one that has found such a block, or was preempted since; one whose own load is under way gives
//   preempted   preempted    back what it has when that is over
#include <vector>

#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/moves/unloaded.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/request.h"

namespace quire {

class GivingBack {
 public:
  GivingBack(const Foundation& on, const Unloaded& unloaded, Preemption& preemption, Forks& forks, Swap& swap, StepBudget& budget)
      : on_(on), unloaded_(unloaded), preemption_(preemption), forks_(forks), swap_(swap), budget_(budget) {}

  // After the plan's results are taken, but for those of the spoiled: nobody finds or holds a bad block any more. `begin_anew`: those who
  // run go on, from their beginning; else they have ended.
  void give_back(bool begin_anew);

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& /*form*/, Self& self) {
    [[maybe_unused]] auto& [on, unloaded, preemption, forks, swap, budget, holding] = self;
  }

 private:
  void give_back_running();
  void give_back_waiting();
  void give_back(Request& request);

  Foundation on_;
  const Unloaded& unloaded_;
  Preemption& preemption_;
  Forks& forks_;
  Swap& swap_;
  StepBudget& budget_;
  std::vector<Request*> holding_;  // within give_back()
};

}  // namespace quire
