#include "engine/loop/controls.h"

#include <utility>

namespace quire {

void Controls::take(Control control) {
  if (const PauseOptions* pausing = std::get_if<PauseOptions>(&control.verb))
    pause(*pausing, std::move(control.answer));
  else if (const CacheResetOptions* reset = std::get_if<CacheResetOptions>(&control.verb))
    settled_.push_back({std::move(control.answer), loop_->reset_prefix_cache(*reset)});
  else if (std::holds_alternative<EncoderResetOptions>(control.verb))
    settled_.push_back({std::move(control.answer), loop_->reset_encoder_cache()});
  else
    resume(std::move(control.answer));
}

// Pauses by vLLM's rule: `keep` stops all requests. The other modes stop the admission of new requests, and `abort` ends all requests.
void Controls::pause(const PauseOptions& options, ControlCallback answer) {
  if (options.mode == PauseMode::abort) loop_->abort_all();
  loop_->set_pause_state(options.mode == PauseMode::keep ? PauseState::paused_all : PauseState::paused_new);
  is_paused_ = true;
  pending_.push_back({options.clear_cache, std::move(answer)});
}

void Controls::resume(ControlCallback answer) {
  loop_->set_pause_state(PauseState::unpaused);
  is_paused_ = false;
  for (Pending& pending : std::exchange(pending_, {})) settled_.push_back({std::move(pending.answer), false});
  settled_.push_back({std::move(answer), true});
}

void Controls::settle() {
  if (pending_.empty() || loop_->can_step() || loop_->awaits_transfers()) return;
  for (Pending& pending : std::exchange(pending_, {})) {
    Result<bool> result = true;
    if (pending.clear_cache) result = loop_->reset_prefix_cache({.preempt_running = true, .external = false});
    settled_.push_back({std::move(pending.answer), std::move(result)});
  }
}

void Controls::answer() {
  for (Settled& settled : std::exchange(settled_, {})) settled.answer(std::move(settled.result));
}

}  // namespace quire
