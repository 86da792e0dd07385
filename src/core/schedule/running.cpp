// The running loop: every request in the batch gets the tokens it lacks, in order of admission, as far as budget and blocks go.
//
// A request that can have no token now is passed over, and later ones go on; one that finds too few free blocks makes others give way
// (preemption.cpp), and if it has to give way itself, the loop ends.
#include <algorithm>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

void Core::State::schedule_running(PlanArena& arena) {
  cursor = 0;
  while (cursor < running.size() && token_budget > 0 && schedule_one_running(*running[cursor], arena)) {
  }
  loras.clear();
  if (config.limits.max_loras == 0) return;
  for (const Request* request : arena.requests())
    if (request->lora_id > 0 && std::ranges::find(loras, request->lora_id) == loras.end()) loras.push_back(request->lora_id);
}

// False: the request gave way itself.
bool Core::State::schedule_one_running(Request& request, PlanArena& arena) {
  QUIRE_CHECK(request.status == RequestStatus::running && !arena.schedules(request), "each that runs, once");
  std::int32_t num_new_tokens = surely_reached_max_tokens(request) ? 0 : num_wanted_tokens(request);
  EncoderGrant encoder;
  if (request.has_encoder_inputs() && num_new_tokens > 0) {
    encoder = schedule_encoder_inputs(request, request.num_computed_tokens, num_new_tokens);
    num_new_tokens = encoder.num_new_tokens;
  }
  if (config.mamba_align && num_new_tokens > 0) num_new_tokens = align_for_mamba(request, request.num_computed_tokens, num_new_tokens);
  if (num_new_tokens <= 0) {
    ++cursor;
    return true;
  }
  if (!make_room(request, num_new_tokens, arena)) return false;
  commit(request, num_new_tokens, ScheduledKind::running, arena);
  ++cursor;
  plan_copies(request, ScheduledKind::running, arena);
  for (std::uint32_t group = 0; group < num_groups; ++group)
    if (const auto blocks = request.blocks.new_blocks(group); !blocks.empty())
      arena.table_delta(request, group, TableUpdate::append, blocks);
  if (!request.draft_tokens.empty()) take_drafts(request, num_new_tokens, arena);
  if (config.parallel.pipeline_parallel) send_new_tokens(request, arena);
  if (request.has_encoder_inputs()) allocate_encoder_inputs(request, encoder, arena);
  return true;
}

// With asynchronous scheduling: even if all drafts in flight are refused, the tokens in flight are the last ones.
bool Core::State::surely_reached_max_tokens(const Request& request) const {
  return request.num_output_placeholders > 0 && std::int64_t{request.num_computed_tokens} + 2 - request.num_output_placeholders >=
                                                    std::int64_t{request.num_prompt_tokens} + request.max_tokens;
}

std::int32_t Core::State::num_wanted_tokens(const Request& request) const {
  std::int32_t wanted = request.num_tokens_with_drafts() + request.num_output_placeholders - request.num_computed_tokens;
  if (const auto threshold = static_cast<std::int32_t>(config.scheduler.long_prefill_token_threshold); threshold > 0)
    wanted = std::min(wanted, threshold);
  const auto max_model_len = static_cast<std::int32_t>(config.scheduler.max_model_len);
  return std::min({wanted, token_budget, max_model_len - 1 - request.num_computed_tokens});
}

// False: the request itself was preempted.
bool Core::State::make_room(Request& request, std::int32_t num_new_tokens, PlanArena& arena) {
  const SlotDemand demand{.num_new_tokens = static_cast<std::uint32_t>(num_new_tokens),
                          .num_lookahead_tokens = config.speculation.num_lookahead_tokens};
  while (const std::uint32_t missing = kv.allocate_slots(kv_request(request), demand)) {
    if (end_oldest_pin() || give_up_share(EventCause::lack_of_blocks)) continue;
    Request& victim = take_victim(arena);
    if (events.wanted()) {
      events.on_event({.what = EventKind::preempted,
                       .cause = EventCause::lack_of_blocks,
                       .owner = victim.id,
                       .beneficiary = request.id,
                       .amount = missing});
    }
    preempt(victim);
    arena.preempt(victim.id);
    if (&victim == &request) return false;
  }
  return true;
}

void Core::State::take_drafts(Request& request, std::int32_t num_new_tokens, PlanArena& arena) {
  const std::int32_t num_scheduled = num_new_tokens + request.num_computed_tokens - request.num_tokens() - request.num_output_placeholders;
  if (num_scheduled > 0) {
    const std::span<const TokenId> drafts = request.draft_tokens;
    QUIRE_CHECK(static_cast<std::size_t>(num_scheduled) <= drafts.size(), "no more drafts run than there are");
    arena.set_drafts(drafts.first(static_cast<std::size_t>(num_scheduled)));
  }
  request.draft_tokens.clear();
}

void Core::State::commit(Request& request, std::int32_t num_new_tokens, ScheduledKind kind, PlanArena& arena) {
  QUIRE_CHECK(num_new_tokens > 0 && num_new_tokens <= token_budget);
  const bool in_last_plan = !forget_last_plan && request.last_step.value + 1 == arena.plan().step.value;
  arena.schedule(request, {.num_tokens = static_cast<std::uint32_t>(num_new_tokens),
                           .kind = kind,
                           .send_all_tokens = kind != ScheduledKind::fresh && !in_last_plan});
  token_budget -= num_new_tokens;
}

// The first stage of a pipeline learns the tokens that the last one sampled (asynchronous scheduling has a way of its own for them).
void Core::State::send_new_tokens(const Request& request, PlanArena& arena) {
  if (config.scheduler.async_scheduling) return;
  const std::size_t begin = std::min(request.tokens.size(), static_cast<std::size_t>(std::max(request.num_computed_tokens, 0)));
  const std::size_t count = arena.num_tokens(request) - arena.num_drafts(request);
  arena.set_new_tokens(std::span(request.tokens).subspan(begin, std::min(count, request.tokens.size() - begin)));
}

// Prefill chunks end where a mamba state can be kept: at multiples of the block size, the last of them not passed over. With EAGLE, full
// attention drops the last hit block, so the last kept state lies one block earlier.
std::int32_t Core::State::align_for_mamba(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) const {
  QUIRE_CHECK(num_new_tokens > 0, "a chunk has tokens");
  if (num_computed_tokens >= std::max(request.num_prompt_tokens, request.num_tokens() - 1)) return num_new_tokens;
  const auto block_size = static_cast<std::int32_t>(config.cache_block_size);
  std::int32_t last_kept = request.num_tokens() - request.num_tokens() % block_size;
  if (config.speculation.use_eagle) last_kept = std::max(last_kept - block_size, 0);
  const std::int32_t end = num_computed_tokens + num_new_tokens;
  if (end < last_kept) return num_new_tokens / block_size * block_size;
  return num_computed_tokens < last_kept && last_kept < end ? last_kept - num_computed_tokens : num_new_tokens;
}

}  // namespace quire
