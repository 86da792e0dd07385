#pragma once
// The waiting loop: requests are admitted to the batch in the order of the queues. One that must wait for a reason of its own (its grammar,
// its transfer, its adapter) is skipped, and goes before those skipped earlier; one that lacks blocks or tokens ends the loop. Those
// behind, where tokens or slots were what lacked, may begin to load (early_loads.h).
//
//   waiting, preempted -> running          admitting.h: with the blocks of its cached prefix and of its first chunk
//   waiting, preempted -> waiting_for_remote_kv   with the blocks that the connector fills
//   preempted -> waiting_for_remote_kv            with blocks for those that lie outside of the pool (swap.h)
#include <cstdint>

#include "core/schedule/loops/admission_room.h"
#include "core/schedule/loops/admitting.h"
#include "core/schedule/loops/pressure.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "quire/base/events.h"

namespace quire {

class WaitingLoop {
 public:
  WaitingLoop(const Foundation& base, EncoderScheduler& encoder, StepBudget& budget, LookUp& look_up, Pressure& pressure,
              AdmissionRoom& room, Admitting& admitting)
      : context_(base.context),
        queues_(base.queues),
        encoder_(encoder),
        budget_(budget),
        look_up_(look_up),
        pressure_(pressure),
        room_(room),
        admitting_(admitting) {}

  // Whether somebody is left for whom there was no slot, or too few tokens.
  [[nodiscard]] bool schedule(PlanArena& arena);

 private:
  // What became of the request in front. skipped: it waits for something of its own, the next one is looked at. lacks_tokens, blocked:
  // nobody behind may go before it, so the loop ends; lacks_tokens lets those behind load meanwhile.
  enum class Admission : std::uint8_t { admitted, skipped, lacks_tokens, blocked };
  // And why, where it did not go.
  struct Tried {
    Admission admission;
    EventCause cause = EventCause::none;
  };

  bool admit_waiting(PlanArena& arena);
  [[nodiscard]] bool may_take_one() const;
  [[nodiscard]] bool has_place() const;
  RequestQueue& queue_to_take_from();  // one at least is not empty
  Tried try_admit(Request& request, RequestQueue& queue, PlanArena& arena);
  // One whose blocks lie outside of the pool waits for them from now on.
  Tried try_bring_back(Request& request, RequestQueue& queue);
  // Of a request that would wait for a load: whether a result still to come may give it its next input meanwhile.
  [[nodiscard]] bool may_be_moved_on(const Request& request) const;
  // Of a request that is blocked (is_blocked).
  [[nodiscard]] static EventCause why_blocked(const Request& request);
  void tell_held(EventCause cause, RequestId front);
  void wait_for_load(Request& request);
  // 0: it does not fit into what is left of the step, and may not be cut. `is_padded`: placeholders for drafts are among them.
  [[nodiscard]] std::int32_t num_tokens_to_admit(const Request& request, std::int32_t num_computed_tokens, bool& is_padded) const;

  Context& context_;
  Queues& queues_;
  EncoderScheduler& encoder_;
  StepBudget& budget_;
  LookUp& look_up_;
  Pressure& pressure_;
  AdmissionRoom& room_;
  Admitting& admitting_;
};

}  // namespace quire
