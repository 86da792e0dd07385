#include "core/schedule/loops/step_budget.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

void StepBudget::take_back(const Request& request, const PlanArena& arena) {
  tokens_ += static_cast<std::int32_t>(arena.num_tokens(request));
  QUIRE_CHECK(tokens_ <= static_cast<std::int32_t>(context_.config.scheduler.max_num_batched_tokens), "no more comes back than was given");
}

std::int32_t StepBudget::below_threshold(std::int32_t wanted) const {
  return threshold_ > 0 ? std::min(wanted, threshold_) : wanted;
}

// Steps in which each request runs as many tokens take less time on a GPU.
std::int32_t StepBudget::padded(std::int32_t num_computed_tokens, std::int32_t wanted) const {
  const auto num_drafts = static_cast<std::int32_t>(context_.config.speculation.num_spec_tokens);
  if (num_drafts == 0 || wanted != 1 || !may_pad_ || !(some_run_ || num_computed_tokens > 0)) return wanted;
  // The one that is sampled behind them has a place, too.
  const bool fits = num_computed_tokens + 1 + num_drafts + 1 <= static_cast<std::int32_t>(context_.config.scheduler.max_model_len);
  return fits ? 1 + num_drafts : wanted;
}

// Prefill chunks end where a mamba state can be kept: at multiples of the block size, the last of them not passed over. With EAGLE, full
// attention drops the last hit block, so the last kept state lies one block earlier.
std::int32_t StepBudget::align_for_mamba(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) const {
  QUIRE_CHECK(num_new_tokens > 0, "a chunk has tokens");
  if (num_computed_tokens >= std::max(request.num_prompt_tokens, request.num_tokens() - 1)) return num_new_tokens;
  const auto block_size = static_cast<std::int32_t>(context_.config.cache_block_size);
  std::int32_t last_kept = request.num_tokens() - request.num_tokens() % block_size;
  if (context_.config.speculation.use_eagle) last_kept = std::max(last_kept - block_size, 0);
  const std::int32_t end = num_computed_tokens + num_new_tokens;
  if (end < last_kept) return num_new_tokens / block_size * block_size;
  return num_computed_tokens < last_kept && last_kept < end ? last_kept - num_computed_tokens : num_new_tokens;
}

// The first stage of a pipeline learns the tokens that the last one sampled (asynchronous scheduling has a way of its own for them).
void StepBudget::send_new_tokens(const Request& request, PlanArena& arena) const {
  if (context_.config.scheduler.async_scheduling) return;
  const std::size_t begin = std::min(request.tokens.size(), static_cast<std::size_t>(std::max(request.num_computed_tokens, 0)));
  const std::uint32_t num_tokens = arena.num_tokens(request), num_drafts = arena.num_drafts(request);
  // Drafts that a host gives while others of the request are in flight may be more than the tokens that are left to run.
  QUIRE_CHECK(num_tokens >= num_drafts || request.num_computed_tokens > request.num_tokens(), "drafts are among the tokens of a step");
  const std::size_t count = num_tokens - std::min(num_tokens, num_drafts);
  arena.set_new_tokens(std::span(request.tokens).subspan(begin, std::min(count, request.tokens.size() - begin)));
}

void StepBudget::begin_admissions(std::span<Request* const> scheduled) {
  loras_.clear();
  const auto is_prompt = [](const Request* request) { return request->is_prefill_chunk; };
  some_run_ = !scheduled.empty();
  may_pad_ = context_.rules.padded_decodes && std::ranges::none_of(scheduled, is_prompt);
  if (context_.config.limits.max_loras == 0) return;
  for (const Request* request : scheduled)
    if (request->lora_id > 0) note_lora(*request);
}

bool StepBudget::exceeds_max_loras(const Request& request) const {
  return context_.config.limits.max_loras > 0 && request.lora_id != 0 && loras_.size() == context_.config.limits.max_loras &&
         std::ranges::find(loras_, request.lora_id) == loras_.end();
}

void StepBudget::note_lora(const Request& request) {
  if (context_.config.limits.max_loras > 0 && request.lora_id != 0 && std::ranges::find(loras_, request.lora_id) == loras_.end())
    loras_.push_back(request.lora_id);
}

}  // namespace quire
