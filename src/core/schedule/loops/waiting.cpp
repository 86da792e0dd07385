// Chooses the requests to admit in this step. Called once per step after the running loop, on the core's thread. If a request is missing
// blocks or tokens, no later request is admitted, so that a long prompt does not starve. A request that is tried but not admitted must stay
// unchanged, except where vLLM changes it too (counts of look-ups, evicted encoder outputs).
#include "core/schedule/loops/waiting.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

bool WaitingLoop::schedule(PlanArena& arena) {
  QUIRE_CHECK(queues_.step_skipped.empty(), "the step_skipped queue is empty between steps");
  pressure_.look();
  // After a preemption no request is admitted: the running loop has just run out of blocks, so an admission would cause the next
  // preemption.
  const bool is_paused =
      context_.rules.block_holders_first ? queues_.pause == PauseState::paused_all : queues_.pause != PauseState::unpaused;
  if (!arena.preempted().empty() || is_paused) {
    report_queue_held(is_paused ? EventCause::paused : EventCause::preempting, {});
    budget_.note_lack_of_blocks();
    return false;
  }
  budget_.begin_admissions(arena.requests());
  const bool some_are_left = tenants_.is_on() ? admit_in_turns(arena) : admit_waiting(arena);
  if (!some_are_left && queues_.num_waiting() > 0) budget_.note_lack_of_blocks();
  queues_.requeue_skipped();
  return some_are_left;
}

bool WaitingLoop::admit_waiting(PlanArena& arena) {
  while (can_admit_more() && budget_.tokens() > 0 && has_free_row()) {
    RequestQueue& queue = next_queue();
    Request& request = queue.front();
    const auto [admission, cause, lacks_blocks] = try_admit(request, queue, arena);
    if (lacks_blocks) budget_.note_lack_of_blocks();
    // No later request is tried. If only tokens are missing, blocks may be free, so the next requests may load early.
    if (admission == Admission::blocked || admission == Admission::out_of_tokens) {
      report_queue_held(cause, request.id);
      return admission == Admission::out_of_tokens;
    }
    if (admission == Admission::admitted) pressure_.look();
    if (admission == Admission::skipped) pass_over(request, queue, cause);
  }
  report_queue_held(budget_.tokens() > 0 ? EventCause::no_slot : EventCause::no_tokens, {});
  return queues_.num_waiting() > 0;
}

void WaitingLoop::pass_over(Request& request, RequestQueue& queue, EventCause cause) {
  if (context_.events.wanted()) context_.events.on_event({.what = EventKind::passed_over, .cause = cause, .owner = request.id});
  queue.take(request);
  queues_.defer(request);
  queues_.step_skipped.prepend(request);
}

// Admits requests in the order of the tenants (tenant_turns.h). A request that is missing tokens ends the turn of its tenant only. A
// request that is missing blocks which no other request can free ends the loop for all tenants.
bool WaitingLoop::admit_in_turns(PlanArena& arena) {
  tenants_.begin_admissions();
  bool has_admitted = false, ran_out_of_tokens = false;
  while (Request* const next = tenants_.next()) {
    Request& request = *next;
    RequestQueue& queue = queues_.waiting.contains(request) ? queues_.waiting : queues_.skipped_waiting;
    AdmissionAttempt tried{Admission::skipped};
    if (const auto cause = reason_to_wait(request)) {
      tried.cause = *cause;
    } else {
      while ((budget_.tokens() <= 0 || !has_free_row()) && preempt_for_row(request, EventCause::no_slot, has_admitted, arena)) {
      }
      if (budget_.tokens() <= 0 || !has_free_row()) break;
      do {
        tried = try_admit(request, queue, arena);
      } while (may_free_blocks_for(request, tried) && preempt_for_row(request, EventCause::lack_of_blocks, has_admitted, arena));
    }
    if (tried.admission == Admission::blocked ||
        (tried.admission == Admission::out_of_tokens && !context_.config.scheduler.enable_chunked_prefill)) {
      report_queue_held(tried.cause, request.id);
      return tried.admission == Admission::out_of_tokens;
    }
    if (tried.admission == Admission::out_of_tokens) {
      if (tried.lacks_blocks && !ran_out_of_tokens) budget_.note_lack_of_blocks();
      ran_out_of_tokens = true;
      tenants_.end_turn(request);
      continue;
    }
    has_admitted |= tried.admission == Admission::admitted;
    tenants_.pass(request, tried.admission == Admission::admitted);
    if (tried.admission == Admission::admitted) pressure_.look();
    if (tried.admission == Admission::skipped) pass_over(request, queue, tried.cause);
  }
  report_queue_held(budget_.tokens() > 0 && !(ran_out_of_tokens && has_free_row()) ? EventCause::no_slot : EventCause::no_tokens, {});
  return queues_.num_waiting() > 0;
}

// Preempts a request of the tenant with the most rows. Returns false if no request may be preempted. Once a request was admitted in this
// step, it may use blocks that another request writes in this step, so requests with unwritten blocks are not preempted then.
bool WaitingLoop::preempt_for_row(const Request& beneficiary, EventCause cause, bool has_admitted, PlanArena& arena) {
  const auto chosen = tenants_.find_victim(
      queues_.running, beneficiary, [&](const Request& request) { return !has_admitted || !preemption_.has_unwritten_blocks(request); });
  if (chosen == queues_.running.end()) return false;
  std::size_t cursor = queues_.running.size();
  const Preemption::Victim victim = preemption_.take_victim(arena, cursor, chosen);
  if (context_.events.wanted())
    context_.events.on_event(
        {.what = EventKind::preempted, .cause = cause, .owner = victim.request.id, .beneficiary = beneficiary.id, .amount = 1});
  preemption_.preempt(victim, cause);
  arena.preempt(victim.request.id);
  pressure_.look();
  return true;
}

// Returns whether others may be preempted so that the blocked request gets blocks.
bool WaitingLoop::may_free_blocks_for(const Request& request, const AdmissionAttempt& tried) const {
  if (tried.admission != Admission::blocked) return false;
  const bool is_above_high = tried.cause == EventCause::above_high;
  if (!is_above_high && tried.cause != EventCause::lack_of_blocks) return false;
  if (tenants_.may_take_from_background(request)) return true;
  return !is_above_high && is_within_share(request);
}

// Returns whether the request needs at most an even share of all blocks (all blocks / tenants). Only such a request may preempt for blocks;
// a larger request waits until enough blocks are free.
bool WaitingLoop::is_within_share(const Request& request) const {
  std::uint64_t num_blocks = 0;
  for (std::uint32_t group = 0; group < context_.num_groups; ++group)
    num_blocks += static_cast<std::uint64_t>(request.num_tokens()) / allocator_.block_size(group) + 1;
  return num_blocks * tenants_.num_tenants() <= allocator_.num_blocks();
}

bool WaitingLoop::can_admit_more() const {
  return !queues_.skipped_waiting.empty() || (!queues_.waiting.empty() && queues_.pause == PauseState::unpaused);
}

bool WaitingLoop::has_free_row() const {
  return num_free_rows(context_, queues_) > 0;
}

RequestQueue& WaitingLoop::next_queue() {
  QUIRE_CHECK(!queues_.waiting.empty() || !queues_.skipped_waiting.empty(), "there is a waiting request");
  if (context_.rules.block_holders_first) return queues_.skipped_waiting.empty() ? queues_.waiting : queues_.skipped_waiting;
  if (queues_.waiting.empty() || queues_.skipped_waiting.empty())
    return queues_.waiting.empty() ? queues_.skipped_waiting : queues_.waiting;
  // Requests that were skipped in an earlier step came before the other waiting requests.
  if (context_.config.scheduler.policy == SchedulingPolicy::fcfs) return queues_.skipped_waiting;
  return precedes_in_queue(queues_.waiting.front(), queues_.skipped_waiting.front()) ? queues_.waiting : queues_.skipped_waiting;
}

WaitingLoop::AdmissionAttempt WaitingLoop::try_admit(Request& request, RequestQueue& queue, PlanArena& arena) {
  if (const auto cause = reason_to_wait(request)) return {Admission::skipped, *cause};
  while (pressure_.holds_back(request) && allocator_.reclaim_idle_session(request)) pressure_.look();
  if (pressure_.holds_back(request)) {
    allocator_.report_blocked(request, EventCause::above_high, 0);
    return {Admission::blocked, EventCause::above_high};
  }
  if (request.swapped != nullptr) return try_swap_in(request, queue);
  const std::optional<Computed> computed = look_up_.find(request, !budget_.limits_prompts());
  if (!computed) return {Admission::skipped, EventCause::connector};
  if (computed->load_async && may_get_next_input(request)) return {Admission::skipped};
  std::int32_t num_new_tokens = 0;
  EncoderGrant encoder;
  bool is_padded = false;
  if (!computed->load_async) {
    num_new_tokens = num_tokens_to_admit(request, computed->num_tokens, is_padded);
    if (num_new_tokens > 0 && request.has_encoder_inputs()) {
      encoder = encoder_.schedule(request, computed->num_tokens, num_new_tokens);
      num_new_tokens = encoder.num_new_tokens;
    }
    if (num_new_tokens > 0 && context_.config.mamba_align)
      num_new_tokens = budget_.align_for_mamba(request, computed->num_tokens, num_new_tokens);
    if (num_new_tokens <= 0)
      return {Admission::out_of_tokens, EventCause::no_tokens, budget_.limits_prompts() && !allocator_.has_blocks_for(request, *computed)};
  }
  if (const std::uint32_t missing = allocator_.take(request, *computed, {num_new_tokens, budget_.limits_prompts()}, encoder)) {
    if (request.has_encoder_inputs()) encoder_.release_all(request);
    allocator_.report_blocked(request, EventCause::lack_of_blocks, missing);
    return {Admission::blocked, EventCause::lack_of_blocks};
  }
  // The connector is notified only after the request has its blocks, because the connector may refer to them from then on.
  look_up_.note_admission(request, *computed);
  look_up_.notify_connector(request, *computed);
  queue.take(request);
  if (computed->load_async) {
    request.num_computed_tokens = computed->num_tokens;
    wait_for_load(request);
  } else {
    request_admitter_.admit(request, computed->num_tokens, num_new_tokens, is_padded, arena);
    encoder_.allocate(request, encoder, arena);
  }
  return {Admission::admitted};
}

std::optional<EventCause> WaitingLoop::reason_to_wait(Request& request) {
  if (is_blocked(request) && !look_up_.try_promote(request)) return why_blocked(request);
  // The results of stale tokens in flight would be inserted into the request's new output.
  if (request.in_flight.num_stale_tokens > 0 && !request.in_flight.drops_stale_tokens) return EventCause::none;
  if (budget_.exceeds_max_loras(request)) return EventCause::adapter;
  return std::nullopt;
}

// Returns whether a result in flight may end the session's answer. The session's next input would then run on blocks that are still being
// loaded.
bool WaitingLoop::may_get_next_input(const Request& request) const {
  return request.resumable && request.in_flight.num_plans > 0 && context_.rules.cut_sessions;
}

EventCause WaitingLoop::why_blocked(const Request& request) {
  QUIRE_CHECK(is_blocked(request), "the request is blocked");
  if (request.status == RequestStatus::waiting_for_remote_kv) return EventCause::loading;
  return request.status == RequestStatus::waiting_for_grammar ? EventCause::grammar : EventCause::input;
}

void WaitingLoop::report_queue_held(EventCause cause, RequestId front) {
  if (context_.events.wanted() && !(queues_.waiting.empty() && queues_.skipped_waiting.empty()))
    context_.events.on_event({.what = EventKind::queue_held, .cause = cause, .owner = front});
}

WaitingLoop::AdmissionAttempt WaitingLoop::try_swap_in(Request& request, RequestQueue& queue) {
  switch (allocator_.swap_in(request)) {
    case AdmissionAllocator::Return::begun:
      break;
    case AdmissionAllocator::Return::blocked:
      return {Admission::blocked, EventCause::lack_of_blocks};
    case AdmissionAllocator::Return::dropped:
      return {Admission::skipped, EventCause::lack_of_blocks};
  }
  queue.take(request);
  wait_for_load(request);
  return {Admission::admitted};
}

void WaitingLoop::wait_for_load(Request& request) {
  QUIRE_CHECK(request.slot == kNoSlot, "the waiting request has no slot");
  request.status = RequestStatus::waiting_for_remote_kv;
  request.is_prefilling = true;
  // A session that continued while it loaded (may_get_next_input()) counts as having received its blocks, as in vLLM.
  queues_.num_loading += request.load.received ? 0 : 1;
  queues_.defer(request);
  queues_.step_skipped.prepend(request);
}

std::int32_t WaitingLoop::num_tokens_to_admit(const Request& request, std::int32_t num_computed_tokens, bool& is_padded) const {
  const std::int32_t own = request.num_tokens() - num_computed_tokens;
  const std::int32_t padded = budget_.padded(num_computed_tokens, own);
  is_padded = padded != own;
  QUIRE_CHECK(padded >= own, "placeholders for draft tokens are added to the request's own tokens");
  // The request waits for the next step instead of running without the placeholders.
  if (is_padded && padded > budget_.tokens()) return 0;
  // If the threshold is lower than the number of draft tokens, some placeholders are cut. vLLM fails in this case, but only when it has
  // blocks for the request.
  const std::int32_t wanted = budget_.cap_at_threshold(request, num_computed_tokens, padded);
  if (!context_.config.scheduler.enable_chunked_prefill && wanted > budget_.tokens()) return 0;
  return std::min(wanted, budget_.tokens());
}

}  // namespace quire
