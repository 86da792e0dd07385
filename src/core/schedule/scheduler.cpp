// The facade: what comes in (add; finish and apply are in apply.cpp), and the frame of a step.
//
// States of a request, and who moves it:
//   waiting    in the waiting queue, no blocks                  add
//   running    in the batch, with a slot and blocks             waiting.cpp: enter
//   preempted  at the front of the waiting queue, no blocks     running.cpp: preempt
//   finished   in no queue, no blocks, known to a plan          apply.cpp: end
// and then it is destroyed (apply.cpp).
//
// A slot is free, or a running request's. It becomes free when its request stops running, is named in the next plan's `released`, and
// may be given out again in that same plan: the worker handles releases first.
#include "core/schedule/scheduler.h"

#include <fmt/format.h>

#include <utility>

#include "base/check.h"
#include "core/schedule/request_check.h"
#include "core/schedule/state.h"

namespace quire {

Scheduler::State::State(const SchedulerConfig& given, EventSink* sink, BlockHasher* hasher)
    : config(given),
      events(sink),
      own_hasher(hasher == nullptr ? std::make_unique<Sha256BlockHasher>(given.hash_seed) : nullptr),
      kv({.block_size = given.block_size,
          .num_blocks = given.num_blocks,
          .max_model_len = given.scheduler.max_model_len,
          .enable_prefix_caching = given.enable_prefix_caching},
         hasher != nullptr ? *hasher : *own_hasher, sink),
      table(std::size_t{given.scheduler.max_num_seqs} * 2 + given.scheduler.max_num_waiting),
      plans(given.scheduler.max_num_seqs, given.num_blocks) {
  const std::uint32_t max_num_seqs = given.scheduler.max_num_seqs;
  running.reserve(max_num_seqs);
  free_slots.reserve(max_num_seqs);
  for (std::uint32_t i = max_num_seqs; i > 0; --i) {
    free_slots.push_back(Slot{i - 1});
  }
  released.reserve(max_num_seqs);
  updates.reserve(max_num_seqs);
  updated_tokens.reserve(max_num_seqs);
  retired.reserve(max_num_seqs);
}

void Scheduler::State::commit(Request& request, std::uint32_t num_tokens, PlanArena& arena) {
  QUIRE_CHECK(num_tokens > 0 && num_tokens <= budget);
  arena.schedule(request, num_tokens);
  request.num_computed_tokens += num_tokens;
  ++request.num_in_flight;
  budget -= num_tokens;
  totals.num_scheduled_tokens += num_tokens;
}

void Scheduler::State::release_slot(Request& request) {
  free_slots.push_back(request.slot);
  released.push_back(request.slot);
}

Result<std::unique_ptr<Scheduler>> Scheduler::create(const SchedulerConfig& config, EventSink* events, BlockHasher* hasher) {
  if (auto valid = config.validate(); !valid) {
    return std::unexpected(valid.error());
  }
  return std::unique_ptr<Scheduler>(new Scheduler(std::make_unique<State>(config, events, hasher)));
}

Scheduler::Scheduler(std::unique_ptr<State> state) : state_(std::move(state)) {}
Scheduler::~Scheduler() = default;

Result<void> Scheduler::add(const NewRequest& request) {
  State& s = *state_;
  if (auto valid = check_request(request, s.config); !valid) {
    return valid;
  }
  if (s.waiting.size() >= s.config.scheduler.max_num_waiting) {
    return fail(ErrorCode::overloaded, "max_num_waiting", fmt::format("{} requests are waiting already", s.waiting.size()),
                "try again later");
  }
  const auto num_prompt_tokens = static_cast<std::uint32_t>(request.prompt.size());
  Request& r = s.table.create(request.id);
  r.num_prompt_tokens = num_prompt_tokens;
  r.min_total_tokens = num_prompt_tokens + request.min_tokens;
  r.max_total_tokens = max_total_tokens(request, s.config);
  r.tokens.assign(request.prompt.begin(), request.prompt.end());
  if (!request.ignore_eos) {
    r.stop_ids.assign(request.eos_ids.begin(), request.eos_ids.end());
  }
  r.stop_ids.insert(r.stop_ids.end(), request.stop_token_ids.begin(), request.stop_token_ids.end());
  r.sampling = request.sampling;
  r.extra_keys = request.extra_keys;
  s.kv.extend_hashes(r.kv, r.tokens, r.extra_keys);
  s.waiting.push_back(r);
  return {};
}

const StepPlan& Scheduler::schedule() {
  State& s = *state_;
  PlanArena& arena = s.plans.begin();
  s.budget = s.config.scheduler.max_num_batched_tokens;
  s.schedule_running(arena);
  // Admitting right after a preemption would only preempt again.
  if (arena.preempted().empty()) {
    s.schedule_waiting(arena);
  }
  for (Slot slot : s.released) {
    arena.release(slot);
  }
  s.released.clear();
  ++s.totals.num_steps;
  return arena.seal();
}

bool Scheduler::reset_prefix_cache() {
  return state_->kv.reset_prefix_cache();
}

bool Scheduler::has_work() const {
  return !state_->running.empty() || !state_->waiting.empty();
}

std::uint32_t Scheduler::num_outstanding_plans() const {
  return state_->plans.size();
}

SchedulerCounters Scheduler::counters() const {
  const State& s = *state_;
  SchedulerCounters counters = s.totals;
  counters.num_running = static_cast<std::uint32_t>(s.running.size());
  counters.num_waiting = static_cast<std::uint32_t>(s.waiting.size());
  counters.num_blocks = s.config.num_blocks - 1;
  counters.num_free_blocks = s.kv.pool().num_free_blocks();
  counters.num_evicted_blocks = s.kv.pool().num_evicted_blocks();
  return counters;
}

bool Scheduler::all_blocks_free() const {
  return state_->kv.pool().num_free_blocks() == state_->config.num_blocks - 1;
}

}  // namespace quire
