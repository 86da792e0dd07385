#pragma once
// The waiting loop: admits requests to the batch in the order of the queues. A request that must wait for something else (a grammar, a
// transfer, an adapter) is skipped and put before the requests that were skipped earlier. A request that is missing blocks or tokens ends
// the loop. If tokens or slots were missing, later requests may begin to load (early_loads.h).
//
//   waiting, preempted -> running                 admitting.h: with the blocks of its cached prefix and of its first chunk
//   waiting, preempted -> waiting_for_remote_kv   with the blocks that the connector fills
//   preempted -> waiting_for_remote_kv            with blocks for its swapped-out content (swap.h)
//   running -> preempted                          for a tenant with fewer rows (tenant_turns.h)
#include <cstdint>
#include <optional>

#include "core/schedule/loops/admission_allocator.h"
#include "core/schedule/loops/admitting.h"
#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/pressure.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/shared_state.h"
#include "core/schedule/requests/tenant_turns.h"
#include "quire/base/events.h"

namespace quire {

class WaitingLoop {
 public:
  WaitingLoop(const SharedState& base, EncoderScheduler& encoder, StepBudget& budget, PrefixLookUp& look_up, Pressure& pressure,
              AdmissionAllocator& allocator, RequestAdmitter& request_admitter, TenantScheduler& tenants, Preemption& preemption)
      : context_(base.context),
        queues_(base.queues),
        encoder_(encoder),
        budget_(budget),
        look_up_(look_up),
        pressure_(pressure),
        allocator_(allocator),
        request_admitter_(request_admitter),
        tenants_(tenants),
        preemption_(preemption) {}

  // Admits requests. Returns whether requests remain that had no slot or too few tokens.
  [[nodiscard]] bool schedule(PlanArena& arena);

 private:
  // The result for the request at the front:
  // - admitted: the request runs, or waits for its load.
  // - skipped: the request waits for something other than its turn; the next request is tried.
  // - out_of_tokens: the loop ends; later requests may load meanwhile.
  // - blocked: the loop ends.
  enum class Admission : std::uint8_t { admitted, skipped, out_of_tokens, blocked };
  // The result of an attempt, and the cause if the request was not admitted.
  struct AdmissionAttempt {
    Admission admission;
    EventCause cause = EventCause::none;
    bool lacks_blocks = false;  // with out_of_tokens: blocks are missing too (checked only under PrefillLimits)
  };

  bool admit_waiting(PlanArena& arena);
  bool admit_in_turns(PlanArena& arena);
  bool preempt_for_row(const Request& beneficiary, EventCause cause, bool has_admitted, PlanArena& arena);
  [[nodiscard]] bool may_free_blocks_for(const Request& request, const AdmissionAttempt& tried) const;
  [[nodiscard]] bool is_within_share(const Request& request) const;
  void pass_over(Request& request, RequestQueue& queue, EventCause cause);
  // Returns why the request cannot use its turn, or nullopt if it waits only for its turn.
  [[nodiscard]] std::optional<EventCause> reason_to_wait(Request& request);
  [[nodiscard]] bool can_admit_more() const;
  [[nodiscard]] bool has_free_row() const;
  RequestQueue& next_queue();  // at least one queue must not be empty
  AdmissionAttempt try_admit(Request& request, RequestQueue& queue, PlanArena& arena);
  // Takes blocks for a swapped-out request, which then waits for their content.
  AdmissionAttempt try_swap_in(Request& request, RequestQueue& queue);
  // Returns whether a result in flight may give the request its next input while it waits for a load.
  [[nodiscard]] bool may_get_next_input(const Request& request) const;
  // Returns the reason why the request is blocked. Requires is_blocked().
  [[nodiscard]] static EventCause why_blocked(const Request& request);
  void report_queue_held(EventCause cause, RequestId front);
  void wait_for_load(Request& request);
  // Returns the number of tokens to admit, or 0 if the request does not fit into the rest of the step and may not be split. `is_padded` is
  // set if placeholders for draft tokens are included.
  [[nodiscard]] std::int32_t num_tokens_to_admit(const Request& request, std::int32_t num_computed_tokens, bool& is_padded) const;

  Context& context_;
  Queues& queues_;
  EncoderScheduler& encoder_;
  StepBudget& budget_;
  PrefixLookUp& look_up_;
  Pressure& pressure_;
  AdmissionAllocator& allocator_;
  RequestAdmitter& request_admitter_;
  TenantScheduler& tenants_;
  Preemption& preemption_;
};

}  // namespace quire
