// Who is admitted in this step. Called once per step, after the running loop, on the core's thread. Nobody is admitted past a request that
// lacks blocks or tokens: that is what keeps a long prompt from starving. A request that is looked at and not admitted must be as it was,
// but for what vLLM leaves too (counts of look-ups, encoder outputs that were evicted).
#include "core/schedule/loops/waiting.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

bool WaitingLoop::schedule(PlanArena& arena) {
  QUIRE_CHECK(queues_.step_skipped.empty(), "that queue lives for one step");
  pressure_.look();
  // Admitting right after a preemption would only preempt again: the running loop has just found that blocks lack.
  const bool is_paused = context_.rules.holders_first ? queues_.pause == PauseState::paused_all : queues_.pause != PauseState::unpaused;
  if (!arena.preempted().empty() || is_paused) {
    tell_held(is_paused ? EventCause::paused : EventCause::preempting, {});
    return false;
  }
  budget_.begin_admissions(arena.requests());
  const bool some_are_left = admit_waiting(arena);
  queues_.take_back_skipped();
  return some_are_left;
}

bool WaitingLoop::admit_waiting(PlanArena& arena) {
  while (may_take_one() && budget_.tokens() > 0 && has_place()) {
    RequestQueue& queue = queue_to_take_from();
    Request& request = queue.front();
    const auto [admission, cause] = try_admit(request, queue, arena);
    // Nobody behind it is looked at. Where only tokens lack in this step, blocks may be there, and those that are next may load early.
    if (admission == Admission::blocked || admission == Admission::lacks_tokens) {
      tell_held(cause, request.id);
      return admission == Admission::lacks_tokens;
    }
    if (admission == Admission::admitted) pressure_.look();
    if (admission != Admission::skipped) continue;
    if (context_.events.wanted()) context_.events.on_event({.what = EventKind::passed_over, .cause = cause, .owner = request.id});
    queue.take(request);
    queues_.defer(request);
    queues_.step_skipped.prepend(request);
  }
  tell_held(budget_.tokens() > 0 ? EventCause::no_slot : EventCause::no_tokens, {});
  return queues_.num_waiting() > 0;
}

bool WaitingLoop::may_take_one() const {
  return !queues_.skipped_waiting.empty() || (!queues_.waiting.empty() && queues_.pause == PauseState::unpaused);
}

// Who is between two inputs keeps his row of the batch.
bool WaitingLoop::has_place() const {
  const std::size_t num_kept = context_.rules.sessions_take_places ? queues_.num_waiting_for_input : 0;
  const std::uint32_t most = context_.config.newer.max_num_active_seqs;
  return queues_.running.size() + num_kept < (most > 0 ? most : context_.config.scheduler.max_num_seqs);
}

RequestQueue& WaitingLoop::queue_to_take_from() {
  QUIRE_CHECK(!queues_.waiting.empty() || !queues_.skipped_waiting.empty(), "somebody waits");
  if (context_.rules.holders_first) return queues_.skipped_waiting.empty() ? queues_.waiting : queues_.skipped_waiting;
  if (queues_.waiting.empty() || queues_.skipped_waiting.empty())
    return queues_.waiting.empty() ? queues_.skipped_waiting : queues_.waiting;
  // Who was skipped in an earlier step came before those who wait.
  if (context_.config.scheduler.policy == SchedulingPolicy::fcfs) return queues_.skipped_waiting;
  return goes_before(queues_.waiting.front(), queues_.skipped_waiting.front()) ? queues_.waiting : queues_.skipped_waiting;
}

WaitingLoop::Tried WaitingLoop::try_admit(Request& request, RequestQueue& queue, PlanArena& arena) {
  if (is_blocked(request) && !look_up_.try_promote(request)) return {Admission::skipped, why_blocked(request)};
  // What is in flight for it would come in the middle of what it runs now.
  if (request.num_stale_tokens > 0 && !request.drops_stale) return {Admission::skipped};
  if (budget_.exceeds_max_loras(request)) return {Admission::skipped, EventCause::adapter};
  if (pressure_.holds_back(request)) {
    room_.tell_blocked(request, EventCause::above_high, 0);
    return {Admission::blocked, EventCause::above_high};
  }
  if (request.swapped != nullptr) return try_bring_back(request, queue);
  const std::optional<Computed> computed = look_up_.find(request);
  if (!computed) return {Admission::skipped, EventCause::connector};
  if (computed->load_async && may_be_moved_on(request)) return {Admission::skipped};
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
    if (num_new_tokens <= 0) return {Admission::lacks_tokens, EventCause::no_tokens};
  }
  if (const std::uint32_t missing = room_.take(request, *computed, num_new_tokens, encoder)) {
    if (request.has_encoder_inputs()) encoder_.release_all(request);
    room_.tell_blocked(request, EventCause::lack_of_blocks, missing);
    return {Admission::blocked, EventCause::lack_of_blocks};
  }
  // Once it has the blocks: the connector may refer to them from now on.
  look_up_.note_admission(request, *computed);
  look_up_.notify_connector(request, *computed);
  queue.take(request);
  if (computed->load_async) {
    request.num_computed_tokens = computed->num_tokens;
    wait_for_load(request);
  } else {
    admitting_.admit(request, computed->num_tokens, num_new_tokens, is_padded, arena);
    encoder_.allocate(request, encoder, arena);
  }
  return {Admission::admitted};
}

// A late token may end a session's answer: the next input would then run on blocks that are still being loaded.
bool WaitingLoop::may_be_moved_on(const Request& request) const {
  return request.resumable && request.num_in_flight > 0 && context_.config.cures.cut_sessions;
}

EventCause WaitingLoop::why_blocked(const Request& request) {
  QUIRE_CHECK(is_blocked(request), "asked of one that waits for something else than its turn");
  if (request.status == RequestStatus::waiting_for_remote_kv) return EventCause::loading;
  return request.status == RequestStatus::waiting_for_grammar ? EventCause::grammar : EventCause::input;
}

void WaitingLoop::tell_held(EventCause cause, RequestId front) {
  if (context_.events.wanted() && !(queues_.waiting.empty() && queues_.skipped_waiting.empty()))
    context_.events.on_event({.what = EventKind::queue_held, .cause = cause, .owner = front});
}

WaitingLoop::Tried WaitingLoop::try_bring_back(Request& request, RequestQueue& queue) {
  switch (room_.bring_back(request)) {
    case AdmissionRoom::Return::begun:
      break;
    case AdmissionRoom::Return::blocked:
      return {Admission::blocked, EventCause::lack_of_blocks};
    case AdmissionRoom::Return::dropped:
      return {Admission::skipped, EventCause::lack_of_blocks};
  }
  queue.take(request);
  wait_for_load(request);
  return {Admission::admitted};
}

void WaitingLoop::wait_for_load(Request& request) {
  QUIRE_CHECK(request.slot == kNoSlot, "it does not run");
  request.status = RequestStatus::waiting_for_remote_kv;
  request.is_prefilling = true;
  // As in vLLM a session that was moved on while it loaded (may_be_moved_on) is taken for one whose blocks have come.
  queues_.num_loading += request.finished_receiving ? 0 : 1;
  queues_.defer(request);
  queues_.step_skipped.prepend(request);
}

std::int32_t WaitingLoop::num_tokens_to_admit(const Request& request, std::int32_t num_computed_tokens, bool& is_padded) const {
  const std::int32_t own = request.num_tokens() - num_computed_tokens;
  const std::int32_t padded = budget_.padded(num_computed_tokens, own);
  is_padded = padded != own;
  QUIRE_CHECK(padded >= own, "places for drafts come behind its own tokens");
  // Rather in the next step than without them.
  if (is_padded && padded > budget_.tokens()) return 0;
  // A threshold below the number of drafts cuts into the placeholders; vLLM gives up on that, though not before there are blocks for it.
  const std::int32_t wanted = budget_.below_threshold(padded);
  if (!context_.config.scheduler.enable_chunked_prefill && wanted > budget_.tokens()) return 0;
  return std::min(wanted, budget_.tokens());
}

}  // namespace quire
