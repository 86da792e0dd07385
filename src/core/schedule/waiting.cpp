#include "core/schedule/waiting.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
void WaitingLoop::schedule(PlanArena& arena) {
  QUIRE_CHECK(queues_.step_skipped.empty(), "that queue lives for one step");
  pressure_.look();
  // Admitting right after a preemption would only preempt again.
  if (!arena.preempted().empty() || queues_.pause != PauseState::unpaused) return;
  budget_.begin_admissions(arena.requests());
  const bool may_load_early = admit_waiting(arena);
  queues_.skipped_waiting.prepend_all(queues_.step_skipped);
  if (may_load_early) early_loads_.begin(arena.plan().step);
}

bool WaitingLoop::admit_waiting(PlanArena& arena) {
  while ((!queues_.waiting.empty() || !queues_.skipped_waiting.empty()) && budget_.tokens() > 0 &&
         queues_.running.size() != context_.config.scheduler.max_num_seqs) {
    RequestQueue& queue = queue_to_take_from();
    Request& request = queue.front();
    const Admission admission = try_admit(request, queue, arena);
    if (admission == Admission::blocked || admission == Admission::lacks_tokens) return admission == Admission::lacks_tokens;
    if (admission == Admission::admitted) pressure_.look();
    if (admission != Admission::skipped) continue;
    queue.take(request);
    queues_.step_skipped.prepend(request);
  }
  return queues_.num_waiting() > 0;
}

RequestQueue& WaitingLoop::queue_to_take_from() {
  QUIRE_CHECK(!queues_.waiting.empty() || !queues_.skipped_waiting.empty(), "somebody waits");
  if (queues_.waiting.empty() || queues_.skipped_waiting.empty())
    return queues_.waiting.empty() ? queues_.skipped_waiting : queues_.waiting;
  if (context_.config.scheduler.policy == SchedulingPolicy::fcfs) return queues_.skipped_waiting;
  return goes_before(queues_.waiting.front(), queues_.skipped_waiting.front()) ? queues_.waiting : queues_.skipped_waiting;
}

WaitingLoop::Admission WaitingLoop::try_admit(Request& request, RequestQueue& queue, PlanArena& arena) {
  if ((is_blocked(request) && !look_up_.try_promote(request)) || budget_.exceeds_max_loras(request)) return Admission::skipped;
  if (pressure_.holds_back(request)) return blocked(request, EventCause::above_high, 0);
  if (request.swapped != nullptr) return try_bring_back(request, queue);
  const std::optional<Computed> computed = look_up_.find(request);
  if (!computed) return Admission::skipped;
  std::int32_t num_new_tokens = 0;
  EncoderGrant encoder;
  if (!computed->load_async) {
    num_new_tokens = num_tokens_to_admit(request, computed->num_tokens);
    if (num_new_tokens > 0 && request.has_encoder_inputs()) {
      encoder = encoder_.schedule(request, computed->num_tokens, num_new_tokens);
      num_new_tokens = encoder.num_new_tokens;
    }
    if (num_new_tokens > 0 && context_.config.mamba_align)
      num_new_tokens = budget_.align_for_mamba(request, computed->num_tokens, num_new_tokens);
    if (num_new_tokens <= 0) return Admission::lacks_tokens;
  }
  while (const std::uint32_t missing = take_blocks(request, *computed, num_new_tokens, encoder)) {
    if (giving_way_.while_idle(request) || giving_way_.to_earlier(request, missing)) continue;
    if (request.has_encoder_inputs()) encoder_.release_all(request);
    return blocked(request, EventCause::lack_of_blocks, missing);
  }
  look_up_.notify_connector(request, *computed);
  queue.take(request);
  if (computed->load_async) {
    request.status = RequestStatus::waiting_for_remote_kv;
    ++queues_.num_loading;
    request.num_computed_tokens = computed->num_tokens;
    queues_.step_skipped.prepend(request);
  } else {
    admit(request, computed->num_tokens, num_new_tokens, arena);
    encoder_.allocate(request, encoder, arena);
  }
  return Admission::admitted;
}

WaitingLoop::Admission WaitingLoop::try_bring_back(Request& request, RequestQueue& queue) {
  if (!swap_.can_come_back(request)) return Admission::blocked;
  while (const std::uint32_t missing = swap_.bring_back(request, pressure_.num_left_free())) {
    if (giving_way_.while_idle(request)) continue;
    if (!queues_.running.empty() || queues_.num_loading > 0) return blocked(request, EventCause::lack_of_blocks, missing);
    // There is no room for what it had and all that it lacks at a time.
    swap_.drop(request, EventCause::lack_of_blocks);
    return Admission::skipped;
  }
  queue.take(request);
  request.status = RequestStatus::waiting_for_remote_kv;
  ++queues_.num_loading;
  queues_.step_skipped.prepend(request);
  return Admission::admitted;
}

WaitingLoop::Admission WaitingLoop::blocked(const Request& request, EventCause cause, std::uint32_t num_missing) {
  if (context_.events.wanted())
    context_.events.on_event({.what = EventKind::admission_blocked, .cause = cause, .owner = request.id, .amount = num_missing});
  return Admission::blocked;
}

std::int32_t WaitingLoop::num_tokens_to_admit(const Request& request, std::int32_t num_computed_tokens) const {
  const std::int32_t wanted = budget_.below_threshold(request.num_tokens() - num_computed_tokens);
  if (!context_.config.scheduler.enable_chunked_prefill && wanted > budget_.tokens()) return 0;
  return std::min(wanted, budget_.tokens());
}

std::uint32_t WaitingLoop::take_blocks(Request& request, const Computed& computed, std::int32_t num_new_tokens,
                                       const EncoderGrant& encoder) {
  SlotDemand demand{.num_new_tokens = static_cast<std::uint32_t>(num_new_tokens),
                    .num_new_computed_tokens = computed.hit.num_tokens,
                    // A request that starts anew has no drafts yet.
                    .num_lookahead_tokens = request.num_computed_tokens == 0 ? 0 : context_.config.speculation.num_lookahead_tokens,
                    .num_external_tokens = computed.num_external,
                    .num_encoder_tokens = 0,
                    .delay_caching = computed.load_async,
                    .num_left_free = pressure_.num_left_free()};
  if (context_.config.encoder.is_encoder_decoder)
    for (const std::uint32_t input : encoder.to_compute) demand.num_encoder_tokens += request.features[input].position.num_embeds();
  requests_.reserve_memory(request);
  const KvRequest view = requests_.kv_request(request);
  if (context_.config.scheduler.reserve_full_isl) {
    if (const std::uint32_t missing = kv_.missing_for_full_sequence(view, demand, computed.hit)) return missing;
  }
  return kv_.allocate_slots(view, demand, computed.hit);
}

void WaitingLoop::admit(Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens, PlanArena& arena) {
  QUIRE_CHECK(request.status == RequestStatus::waiting || request.status == RequestStatus::preempted, "only these are admitted");
  const ScheduledKind kind = request.status == RequestStatus::waiting ? ScheduledKind::fresh : ScheduledKind::resumed;
  queues_.running.push_back(&request);
  requests_.record(request, RequestEventKind::scheduled, context_.now);
  budget_.note_lora(request);
  request.status = RequestStatus::running;
  request.num_computed_tokens = num_computed_tokens;
  if (request.num_cached_tokens < 0) request.num_cached_tokens = num_computed_tokens;
  slots_.take(request);
  forks_.leave_sharing(request);
  arena.admit(request, !request.admitted_before);
  request.admitted_before = true;
  request.loaded_early = false;
  budget_.commit(request, num_new_tokens, kind, arena);
  forks_.plan_copies(request, kind, arena);
  for (std::uint32_t group = 0; group < context_.num_groups; ++group)
    arena.table_delta(request, group, TableUpdate::replace_all, request.blocks.blocks(group));
  if (context_.config.parallel.pipeline_parallel && kind == ScheduledKind::resumed) budget_.send_new_tokens(request, arena);
}

}  // namespace quire
