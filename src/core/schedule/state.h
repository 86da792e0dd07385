#pragma once
// The state of the core's scheduler. Each part receives references to the earlier parts that it may use. Private to this folder; the public
// interface is quire/core.h.
//
// States of a request (vLLM's RequestStatus), and the parts that set them:
//   waiting, preempted       in `waiting`, or in `skipped_waiting` after it was skipped          add, fork, preempt, promote, sessions
//   waiting_for_*            in `skipped_waiting`; an early load stays in its queue              add, waiting, sessions, early_loads
//   running                  in `running`, with a slot and blocks                                admitting.cpp
//   finished_*, known        in no queue; a transfer or a pin keeps its blocks (holds.h)         ending.cpp
//   finished_*, not known    blocks are free; kept until apply(), or while a plan refers to it   ended_requests.cpp
// Then the request is destroyed. A slot is free or belongs to a running request. It becomes free when its request stops running. The next
// plan lists it in `released`, and may assign it again.
// All parts run on one thread. A part may call the parts that are constructed before it, but these never call it back. The order of
// construction is therefore a good order in which to read the scheduler.
#include <memory>
#include <vector>

#include "base/rules.h"
#include "core/kv/hash/hash_function.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/loops/admission_allocator.h"
#include "core/schedule/loops/admitting.h"
#include "core/schedule/loops/block_reclaimer.h"
#include "core/schedule/loops/early_loads.h"
#include "core/schedule/loops/load_failure_recovery.h"
#include "core/schedule/loops/preemption.h"
#include "core/schedule/loops/pressure.h"
#include "core/schedule/loops/relief.h"
#include "core/schedule/loops/running.h"
#include "core/schedule/loops/step_budget.h"
#include "core/schedule/loops/waiting.h"
#include "core/schedule/moves/failed_load_tracker.h"
#include "core/schedule/moves/look_up.h"
#include "core/schedule/moves/open_transfers.h"
#include "core/schedule/moves/swap.h"
#include "core/schedule/moves/transfers.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/drafts.h"
#include "core/schedule/requests/encoder_inputs.h"
#include "core/schedule/requests/ended_requests.h"
#include "core/schedule/requests/forks.h"
#include "core/schedule/requests/jobs.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/policy.h"
#include "core/schedule/requests/queues.h"
#include "core/schedule/requests/request_table.h"
#include "core/schedule/requests/requests.h"
#include "core/schedule/requests/sessions.h"
#include "core/schedule/requests/shared_state.h"
#include "core/schedule/requests/slots.h"
#include "core/schedule/requests/step_fences.h"
#include "core/schedule/requests/tenant_turns.h"
#include "core/schedule/requests/updates.h"
#include "core/schedule/results/ending.h"
#include "core/schedule/results/failed_loads.h"
#include "core/schedule/results/results.h"
#include "core/schedule/results/stats.h"
#include "quire/core.h"

namespace quire {

struct Core::State {
  State(const CoreConfig& config, const CoreSeams& seams, std::unique_ptr<HashFunction> hash);

  void begin_call(const StepInput& input);  // sets the time and the random seed of this call

  // The changing calls of Core, one function per call (reported_calls.cpp).
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

  // The phases of a step (step.cpp).
  void begin_step(const PlanArena& arena);
  void complete(PlanArena& arena);                 // adds everything except tokens and blocks to the plan
  void advance(PlanArena& arena, StepPlan& plan);  // counts the plan's tokens as computed
  void take(const StepResult& result);
  void end_failed_grammars();
  void end_mismatched();  // ends requests with inputs of mismatched sizes
  void end_with_error();  // ends the requests in `ending_now`
  void report(const PlanArena& arena);

  void snapshot_encoder_cache(CoreSnapshot& to) const;  // snapshot.cpp

  // The next two functions return the first rule that does not hold, or null. broken_rule() checks the rules that hold between two calls
  // (invariants.cpp). unsound_rule() checks a state that was read from bytes before other code uses it (checkpoint/soundness.cpp).
  [[nodiscard]] const Rule* broken_rule() const;
  [[nodiscard]] const Rule* unsound_rule() const;

  // Checkpoint fields (checkpoint/state_archive.h). A new part does not compile until the structured binding names it. A part is saved
  // after the parts to which it points.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [context, kv, table, plans, requests, slots, jobs, queues, shared_state, fences, ended, policy, open_transfers,
                            swap, pressure, forks, block_reclaimer, failed_load_tracker, encoder, tenants, budget, ending, preemption,
                            relief, load_failure_recovery, running_loop, look_up, early_loads, admission_allocator, admitting, waiting_loop,
                            drafts, sessions, stats, updates, transfers, failed_loads, results, outcome, retired, kv_events, ending_now] =
        self;
    form(context, jobs, table);
    if constexpr (Archive::kIsReading) self.reserve_shown(form);
    form(open_transfers, swap, kv, slots, queues, fences, ended, pressure, forks, plans, encoder, budget, ending, look_up, transfers);
    // The parts in this line contain the state of one call, or of the reported outcome.
    form(requests, failed_load_tracker, tenants, load_failure_recovery, running_loop, early_loads, stats, updates, failed_loads, results);
    // The parts in these assertions contain only references. A new member would change their size.
    constexpr std::size_t kReference = sizeof(void*);
    static_assert(sizeof(SharedState) == 4 * kReference && sizeof(Policy) == 4 * kReference && sizeof(BlockReclaimer) == 6 * kReference);
    static_assert(sizeof(Preemption) == 11 * kReference && sizeof(BlockRelief) == 7 * kReference &&
                  sizeof(AdmissionAllocator) == 7 * kReference);
    static_assert(sizeof(RequestAdmitter) == 6 * kReference && sizeof(WaitingLoop) == 10 * kReference && sizeof(Drafts) == 2 * kReference);
    static_assert(sizeof(Sessions) == 3 * kReference);
  }
  // Reserves memory for tokens to which plans refer, because these tokens must not move.
  template <class Archive>
  void reserve_shown(Archive& form) {
    for (const auto& [id, request] : table.all()) {
      form.expect(request->blocks.is_sound(context.num_groups, context.config.kv.num_blocks), "the blocks of a request are in the pool");
      if (form.is_good() && (request->status == RequestStatus::running || request->in_flight.num_plans > 0))
        requests.reserve_memory(*request);
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
  SharedState shared_state;
  StepFences fences;
  EndedRequests ended;
  Policy policy;
  OpenTransfers open_transfers;
  Swap swap;
  Pressure pressure;
  Forks forks;
  BlockReclaimer block_reclaimer;
  FailedLoadTracker failed_load_tracker;
  EncoderScheduler encoder;
  TenantScheduler tenants;
  StepBudget budget;
  Ending ending;
  Preemption preemption;
  BlockRelief relief;
  LoadFailureRecovery load_failure_recovery;
  RunningLoop running_loop;
  PrefixLookUp look_up;
  EarlyLoads early_loads;
  AdmissionAllocator admission_allocator;
  RequestAdmitter admitting;
  WaitingLoop waiting_loop;
  Drafts drafts;
  Sessions sessions;
  Stats stats;
  Updates updates;
  Transfers transfers;
  FailedLoads failed_loads;
  Results results;

  // The last reported outcome, and the lists to which it refers.
  StepOutcome outcome;
  std::vector<RequestId> retired;
  std::vector<KvEvent> kv_events;
  std::vector<Request*> ending_now;  // valid within one call
};

}  // namespace quire
