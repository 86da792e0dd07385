// What a plan says besides tokens and blocks, and what a made plan changes: its tokens count as computed from now on, so that the next
// plan can be made before this one has run.
#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

void Core::State::complete(PlanArena& arena) {
  QUIRE_CHECK(running.size() <= config.scheduler.max_num_seqs, "the batch has a limit");
  for (const Slot slot : released) arena.release(slot);
  released.clear();
  for (const RequestId id : finished) arena.finish(id);
  const std::span<std::uint32_t> common = arena.common_prefix_blocks(num_groups);
  if (config.report.count_common_prefix && !running.empty()) kv.common_prefix_blocks(running.front()->blocks, common);
  if (zero_new_blocks) kv.take_new_block_ids(arena.blocks_to_zero());
  arena.free_encoder_outputs(encoder_cache.take_freed());
}

// _update_after_schedule, of both schedulers.
void Core::State::advance(PlanArena& arena, StepPlan& plan) {
  const std::span<Request* const> requests = arena.requests();
  QUIRE_CHECK(plan.num_scheduled_tokens <= config.scheduler.max_num_batched_tokens, "a step keeps to its budget");
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Request& request = *requests[i];
    const ScheduledRequest& s = plan.scheduled[i];
    QUIRE_CHECK(request.status == RequestStatus::running && s.id == request.id, "what is planned runs");
    ++request.num_in_flight;
    request.num_computed_tokens += static_cast<std::int32_t>(s.num_tokens);
    request.is_prefill_chunk = request.num_computed_tokens < request.num_tokens() + request.num_output_placeholders;
    if (request.has_encoder_inputs()) free_encoder_inputs(request);
    if (request.is_prefill_chunk) continue;
    plan.has_structured_output |= request.structured_output;
    if (config.scheduler.async_scheduling) {
      plan.pending_structured_output |= request.structured_output && request.num_output_placeholders > 0;
      request.num_output_placeholders += 1 + static_cast<std::int32_t>(s.drafts.size());
      request.draft_tokens.assign(config.speculation.num_spec_tokens, kDraftPlaceholder);
    }
  }
  totals.num_scheduled_tokens += plan.num_scheduled_tokens;
  totals.num_copied_blocks += plan.copies.size();
  ++totals.num_steps;
  finished.clear();
  forget_last_plan = false;
}

}  // namespace quire
