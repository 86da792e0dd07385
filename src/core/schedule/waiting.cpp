#include "core/schedule/waiting.h"

#include <algorithm>

#include "base/check.h"

namespace quire {
namespace {

// Not a session between two inputs, nor one that goes on: what these hold they have computed themselves. The tokens of a session are those
// that it has computed, and a connector may be about to store them.
bool waits_with_loaded_blocks(const Request& request) {
  if (is_loading(request) || Requests::num_blocks(request) == 0) return false;
  return !request.admitted_before || request.status == RequestStatus::waiting_for_remote_kv || request.status == RequestStatus::preempted;
}

}  // namespace

void WaitingLoop::schedule(PlanArena& arena) {
  QUIRE_CHECK(queues_.step_skipped.empty(), "that queue lives for one step");
  // Admitting right after a preemption would only preempt again.
  if (!arena.preempted().empty() || queues_.pause != PauseState::unpaused) return;
  budget_.begin_admissions(arena.requests());
  while ((!queues_.waiting.empty() || !queues_.skipped_waiting.empty()) && budget_.tokens() > 0 &&
         queues_.running.size() != context_.config.scheduler.max_num_seqs) {
    RequestQueue& queue = queue_to_take_from();
    Request& request = queue.front();
    const Admission admission = try_admit(request, queue, arena);
    if (admission == Admission::blocked) break;
    if (admission != Admission::skipped) continue;
    queue.take(request);
    queues_.step_skipped.prepend(request);
  }
  queues_.skipped_waiting.prepend_all(queues_.step_skipped);
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
    if (num_new_tokens <= 0) return Admission::blocked;
  }
  while (const std::uint32_t missing = take_blocks(request, *computed, num_new_tokens, encoder)) {
    // While somebody runs, blocks come free when he ends: what is kept for later stays.
    if (queues_.running.empty() &&
        (policy_.end_oldest_pin() || forks_.give_up_share(EventCause::lack_of_blocks, &request) || take_back_loaded(request)))
      continue;
    if (request.has_encoder_inputs()) encoder_.release_all(request);
    if (context_.events.wanted())
      context_.events.on_event(
          {.what = EventKind::admission_blocked, .cause = EventCause::lack_of_blocks, .owner = request.id, .amount = missing});
    return Admission::blocked;
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

bool WaitingLoop::take_back_loaded(const Request& beneficiary) {
  if (!context_.config.cures.loaded_give_way) return false;
  Request* last = nullptr;
  const auto look = [&](Request& request) {
    if (&request != &beneficiary && waits_with_loaded_blocks(request)) last = &request;
  };
  queues_.skipped_waiting.for_each(look);
  queues_.waiting.for_each(look);
  if (last == nullptr) return false;
  if (context_.events.wanted()) {
    context_.events.on_event({.what = EventKind::gave_way,
                              .cause = EventCause::lack_of_blocks,
                              .owner = last->id,
                              .beneficiary = beneficiary.id,
                              .amount = Requests::num_blocks(*last)});
  }
  requests_.forget_loaded(*last);
  return true;
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
                    .delay_caching = computed.load_async};
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
  budget_.commit(request, num_new_tokens, kind, arena);
  forks_.plan_copies(request, kind, arena);
  for (std::uint32_t group = 0; group < context_.num_groups; ++group)
    arena.table_delta(request, group, TableUpdate::replace_all, request.blocks.blocks(group));
  if (context_.config.parallel.pipeline_parallel && kind == ScheduledKind::resumed) budget_.send_new_tokens(request, arena);
}

}  // namespace quire
