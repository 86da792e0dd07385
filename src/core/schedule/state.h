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
#include <memory>
#include <vector>

#include "core/kv/hash_function.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/admission_room.h"
#include "core/schedule/admitting.h"
#include "core/schedule/context.h"
#include "core/schedule/drafts.h"
#include "core/schedule/early_loads.h"
#include "core/schedule/encoder_inputs.h"
#include "core/schedule/ended_requests.h"
#include "core/schedule/ending.h"
#include "core/schedule/failed_loads.h"
#include "core/schedule/forks.h"
#include "core/schedule/foundation.h"
#include "core/schedule/giving_way.h"
#include "core/schedule/jobs.h"
#include "core/schedule/look_up.h"
#include "core/schedule/open_transfers.h"
#include "core/schedule/plan_arena.h"
#include "core/schedule/policy.h"
#include "core/schedule/preemption.h"
#include "core/schedule/pressure.h"
#include "core/schedule/queues.h"
#include "core/schedule/request_table.h"
#include "core/schedule/requests.h"
#include "core/schedule/results.h"
#include "core/schedule/running.h"
#include "core/schedule/sessions.h"
#include "core/schedule/slots.h"
#include "core/schedule/stats.h"
#include "core/schedule/step_budget.h"
#include "core/schedule/swap.h"
#include "core/schedule/transfers.h"
#include "core/schedule/updates.h"
#include "core/schedule/waiting.h"
#include "quire/core.h"

namespace quire {

struct Core::State {
  State(const CoreConfig& config, const CoreSeams& seams, std::unique_ptr<HashFunction> hash);

  void begin_call(const StepInput& input);  // the time and the random numbers of what follows

  // step.cpp: the frame of a step
  void begin_step(const PlanArena& arena);
  void complete(PlanArena& arena);                 // what a plan says besides tokens and blocks
  void advance(PlanArena& arena, StepPlan& plan);  // its tokens count as computed from now on
  void take(const StepResult& result);
  void report(const PlanArena& arena);

  void snapshot_encoder_cache(CoreSnapshot& to) const;  // snapshot.cpp

  Context context;
  KvCacheManager kv;
  RequestTable table;
  PlanRing plans;
  Requests requests;
  Slots slots;
  Jobs jobs;
  Queues queues;
  Foundation foundation;
  EndedRequests ended;
  Policy policy;
  OpenTransfers open_transfers;
  Swap swap;
  Pressure pressure;
  Forks forks;
  GivingWay giving_way;
  EncoderScheduler encoder;
  StepBudget budget;
  Ending ending;
  Preemption preemption;
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
  std::vector<Request*> ending_now;  // within finish()
};

}  // namespace quire
