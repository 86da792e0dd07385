// The waiting loop: requests are admitted to the batch in the order of the queues. One that must wait for a reason of its own (its grammar,
// its transfer, its adapter) is skipped, and goes before those skipped earlier; one that lacks blocks or tokens ends the loop.
//
//   waiting, preempted -> running          admit: with the blocks of its cached prefix and of its first chunk
//   waiting, preempted -> waiting_for_remote_kv   with the blocks that the connector fills
//   waiting_for_remote_kv -> waiting, preempted   take_back_loaded: they came, and another needs them more
#include <algorithm>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

void Core::State::schedule_waiting(PlanArena& arena) {
  QUIRE_CHECK(step_skipped.empty(), "that queue lives for one step");
  // Admitting right after a preemption would only preempt again.
  if (!arena.preempted().empty() || pause != PauseState::unpaused) return;
  while ((!waiting.empty() || !skipped_waiting.empty()) && token_budget > 0 && running.size() != config.scheduler.max_num_seqs) {
    RequestQueue& queue = queue_to_take_from();
    Request& request = queue.front();
    const Admission admission = try_admit(request, queue, arena);
    if (admission == Admission::blocked) break;
    if (admission != Admission::skipped) continue;
    queue.take(request);
    step_skipped.prepend(request);
  }
  skipped_waiting.prepend_all(step_skipped);
}

// One queue at least is not empty.
RequestQueue& Core::State::queue_to_take_from() {
  QUIRE_CHECK(!waiting.empty() || !skipped_waiting.empty(), "somebody waits");
  if (waiting.empty() || skipped_waiting.empty()) return waiting.empty() ? skipped_waiting : waiting;
  if (config.scheduler.policy == SchedulingPolicy::fcfs) return skipped_waiting;
  return goes_before(waiting.front(), skipped_waiting.front()) ? waiting : skipped_waiting;
}

Core::State::Admission Core::State::try_admit(Request& request, RequestQueue& queue, PlanArena& arena) {
  if ((blocked(request) && !try_promote(request)) || exceeds_max_loras(request)) return Admission::skipped;
  const std::optional<Computed> computed = look_up(request);
  if (!computed) return Admission::skipped;
  std::int32_t num_new_tokens = 0;
  EncoderGrant encoder;
  if (!computed->load_async) {
    num_new_tokens = num_tokens_to_admit(request, computed->num_tokens);
    if (num_new_tokens > 0 && request.has_encoder_inputs()) {
      encoder = schedule_encoder_inputs(request, computed->num_tokens, num_new_tokens);
      num_new_tokens = encoder.num_new_tokens;
    }
    if (num_new_tokens > 0 && config.mamba_align) num_new_tokens = align_for_mamba(request, computed->num_tokens, num_new_tokens);
    if (num_new_tokens <= 0) return Admission::blocked;
  }
  while (const std::uint32_t missing = take_blocks(request, *computed, num_new_tokens, encoder)) {
    if (end_oldest_pin() || (running.empty() && give_up_share(EventCause::lack_of_blocks, &request)) || take_back_loaded(request)) continue;
    if (request.has_encoder_inputs()) encoder_cache.release_all(encoder_inputs(request));
    if (events.wanted())
      events.on_event({.what = EventKind::admission_blocked, .cause = EventCause::lack_of_blocks, .owner = request.id, .amount = missing});
    return Admission::blocked;
  }
  notify_connector(request, *computed);
  queue.take(request);
  if (computed->load_async) {
    request.status = RequestStatus::waiting_for_remote_kv;
    ++num_loading;
    request.num_computed_tokens = computed->num_tokens;
    step_skipped.prepend(request);
  } else {
    admit(request, computed->num_tokens, num_new_tokens, arena);
    allocate_encoder_inputs(request, encoder, arena);
  }
  return Admission::admitted;
}

// False: something runs, or nobody else who waits holds blocks that have come.
bool Core::State::take_back_loaded(const Request& beneficiary) {
  if (!config.cures.loaded_give_way || !running.empty()) return false;
  Request* last = nullptr;
  const auto look = [&](Request& request) {
    if (&request != &beneficiary && !is_loading(request) && num_blocks(request) > 0) last = &request;
  };
  skipped_waiting.for_each(look);
  waiting.for_each(look);
  if (last == nullptr) return false;
  if (events.wanted()) {
    events.on_event({.what = EventKind::gave_way,
                     .cause = EventCause::lack_of_blocks,
                     .owner = last->id,
                     .beneficiary = beneficiary.id,
                     .amount = num_blocks(*last)});
  }
  if (last->status == RequestStatus::waiting_for_remote_kv)
    last->status = last->num_preemptions > 0 ? RequestStatus::preempted : RequestStatus::waiting;
  last->finished_receiving = false;
  last->failed_receiving = false;
  last->num_computed_tokens = 0;
  kv.free(last->blocks);
  return true;
}

bool Core::State::exceeds_max_loras(const Request& request) const {
  return config.limits.max_loras > 0 && request.lora_id != 0 && loras.size() == config.limits.max_loras &&
         std::ranges::find(loras, request.lora_id) == loras.end();
}

// 0: without chunked prefill, it does not fit into what is left of the step.
std::int32_t Core::State::num_tokens_to_admit(const Request& request, std::int32_t num_computed_tokens) const {
  std::int32_t wanted = request.num_tokens() - num_computed_tokens;
  if (const auto threshold = static_cast<std::int32_t>(config.scheduler.long_prefill_token_threshold); threshold > 0)
    wanted = std::min(wanted, threshold);
  if (!config.scheduler.enable_chunked_prefill && wanted > token_budget) return 0;
  return std::min(wanted, token_budget);
}

// The number of blocks that lack; 0: it has them.
std::uint32_t Core::State::take_blocks(Request& request, const Computed& computed, std::int32_t num_new_tokens,
                                       const EncoderGrant& encoder) {
  SlotDemand demand{.num_new_tokens = static_cast<std::uint32_t>(num_new_tokens),
                    .num_new_computed_tokens = computed.hit.num_tokens,
                    // A request that starts anew has no drafts yet.
                    .num_lookahead_tokens = request.num_computed_tokens == 0 ? 0 : config.speculation.num_lookahead_tokens,
                    .num_external_tokens = computed.num_external,
                    .num_encoder_tokens = 0,
                    .delay_caching = computed.load_async};
  if (config.encoder.is_encoder_decoder)
    for (const std::uint32_t input : encoder.to_compute) demand.num_encoder_tokens += request.features[input].position.num_embeds();
  reserve_memory(request);
  const KvRequest view = kv_request(request);
  if (config.scheduler.reserve_full_isl) {
    if (const std::uint32_t missing = kv.missing_for_full_sequence(view, demand, computed.hit)) return missing;
  }
  return kv.allocate_slots(view, demand, computed.hit);
}

void Core::State::admit(Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens, PlanArena& arena) {
  QUIRE_CHECK(request.status == RequestStatus::waiting || request.status == RequestStatus::preempted, "only these are admitted");
  const ScheduledKind kind = request.status == RequestStatus::waiting ? ScheduledKind::fresh : ScheduledKind::resumed;
  running.push_back(&request);
  record(request, RequestEventKind::scheduled, now);
  if (config.limits.max_loras > 0 && request.lora_id != 0 && std::ranges::find(loras, request.lora_id) == loras.end())
    loras.push_back(request.lora_id);
  request.status = RequestStatus::running;
  request.num_computed_tokens = num_computed_tokens;
  if (request.num_cached_tokens < 0) request.num_cached_tokens = num_computed_tokens;
  QUIRE_CHECK(!free_slots.empty(), "a slot for each that may run");
  request.slot = free_slots.back();
  free_slots.pop_back();
  leave_sharing(request);
  arena.admit(request, !request.admitted_before);
  request.admitted_before = true;
  commit(request, num_new_tokens, kind, arena);
  plan_copies(request, kind, arena);
  for (std::uint32_t group = 0; group < num_groups; ++group)
    arena.table_delta(request, group, TableUpdate::replace_all, request.blocks.blocks(group));
  if (config.parallel.pipeline_parallel && kind == ScheduledKind::resumed) send_new_tokens(request, arena);
}

}  // namespace quire
