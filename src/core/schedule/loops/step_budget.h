#pragma once
// The budget left in the step being planned: tokens, prompt tokens and LoRA adapters. Both loops take from it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/schedule/loops/prompt_shares.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"
#include "core/schedule/requests/tenant_turns.h"

namespace quire {

// Starts from scratch in each step. Both loops take from it, on the core's thread. A preemption returns the tokens that it removes from the
// step.
class StepBudget {
 public:
  StepBudget(const Context& context, const Queues& queues, TenantScheduler& tenants)
      : context_(context), tenants_(tenants), prompts_(context, queues, tenants) {}

  void begin_step(PauseState pause, std::size_t num_unfinished) {
    const bool is_bound = !context_.rules.no_prefill_threshold_when_alone || num_unfinished > 1;
    threshold_ = is_bound ? static_cast<std::int32_t>(context_.config.scheduler.long_prefill_token_threshold) : 0;
    if (threshold_ > 0 && context_.config.newer.shared_prefill_tokens != 0) {
      QUIRE_CHECK(num_unfinished > 0, "there are unfinished requests to share the prefill limit");
      threshold_ = std::max(threshold_, static_cast<std::int32_t>(context_.config.newer.shared_prefill_tokens / num_unfinished));
    }
    tokens_ = pause == PauseState::paused_all ? 0 : static_cast<std::int32_t>(context_.config.scheduler.max_num_batched_tokens);
    lacks_blocks_ = false;
    prompts_.begin_step(prefill_limits_, num_steps_until_admission_ == 0);
    is_divided_ = prompts_.is_on() || tenants_.is_on();
  }
  [[nodiscard]] std::int32_t tokens() const { return tokens_; }
  [[nodiscard]] const PrefillLimits& prefill_limits() const { return prefill_limits_; }
  void set_prefill_limits(const PrefillLimits& limits) { prefill_limits_ = limits; }
  [[nodiscard]] bool limits_prompts() const { return prompts_.is_on(); }
  // Called if there are too few blocks for a waiting request, or the step admits none (a pause, a preemption). Then waiting requests take
  // no share of the prompt tokens from running ones until there are blocks, or for kStepsUntilAdmission: a request that has tokens may take
  // blocks that others can give up.
  void note_lack_of_blocks() { lacks_blocks_ = true; }

  // Schedules tokens of the request.
  void commit(Request& request, std::int32_t num_new_tokens, ScheduledKind kind, PlanArena& arena) {
    QUIRE_CHECK(num_new_tokens > 0 && num_new_tokens <= tokens_, "scheduled tokens do not exceed the rest of the budget");
    const bool in_last_plan = !forgets_last_plan_ && request.in_flight.last_step.value + 1 == arena.plan().step.value;
    arena.schedule(request, {.num_tokens = static_cast<std::uint32_t>(num_new_tokens),
                             .kind = kind,
                             .send_all_tokens = kind != ScheduledKind::fresh && !in_last_plan});
    tokens_ -= num_new_tokens;
    if (is_divided_) note_tokens(request, num_new_tokens);
  }
  // Returns the tokens that commit() gave the request in this step to the budget. The request is removed from the step.
  void take_back(const Request& request, const PlanArena& arena);
  // Caps the tokens that the request wants after its `num_computed_tokens`, without regard to the tokens left. The caps are
  // long_prefill_token_threshold, where that binds, the request's share of the prompt tokens, and its tenant's share.
  [[nodiscard]] std::int32_t cap_at_threshold(const Request& request, std::int32_t num_computed_tokens, std::int32_t wanted) const {
    if (threshold_ > 0) wanted = std::min(wanted, threshold_);
    return is_divided_ ? cap_at_share(request, num_computed_tokens, wanted) : wanted;
  }
  // Returns `num_new_tokens` or fewer: chunks end where a mamba state can be kept.
  [[nodiscard]] std::int32_t align_for_mamba(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) const;
  // Sends the tokens that the last pipeline stage sampled to the first stage.
  void send_new_tokens(const Request& request, PlanArena& arena) const;

  void begin_admissions(std::span<Request* const> scheduled);
  // Returns the number of tokens for a request that has `num_computed_tokens` and wants `wanted` more: `wanted`, or more with placeholders
  // for draft tokens after the last one.
  [[nodiscard]] std::int32_t padded(std::int32_t num_computed_tokens, std::int32_t wanted) const;
  [[nodiscard]] bool exceeds_max_loras(const Request& request) const;
  // Counts the LoRA adapter of a request in this step.
  void note_lora(const Request& request);

  // Clears prev_step_scheduled_req_ids: until the next plan is made, no request counts as scheduled in the last plan.
  void forget_last_plan() { forgets_last_plan_ = true; }
  void end_step() {
    QUIRE_CHECK(tokens_ >= 0, "the rest of the budget is not negative");
    forgets_last_plan_ = false;
    const std::uint32_t later = num_steps_until_admission_ == 0 ? kStepsUntilAdmission : num_steps_until_admission_ - 1;
    num_steps_until_admission_ = lacks_blocks_ ? later : 0;
  }

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    // The other members are valid within one step.
    [[maybe_unused]] auto& [context, tenants, tokens, threshold, loras, can_pad, has_running, forgets_last_plan, prefill_limits,
                            lacks_blocks, num_steps_until_admission, prompts, is_divided] = self;
    form(forgets_last_plan, prefill_limits, num_steps_until_admission);
  }

 private:
  static constexpr std::uint32_t kStepsUntilAdmission = 16;

  [[nodiscard]] std::int32_t cap_at_share(const Request& request, std::int32_t num_computed_tokens, std::int32_t wanted) const;
  void note_tokens(const Request& request, std::int32_t num_tokens);

  const Context& context_;
  TenantScheduler& tenants_;
  std::int32_t tokens_ = 0;
  std::int32_t threshold_ = 0;       // 0: no threshold
  std::vector<std::int64_t> loras_;  // adapters of the requests scheduled in this step, each once
  bool can_pad_ = false;             // no prompt continues in this step
  bool has_running_ = false;         // requests are scheduled before the admissions
  // Set by a reset, which preempts all requests. Workers then receive all tokens again, as in vLLM.
  bool forgets_last_plan_ = false;
  PrefillLimits prefill_limits_;
  bool lacks_blocks_ = false;
  std::uint32_t num_steps_until_admission_ = 0;
  PromptShares prompts_;
  bool is_divided_ = false;  // the tokens of this step are divided among prompts or tenants
};

}  // namespace quire
