#pragma once
// What is left of the step being planned: tokens and adapters. Both loops give from it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "core/schedule/requests/context.h"
#include "core/schedule/requests/plan_arena.h"
#include "core/schedule/requests/request.h"

namespace quire {

// Begins anew with each step. Both loops give from it, on the core's thread; what a preemption takes out of the step comes back.
class StepBudget {
 public:
  explicit StepBudget(const Context& context) : context_(context) {}

  void begin_step(PauseState pause, std::size_t num_unfinished) {
    const bool is_bound = !context_.rules.lone_prefill_unbound || num_unfinished > 1;
    threshold_ = is_bound ? static_cast<std::int32_t>(context_.config.scheduler.long_prefill_token_threshold) : 0;
    if (threshold_ > 0 && context_.config.newer.shared_prefill_tokens != 0) {
      QUIRE_CHECK(num_unfinished > 0, "who is bound shares the step with another one");
      threshold_ = std::max(threshold_, static_cast<std::int32_t>(context_.config.newer.shared_prefill_tokens / num_unfinished));
    }
    tokens_ = pause == PauseState::paused_all ? 0 : static_cast<std::int32_t>(context_.config.scheduler.max_num_batched_tokens);
  }
  [[nodiscard]] std::int32_t tokens() const { return tokens_; }

  // Schedules tokens of the request.
  void commit(Request& request, std::int32_t num_new_tokens, ScheduledKind kind, PlanArena& arena) {
    QUIRE_CHECK(num_new_tokens > 0 && num_new_tokens <= tokens_, "no more is given than is left");
    const bool in_last_plan = !forgets_last_plan_ && request.last_step.value + 1 == arena.plan().step.value;
    arena.schedule(request, {.num_tokens = static_cast<std::uint32_t>(num_new_tokens),
                             .kind = kind,
                             .send_all_tokens = kind != ScheduledKind::fresh && !in_last_plan});
    tokens_ -= num_new_tokens;
  }
  // What commit() gave it in this step, which it is taken out of.
  void take_back(const Request& request, const PlanArena& arena);
  // Of what it wants, without regard to the tokens left: at most long_prefill_token_threshold, where that binds.
  [[nodiscard]] std::int32_t below_threshold(std::int32_t wanted) const;
  // The same number or fewer: chunks end where a mamba state can be kept.
  [[nodiscard]] std::int32_t align_for_mamba(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) const;
  // The first stage of a pipeline learns the tokens that the last one sampled.
  void send_new_tokens(const Request& request, PlanArena& arena) const;

  void begin_admissions(std::span<Request* const> scheduled);
  // Tokens of who has so many computed and wants so many more: his own, or placeholders for drafts behind the last one too.
  [[nodiscard]] std::int32_t padded(std::int32_t num_computed_tokens, std::int32_t wanted) const;
  [[nodiscard]] bool exceeds_max_loras(const Request& request) const;
  // Of a request that is admitted in this step.
  void note_lora(const Request& request);

  // prev_step_scheduled_req_ids is cleared: until the next plan is made, nobody was in the last one.
  void forget_last_plan() { forgets_last_plan_ = true; }
  void end_step() {
    QUIRE_CHECK(tokens_ >= 0, "a step gives no more than it has");
    forgets_last_plan_ = false;
  }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    // The rest is a step's.
    [[maybe_unused]] auto& [context, tokens, threshold, loras, may_pad, some_run, forgets_last_plan] = self;
    form(forgets_last_plan);
  }

 private:
  const Context& context_;
  std::int32_t tokens_ = 0;
  std::int32_t threshold_ = 0;       // 0: none
  std::vector<std::int64_t> loras_;  // of running requests scheduled in this step, each once
  bool may_pad_ = false;             // no prompt runs on in this step
  bool some_run_ = false;            // somebody does
  // Set by a reset, which preempts everybody: then workers are sent all tokens again, as in vLLM.
  bool forgets_last_plan_ = false;
};

}  // namespace quire
