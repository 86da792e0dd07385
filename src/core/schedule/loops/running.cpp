#include "core/schedule/loops/running.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

void RunningLoop::schedule(PlanArena& arena) {
  cursor_ = 0;
  while (cursor_ < queues_.running.size() && budget_.tokens() > 0 && schedule_one(*queues_.running[cursor_], arena)) {
  }
}

bool RunningLoop::schedule_one(Request& request, PlanArena& arena) {
  QUIRE_CHECK(request.status == RequestStatus::running && !arena.schedules(request), "a running request is scheduled once per step");
  std::int32_t num_new_tokens = has_certainly_reached_max_tokens(request) ? 0 : num_wanted_tokens(request);
  EncoderGrant encoder;
  if (request.has_encoder_inputs() && num_new_tokens > 0) {
    encoder = encoder_.schedule(request, request.num_computed_tokens, num_new_tokens);
    num_new_tokens = encoder.num_new_tokens;
  }
  if (context_.config.mamba_align && num_new_tokens > 0)
    num_new_tokens = budget_.align_for_mamba(request, request.num_computed_tokens, num_new_tokens);
  // The request runs no token in this step: its last tokens are in flight, or an encoder output does not fit. The loop still tries the next
  // request.
  if (num_new_tokens <= 0) {
    ++cursor_;
    return true;
  }
  if (!make_room(request, num_new_tokens, arena)) return false;
  budget_.commit(request, num_new_tokens, ScheduledKind::running, arena);
  ++cursor_;
  forks_.plan_copies(request, ScheduledKind::running, arena);
  for (std::uint32_t group = 0; group < context_.num_groups; ++group)
    if (const auto blocks = request.blocks.new_blocks(group); !blocks.empty())
      arena.table_delta(request, group, TableUpdate::append, blocks);
  if (!request.draft_tokens.empty()) take_drafts(request, num_new_tokens, arena);
  if (context_.config.parallel.pipeline_parallel) budget_.send_new_tokens(request, arena);
  if (request.has_encoder_inputs()) encoder_.allocate(request, encoder, arena);
  return true;
}

// Returns whether the tokens in flight are the request's last ones even if all draft tokens in flight are rejected (asynchronous
// scheduling).
bool RunningLoop::has_certainly_reached_max_tokens(const Request& request) {
  return request.num_output_placeholders > 0 && std::int64_t{request.num_computed_tokens} + 2 - request.num_output_placeholders >=
                                                    std::int64_t{request.num_prompt_tokens} + request.stops.max_tokens;
}

std::int32_t RunningLoop::num_wanted_tokens(const Request& request) const {
  const std::int32_t wanted =
      budget_.cap_at_threshold(request, request.num_computed_tokens,
                               request.num_tokens_with_drafts() + request.num_output_placeholders - request.num_computed_tokens);
  const auto max_model_len = static_cast<std::int32_t>(context_.config.scheduler.max_model_len);
  // With draft tokens or tokens in flight, the request could otherwise exceed max_model_len.
  return std::min({wanted, budget_.tokens(), max_model_len - 1 - request.num_computed_tokens});
}

// Allocates blocks for the tokens, and frees blocks of other requests if necessary. Returns false if the request does not run in this step.
// The loop ends because each iteration frees blocks or references: a pin, a share, loaded blocks, or a running request. The last running
// request that is preempted is the request itself.
bool RunningLoop::make_room(Request& request, std::int32_t num_new_tokens, PlanArena& arena) {
  QUIRE_CHECK(num_new_tokens > 0, "room is made for at least one token");
  const bool is_unsure = context_.rules.unsure_drafts && request.num_output_placeholders > 1;
  const auto num_awaited = static_cast<std::uint32_t>(context_.rules.windows_advance_on_results ? request.in_flight.num_tokens : 0);
  const SlotDemand demand{.num_new_tokens = static_cast<std::uint32_t>(num_new_tokens),
                          .num_lookahead_tokens = context_.config.speculation.num_lookahead_tokens,
                          .num_unsure_tokens = is_unsure ? static_cast<std::uint32_t>(request.num_output_placeholders) - 1 : num_awaited};
  while (const std::uint32_t missing = kv_.allocate_slots(requests_.kv_request(request), demand)) {
    if (block_reclaimer_.reclaim_before_preempting(request, missing)) continue;
    // Blocks that are freed only after a step in flight do not help now.
    if (!preemption_.frees_at_once()) return false;
    const Preemption::Victim chosen = preemption_.take_victim(arena, cursor_);
    Request& victim = chosen.request;
    if (context_.events.wanted()) {
      context_.events.on_event({.what = EventKind::preempted,
                                .cause = EventCause::lack_of_blocks,
                                .owner = victim.id,
                                .beneficiary = request.id,
                                .amount = missing});
    }
    preemption_.preempt(chosen, EventCause::lack_of_blocks);
    arena.preempt(victim.id);
    // The request itself was preempted. As in vLLM, no later request is tried in this step.
    if (&victim == &request) return false;
  }
  return true;
}

void RunningLoop::take_drafts(Request& request, std::int32_t num_new_tokens, PlanArena& arena) {
  const std::int32_t num_scheduled = num_new_tokens + request.num_computed_tokens - request.num_tokens() - request.num_output_placeholders;
  if (num_scheduled > 0) {
    const std::span<const TokenId> drafts = request.draft_tokens;
    QUIRE_CHECK(static_cast<std::size_t>(num_scheduled) <= drafts.size(), "scheduled draft tokens do not exceed those of the request");
    arena.set_drafts(drafts.first(static_cast<std::size_t>(num_scheduled)));
  }
  // Draft tokens are valid for one step only, whether they were scheduled or not.
  request.draft_tokens.clear();
}

}  // namespace quire
