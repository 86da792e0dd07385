#pragma once
// What the parts of the scheduler share. Private to this folder; the facade is scheduler.h.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/kv/kv_manager.h"
#include "core/schedule/plan_arena.h"
#include "core/schedule/request.h"
#include "core/schedule/request_table.h"
#include "core/schedule/scheduler.h"
#include "core/schedule/stop_check.h"

namespace quire {

struct Scheduler::State {
  State(const SchedulerConfig& config, EventSink* events, BlockHasher* hasher);

  // running.cpp
  void schedule_running(PlanArena& arena);
  [[nodiscard]] std::uint32_t num_new_tokens(const Request& request) const;
  bool make_room(Request& request, std::uint32_t num_tokens, PlanArena& arena);
  void preempt(Request& victim, PlanArena& arena);

  // waiting.cpp
  void schedule_waiting(PlanArena& arena);
  bool admit_front(PlanArena& arena);
  PrefixHit look_up(const Request& request);
  void enter(Request& request, const PrefixHit& hit, std::uint32_t num_tokens, PlanArena& arena);

  // apply.cpp
  void take_tokens(const PlanArena& arena, std::span<const SampledToken> sampled);
  void take_token(Request& request, TokenId token);
  void end(Request& request);
  void retire_finished(const PlanArena& arena);

  // scheduler.cpp
  void commit(Request& request, std::uint32_t num_tokens, PlanArena& arena);
  void release_slot(Request& request);

  SchedulerConfig config;
  EventSink* events;  // may be null
  std::unique_ptr<BlockHasher> own_hasher;
  KvManager kv;
  RequestTable table;
  PlanRing plans;

  std::vector<Request*> running;  // in order of admission
  RequestQueue waiting;           // preempted ones at the front
  std::vector<Slot> free_slots;   // last in, first out
  std::vector<Slot> released;     // since the last plan
  std::uint32_t budget = 0;       // tokens left in the step being planned
  SchedulerCounters totals;       // the growing ones

  bool any_finished = false;  // by the result being applied
  StepOutcome outcome;
  std::vector<RequestUpdate> updates;
  std::vector<TokenId> updated_tokens;  // parallel to updates
  std::vector<RequestId> retired;
};

}  // namespace quire
