#include "core/schedule/loops/admission_allocator.h"

#include "base/check.h"

namespace quire {

std::uint32_t AdmissionAllocator::take(Request& request, const Computed& computed, const FirstChunk& chunk, const EncoderGrant& encoder) {
  // A failed try_take() takes no blocks. Each iteration frees blocks or references of another request, so the loop ends.
  while (const std::uint32_t missing = try_take(request, computed, chunk, encoder))
    if (!block_reclaimer_.reclaim_while_idle(request) && !block_reclaimer_.reclaim_idle_session(request) &&
        !block_reclaimer_.reclaim_for_earlier(request, missing))
      return missing;
  return 0;
}

std::uint32_t AdmissionAllocator::try_take(Request& request, const Computed& computed, const FirstChunk& chunk,
                                           const EncoderGrant& encoder) {
  QUIRE_CHECK(chunk.num_tokens >= 0 && request.slot == kNoSlot, "the request does not run yet");
  SlotDemand demand{
      .num_new_tokens = static_cast<std::uint32_t>(chunk.num_tokens),
      .num_new_computed_tokens = computed.hit.num_tokens,
      .num_lookahead_tokens = needs_lookahead(request, computed) ? context_.config.speculation.num_lookahead_tokens : 0,
      .num_external_tokens = computed.num_external,
      .num_encoder_tokens = 0,
      .delay_caching = computed.load_async,
      .num_min_free_blocks = pressure_.num_min_free_blocks(),
      .num_watermark_blocks = queues_.running.empty() ? 0 : context_.config.newer.num_watermark_blocks,
      .num_reserved_blocks = computed.load_async && context_.rules.loads_reserve_prefill_blocks ? num_reserved() : 0,
      .num_prefill_blocks = chunk.keeps_prefill_blocks && computed.was_looked_up ? num_prefill_blocks() : 0,
      .num_unsure_tokens = static_cast<std::uint32_t>(context_.rules.windows_advance_on_results ? request.in_flight.num_tokens : 0)};
  if (context_.config.encoder.is_encoder_decoder)
    for (const std::uint32_t input : encoder.to_compute) demand.num_encoder_tokens += request.features[input].position.num_embeds();
  QUIRE_CHECK(computed.load_async == (chunk.num_tokens == 0), "a request either runs tokens or waits for its load");
  requests_.reserve_memory(request);
  const KvRequest view = requests_.kv_request(request);
  if (context_.config.scheduler.reserve_full_isl) {
    if (const std::uint32_t missing = kv_.missing_for_full_sequence(view, demand, computed.hit)) return missing;
  }
  return kv_.allocate_slots(view, demand, computed.hit);
}

// Returns the number of blocks that requests still need to load or compute their prompts, plus the blocks of one step with draft tokens. A
// load holds its blocks until it has ended, and only its own request can then continue. Without this reserve, two loads could wait for each
// other.
std::uint32_t AdmissionAllocator::num_reserved() const {
  const SpeculationOptions& drafts = context_.config.speculation;
  const std::uint32_t num_step_tokens = drafts.num_spec_tokens > 0 ? 1 + drafts.num_spec_tokens + drafts.num_lookahead_tokens : 0;
  std::uint32_t num_blocks = 0;
  for (std::uint32_t group = 0; group < context_.num_groups; ++group)
    num_blocks += (num_step_tokens + kv_.block_size(group) - 1) / kv_.block_size(group);
  const auto count = [&](Request& request) {
    if (request.is_prefilling) num_blocks += kv_.num_future_blocks(requests_.kv_request(request), num_step_tokens);
  };
  for (Request* request : queues_.running) count(*request);
  queues_.waiting.for_each(count);
  queues_.skipped_waiting.for_each(count);
  queues_.step_skipped.for_each(count);
  return num_blocks;
}

// Without this reserve, prompts that are computed at the same time would preempt each other.
std::uint32_t AdmissionAllocator::num_prefill_blocks() const {
  std::uint32_t num_blocks = 0;
  for (Request* request : queues_.running)
    if (request->is_prefilling) num_blocks += kv_.num_future_blocks(requests_.kv_request(*request), 0, true);
  return num_blocks;
}

bool AdmissionAllocator::has_blocks_for(Request& request, const Computed& computed) {
  if (!computed.was_looked_up) return true;
  const SlotDemand demand{.num_new_computed_tokens = computed.hit.num_tokens,
                          .num_external_tokens = computed.num_external,
                          .num_min_free_blocks = pressure_.num_min_free_blocks(),
                          .num_prefill_blocks = num_prefill_blocks()};
  requests_.reserve_memory(request);
  return kv_.missing_for_full_sequence(requests_.kv_request(request), demand, computed.hit) == 0;
}

// A request that starts from scratch has no draft tokens yet, so it needs no lookahead.
bool AdmissionAllocator::needs_lookahead(const Request& request, const Computed& computed) const {
  return context_.rules.lookahead_at_admission ? !computed.load_async : request.num_computed_tokens != 0;
}

AdmissionAllocator::Return AdmissionAllocator::swap_in(Request& request) {
  if (!swap_.can_swap_in(request)) return Return::blocked;
  while (const std::uint32_t missing = swap_.swap_in(request, pressure_.num_min_free_blocks())) {
    if (block_reclaimer_.reclaim_while_idle(request) || block_reclaimer_.reclaim_idle_session(request)) continue;
    if (!queues_.running.empty() || queues_.num_loading > 0) {
      report_blocked(request, EventCause::lack_of_blocks, missing);
      return Return::blocked;
    }
    swap_.drop(request, EventCause::lack_of_blocks);
    return Return::dropped;
  }
  return Return::begun;
}

void AdmissionAllocator::report_blocked(const Request& request, EventCause cause, std::uint32_t num_missing) {
  if (context_.events.wanted())
    context_.events.on_event({.what = EventKind::admission_blocked, .cause = cause, .owner = request.id, .amount = num_missing});
}

}  // namespace quire
