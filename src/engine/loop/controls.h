#pragma once
// What an operator asked: who is answered, and when. The engine thread's.
//
// States of a pause, and who moves it:
//   asked     the core schedules no new requests (keep: nothing)   take
//   settled   nothing runs any more; the cache has been cleared     settle, once the loop stands still
//   answered                                                        answer; or take, when a resume comes first
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
  // After each step.
  void settle();
  // Answers those who waited for what has happened by now.
  void answer();

  [[nodiscard]] bool is_paused() const { return is_paused_; }

 private:
  // A pause that has been asked, until nothing runs any more.
  struct Pending {
    bool clear_cache = false;
    ControlAnswer answer;
  };
  // Decided, to be answered after the outputs of the step have gone out: whoever is told "paused" has seen all that came before.
  struct Settled {
    ControlAnswer answer;
    Result<bool> result;
  };

  void pause(const PauseOptions& options, ControlAnswer answer);
  void resume(ControlAnswer answer);

  StepLoop* loop_;
  bool is_paused_ = false;
  std::vector<Pending> pending_;
  std::vector<Settled> settled_;
};

}  // namespace quire
