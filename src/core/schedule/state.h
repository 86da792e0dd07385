#pragma once
// The core's scheduler: its parts, each handed those before it that it may see. Private to this folder; the facade is quire/core.h.
//
// States of a request, and who moves it (vLLM's RequestStatus):
//   waiting, preempted       in `waiting`, or in `skipped_waiting` after it was passed over       add, fork, preempt, promote, sessions
//   waiting_for_*            in `skipped_waiting`; or, loading early, where it was               add, waiting, sessions, early_loads
//   running                  in `running`, with a slot and blocks                                admitting.cpp
//   finished_*, known        in no queue; a transfer or a pin keeps its blocks (holds.h)         ending.cpp
//   finished_*, not known    blocks are free; until apply(), or while a plan names it (gone)     ended_requests.cpp
// and then it is destroyed. A slot is free or a running request's; it becomes free when its request stops running, is named in the
// next plan's `released`, and may be given out again in that same plan.
// Lives on one thread. A part may keep references to parts above it in this list and call them; it is never called back by them, so the
// order of construction is also the order in which one can read the scheduler.
#include <memory>
#include <vector>

#include "base/rules.h"
#include "core/kv/hash/hash_function.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/loops/admission_room.h"
#include "core/schedule/loops/admitting.h"
#include "core/schedule/loops/early_loads.h"
#include "core/schedule/loops/giving_back.h"
#include "core/schedule/loops/giving_way.h"
#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/pressure.h"
#include "core/schedule/loops/relief.h"
#include "core/schedule/loops/running.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/loops/waiting.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/moves/transfers.h"
#include "core/schedule/moves/unloaded.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/drafts.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/ended_requests.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/foundation.h"
#include "core/schedule/requests/jobs.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/requests.h"
#include "core/schedule/requests/sessions.h"
#include "core/schedule/requests/slots.h"
#include "core/schedule/requests/step_fences.h"
#include "core/schedule/requests/updates.h"
#include "core/schedule/results/ending.h"
#include "core/schedule/results/failed_loads.h"
#include "core/schedule/results/results.h"
#include "core/schedule/results/stats.h"
#include "quire/core.h"

namespace quire {

struct Core::State {
  State(const CoreConfig& config, const CoreSeams& seams, std::unique_ptr<HashFunction> hash);

  void begin_call(const StepInput& input);  // the time and the random numbers of what follows

  // Those of Core's members that change it, as one call each: told_calls.cpp.
  Result<void> add(const NewRequest& request, const StepInput& input);
  Result<void> continue_session(RequestId id, const SessionInput* input, const StepInput& now);
  Result<void> fork(RequestId parent_id, const ForkRequest& child, const StepInput& input);
  const StepPlan& schedule(const StepInput& input);
  Result<const StepOutcome*> apply(const StepResult& result, const StepInput& input);
  FinishEffect finish(RequestId id, RequestStatus status, const StepInput& input);
  void finish(std::span<const RequestId> ids, RequestStatus status, std::vector<RequestId>& finished, const StepInput& input);
  void forget_blocks(RequestId id);
  Result<bool> reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input);
  bool reset_connector_cache();
  void pause(PauseState state);

  // step.cpp: the frame of a step
  void begin_step(const PlanArena& arena);
  void complete(PlanArena& arena);                 // what a plan says besides tokens and blocks
  void advance(PlanArena& arena, StepPlan& plan);  // its tokens count as computed from now on
  void take(const StepResult& result);
  void end_failed_grammars();
  void end_mismatched();  // whose inputs had two sizes
  void end_with_error();  // those of ending_now
  void report(const PlanArena& arena);

  void snapshot_encoder_cache(CoreSnapshot& to) const;  // snapshot.cpp

  // What must hold between two calls (invariants.cpp), and before that, of what was read from bytes, so that it can be looked at
  // (checkpoint/soundness.cpp): the first rule that does not; null: all do.
  [[nodiscard]] const Rule* broken_rule() const;
  [[nodiscard]] const Rule* unsound_rule() const;

  // For checkpoints (checkpoint/state_form.h): without a name for each part it does not compile. What others point to goes before them.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, table, plans, requests, slots, jobs, queues, foundation, fences, ended, policy, open_transfers,
                            swap, pressure, forks, giving_way, unloaded, encoder, budget, ending, preemption, relief, giving_back,
                            running_loop, look_up, early_loads, admission_room, admitting, waiting_loop, drafts, sessions, stats, updates,
                            transfers, failed_loads, results, outcome, retired, kv_events, ending_now] = self;
    form(context, jobs, table);
    if constexpr (Form::kReads) self.reserve_shown(form);
    form(open_transfers, swap, kv, slots, queues, fences, ended, pressure, forks, plans, encoder, budget, ending, look_up, transfers);
    // Of one call, or of the outcome that was told.
    form(requests, unloaded, giving_back, running_loop, early_loads, stats, updates, failed_loads, results);
    // These refer to others, and hold nothing: a member more is a size more.
    constexpr std::size_t kReference = sizeof(void*);
    static_assert(sizeof(Foundation) == 4 * kReference && sizeof(Policy) == 4 * kReference && sizeof(GivingWay) == 6 * kReference);
    static_assert(sizeof(Preemption) == 10 * kReference && sizeof(Relief) == 7 * kReference && sizeof(AdmissionRoom) == 7 * kReference);
    static_assert(sizeof(Admitting) == 6 * kReference && sizeof(WaitingLoop) == 8 * kReference && sizeof(Drafts) == 2 * kReference);
    static_assert(sizeof(Sessions) == 3 * kReference);
  }
  // While plans show tokens these do not move.
  template <class Form>
  void reserve_shown(Form& form) {
    for (const auto& [id, request] : table.all()) {
      form.expect(request->blocks.is_sound(context.num_groups, context.config.kv.num_blocks), "blocks of requests are of the pool");
      if (form.is_good() && (request->status == RequestStatus::running || request->num_in_flight > 0)) requests.reserve_memory(*request);
    }
  }

  Context context;
  KvCacheManager kv;
  RequestTable table;
  PlanRing plans;
  Requests requests;
  Slots slots;
  Jobs jobs;
  Queues queues;
  Foundation foundation;
  StepFences fences;
  EndedRequests ended;
  Policy policy;
  OpenTransfers open_transfers;
  Swap swap;
  Pressure pressure;
  Forks forks;
  GivingWay giving_way;
  Unloaded unloaded;
  EncoderScheduler encoder;
  StepBudget budget;
  Ending ending;
  Preemption preemption;
  Relief relief;
  GivingBack giving_back;
  RunningLoop running_loop;
  LookUp look_up;
  EarlyLoads early_loads;
  AdmissionRoom admission_room;
  Admitting admitting;
  WaitingLoop waiting_loop;
  Drafts drafts;
  Sessions sessions;
  Stats stats;
  Updates updates;
  Transfers transfers;
  FailedLoads failed_loads;
  Results results;

  // Of the outcome reported last.
  StepOutcome outcome;
  std::vector<RequestId> retired;
  std::vector<KvEvent> kv_events;
  std::vector<Request*> ending_now;  // within one call
};

}  // namespace quire
