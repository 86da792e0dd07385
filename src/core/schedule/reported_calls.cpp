// Defines the members of Core that change it. Each member reports the call to a CallSink (CoreSeams::calls), makes the call on State, and
// reports its answer. Nested calls are made on State, so each call of the host is reported exactly once.
#include <concepts>
#include <type_traits>

#include "base/check.h"
#include "core/schedule/state.h"
#include "quire/core_call.h"

namespace quire {
namespace {

constexpr std::uint64_t kRefused = 256;  // plus the error's code: the answer of a refused call, greater than all other answers

template <class Answer>
  requires std::is_enum_v<Answer> || std::integral<Answer>
std::uint64_t number_of(Answer answer) {
  return static_cast<std::uint64_t>(answer);
}

std::uint64_t number_of(const SchedulerStats* stats) {
  return stats != nullptr ? 1 : 0;
}

template <class Value>
std::uint64_t number_of(const Result<Value>& answer) {
  if (!answer) return kRefused + static_cast<std::uint64_t>(answer.error().code);
  if constexpr (std::is_void_v<Value>)
    return 0;
  else
    return number_of(*answer);
}

void report_answer(CallSink& sink, const StepPlan& plan) {
  sink.planned(plan);
}

void report_answer(CallSink& sink, const Result<const StepOutcome*>& outcome) {
  sink.applied(outcome.value_or(nullptr));
}

template <class Answer>
void report_answer(CallSink& sink, const Answer& answer) {
  sink.answered(number_of(answer));
}

// Makes a call and returns its answer. Builds the description of the call only if there is a sink.
template <class Build, class Make>
decltype(auto) reported(CallSink* sink, Build build, Make make) {
  if (sink == nullptr) return make();
  sink->on_call(build());
  if constexpr (std::is_void_v<decltype(make())>) {
    make();
    sink->answered(0);
  } else {
    decltype(auto) answer = make();
    report_answer(*sink, answer);
    return answer;
  }
}

}  // namespace

Result<void> Core::add(const NewRequest& request, const StepInput& input) {
  return reported(state_->context.seams.calls, [&] { return core_call::Add{request, input}; }, [&] { return state_->add(request, input); });
}

Result<void> Core::continue_session(RequestId id, const SessionInput* input, const StepInput& now) {
  return reported(
      state_->context.seams.calls,
      [&] { return core_call::ContinueSession{id, input != nullptr ? std::optional(*input) : std::nullopt, now}; },
      [&] { return state_->continue_session(id, input, now); });
}

Result<void> Core::fork(RequestId parent, const ForkRequest& child, const StepInput& input) {
  return reported(
      state_->context.seams.calls, [&] { return core_call::Fork{parent, child, input}; },
      [&] { return state_->fork(parent, child, input); });
}

const StepPlan& Core::schedule(const StepInput& input) {
  return reported(
      state_->context.seams.calls, [&] { return core_call::Schedule{input}; },
      [&]() -> const StepPlan& { return state_->schedule(input); });
}

Result<const StepOutcome*> Core::apply(const StepResult& result, const StepInput& input) {
  return reported(
      state_->context.seams.calls, [&] { return core_call::Apply{result, input}; }, [&] { return state_->apply(result, input); });
}

void Core::set_drafts(std::span<const Draft> drafts) {
  reported(state_->context.seams.calls, [&] { return core_call::SetDrafts{drafts}; }, [&] { state_->drafts.set(drafts); });
}

void Core::set_drafts_in_plan(std::span<const Draft> drafts) {
  reported(
      state_->context.seams.calls, [&] { return core_call::SetDraftsInPlan{drafts}; },
      [&] {
        if (state_->plans.size() > 0) state_->drafts.set_in_plan(drafts, state_->plans.newest());
      });
}

FinishEffect Core::finish(RequestId id, RequestStatus status, const StepInput& input) {
  return reported(
      state_->context.seams.calls, [&] { return core_call::Finish{id, status, input}; }, [&] { return state_->finish(id, status, input); });
}

void Core::finish(std::span<const RequestId> ids, RequestStatus status, std::vector<RequestId>& finished, const StepInput& input) {
  reported(
      state_->context.seams.calls, [&] { return core_call::FinishAll{ids, status, input}; },
      [&] {
        const std::size_t num_before = finished.size();
        state_->finish(ids, status, finished, input);
        QUIRE_CHECK(finished.size() >= num_before, "ended requests are appended to the list");
        return finished.size() - num_before;
      });
}

void Core::forget_blocks(RequestId id) {
  reported(state_->context.seams.calls, [&] { return core_call::ForgetBlocks{id}; }, [&] { state_->forget_blocks(id); });
}

Result<bool> Core::reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) {
  return reported(
      state_->context.seams.calls, [&] { return core_call::ResetPrefixCache{preempt_running, reset_connector, input}; },
      [&] { return state_->reset_prefix_cache(preempt_running, reset_connector, input); });
}

void Core::end_pins() {
  reported(state_->context.seams.calls, [] { return core_call::EndPins{}; }, [&] { state_->policy.end_pins(); });
}

bool Core::reset_connector_cache() {
  return reported(
      state_->context.seams.calls, [] { return core_call::ResetConnectorCache{}; }, [&] { return state_->reset_connector_cache(); });
}

void Core::reset_encoder_cache() {
  reported(state_->context.seams.calls, [] { return core_call::ResetEncoderCache{}; }, [&] { state_->encoder.cache().reset(); });
}

// Engines set the costs before each step, usually unchanged, so only changes are reported.
void Core::set_swap_costs(const SwapCosts& costs) {
  if (costs == state_->swap.costs()) return;
  reported(state_->context.seams.calls, [&] { return core_call::SetSwapCosts{costs}; }, [&] { state_->swap.set_costs(costs); });
}

void Core::set_prefill_limits(const PrefillLimits& limits) {
  if (limits == state_->budget.prefill_limits()) return;
  reported(
      state_->context.seams.calls, [&] { return core_call::SetPrefillLimits{limits}; }, [&] { state_->budget.set_prefill_limits(limits); });
}

void Core::set_pause_state(PauseState state) {
  reported(state_->context.seams.calls, [&] { return core_call::SetPauseState{state}; }, [&] { state_->pause(state); });
}

const SchedulerStats* Core::make_stats() {
  return reported(
      state_->context.seams.calls, [] { return core_call::MakeStats{}; },
      [&] {
        state_->stats.begin();
        return state_->stats.collect();
      });
}

}  // namespace quire
