#pragma once
// Executes the operator's commands (pause, resume, cache resets), and answers each command when it has taken effect. Belongs to the engine
// thread.
//
// States of a pause, and the function that moves it:
//   asked     the core schedules no new requests (keep: no requests)    take
//   settled   no step and no transfer runs; the cache is cleared if     settle, once the step loop is idle; or take, if a resume comes
//             requested                                                 first, without clearing the cache
//   answered                                                            answer
#include <cstdint>
#include <vector>

#include "engine/loop/step_loop.h"
#include "engine/requests/inbox.h"
#include "quire/engine.h"

namespace quire {

class Controls {
 public:
  explicit Controls(StepLoop& loop) : loop_(&loop) {}

  void take(Control control);
  // Settles the pauses if the step loop has nothing left to run. Called in each round of EngineImpl::run(), after the step.
  void settle();
  // Answers the settled commands.
  void answer();

  [[nodiscard]] bool is_paused() const { return is_paused_; }

 private:
  // A pause in state `asked`.
  struct Pending {
    bool clear_cache = false;
    ControlCallback answer;
  };
  // A command and its result. The command is answered after the step's outputs are delivered, so that a client that reads "paused" has
  // received all earlier outputs.
  struct Settled {
    ControlCallback answer;
    Result<bool> result;
  };

  void pause(const PauseOptions& options, ControlCallback answer);
  void resume(ControlCallback answer);

  StepLoop* loop_;
  bool is_paused_ = false;
  std::vector<Pending> pending_;
  std::vector<Settled> settled_;
};

}  // namespace quire
