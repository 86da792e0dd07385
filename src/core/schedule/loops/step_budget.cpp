#include "core/schedule/loops/step_budget.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

void StepBudget::take_back(const Request& request, const PlanArena& arena) {
  const auto num_tokens = static_cast<std::int32_t>(arena.num_tokens(request));
  tokens_ += num_tokens;
  if (is_divided_) note_tokens(request, -num_tokens);
  QUIRE_CHECK(tokens_ <= static_cast<std::int32_t>(context_.config.scheduler.max_num_batched_tokens),
              "returned tokens do not exceed the budget of the step");
}

std::int32_t StepBudget::cap_at_share(const Request& request, std::int32_t num_computed_tokens, std::int32_t wanted) const {
  return tenants_.cap_at_share(request, prompts_.cap(request, num_computed_tokens, wanted));
}

void StepBudget::note_tokens(const Request& request, std::int32_t num_tokens) {
  prompts_.note_tokens(request, num_tokens);
  tenants_.note_tokens(request, num_tokens);
}

// Pads decodes, because steps in which each request runs equally many tokens take less time on a GPU.
std::int32_t StepBudget::padded(std::int32_t num_computed_tokens, std::int32_t wanted) const {
  const auto num_drafts = static_cast<std::int32_t>(context_.config.speculation.num_spec_tokens);
  if (num_drafts == 0 || wanted != 1 || !can_pad_ || !(has_running_ || num_computed_tokens > 0)) return wanted;
  // The token that is sampled after the draft tokens needs room, too.
  const bool fits = num_computed_tokens + 1 + num_drafts + 1 <= static_cast<std::int32_t>(context_.config.scheduler.max_model_len);
  return fits ? 1 + num_drafts : wanted;
}

// Prefill chunks end where a mamba state can be kept: at multiples of the block size, and always at the last multiple. With EAGLE, full
// attention drops the last hit block, so the last kept state is one block earlier.
std::int32_t StepBudget::align_for_mamba(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) const {
  QUIRE_CHECK(num_new_tokens > 0, "a chunk has at least one token");
  if (num_computed_tokens >= std::max(request.num_prompt_tokens, request.num_tokens() - 1)) return num_new_tokens;
  const auto block_size = static_cast<std::int32_t>(context_.config.cache_block_size);
  std::int32_t last_kept = request.num_tokens() - request.num_tokens() % block_size;
  if (context_.config.speculation.use_eagle) last_kept = std::max(last_kept - block_size, 0);
  const std::int32_t end = num_computed_tokens + num_new_tokens;
  if (end < last_kept) return num_new_tokens / block_size * block_size;
  return num_computed_tokens < last_kept && last_kept < end ? last_kept - num_computed_tokens : num_new_tokens;
}

// Sends the tokens that the last pipeline stage sampled to the first stage (asynchronous scheduling sends them in another way).
void StepBudget::send_new_tokens(const Request& request, PlanArena& arena) const {
  if (context_.config.scheduler.async_scheduling) return;
  const std::size_t begin = std::min(request.tokens.size(), static_cast<std::size_t>(std::max(request.num_computed_tokens, 0)));
  const std::uint32_t num_tokens = arena.num_tokens(request), num_drafts = arena.num_drafts(request);
  // If a host gives draft tokens while others of the request are in flight, there may be more of them than tokens left to run.
  QUIRE_CHECK(num_tokens >= num_drafts || request.num_computed_tokens > request.num_tokens(),
              "draft tokens are part of the scheduled tokens");
  const std::size_t count = num_tokens - std::min(num_tokens, num_drafts);
  arena.set_new_tokens(std::span(request.tokens).subspan(begin, std::min(count, request.tokens.size() - begin)));
}

void StepBudget::begin_admissions(std::span<Request* const> scheduled) {
  loras_.clear();
  const auto is_prompt = [](const Request* request) { return request->is_prefill_chunk; };
  has_running_ = !scheduled.empty();
  can_pad_ = context_.rules.padded_decodes && std::ranges::none_of(scheduled, is_prompt);
  if (context_.config.limits.max_loras == 0) return;
  for (const Request* request : scheduled)
    if (request->hash_inputs.lora_id > 0) note_lora(*request);
}

bool StepBudget::exceeds_max_loras(const Request& request) const {
  return context_.config.limits.max_loras > 0 && request.hash_inputs.lora_id != 0 && loras_.size() == context_.config.limits.max_loras &&
         std::ranges::find(loras_, request.hash_inputs.lora_id) == loras_.end();
}

void StepBudget::note_lora(const Request& request) {
  if (context_.config.limits.max_loras > 0 && request.hash_inputs.lora_id != 0 &&
      std::ranges::find(loras_, request.hash_inputs.lora_id) == loras_.end())
    loras_.push_back(request.hash_inputs.lora_id);
}

}  // namespace quire
