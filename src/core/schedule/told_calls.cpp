// Each member of Core that may change it: told to a CallSink (CoreSeams::calls), made, and its answer told. What calls bring about in each
// other they do as members of State, so that a call is told of once, and nobody who calls a core can forget to write it down.
#include <concepts>
#include <type_traits>

#include "base/check.h"
#include "core/schedule/state.h"
#include "quire/core.h"

namespace quire {
namespace {

constexpr std::uint64_t kRefused = 256;  // and the error's code; above what is answered else

std::uint64_t number_of(const Result<void>& answer) {
  return answer ? 0 : kRefused + static_cast<std::uint64_t>(answer.error().code);
}

std::uint64_t number_of(const Result<bool>& answer) {
  return answer ? static_cast<std::uint64_t>(*answer) : kRefused + static_cast<std::uint64_t>(answer.error().code);
}

template <class Answer>
  requires std::is_enum_v<Answer> || std::same_as<Answer, bool>
std::uint64_t number_of(Answer answer) {
  return static_cast<std::uint64_t>(answer);
}

template <class Tell, class Make>
auto told(CallSink* sink, Tell tell, Make make) {
  if (sink == nullptr) return make();
  tell(*sink);
  if constexpr (std::is_void_v<decltype(make())>) {
    make();
    sink->answered(0);
  } else {
    auto answer = make();
    sink->answered(number_of(answer));
    return answer;
  }
}

}  // namespace

Result<void> Core::add(const NewRequest& request, const StepInput& input) {
  return told(
      state_->context.seams.calls, [&](CallSink& calls) { calls.add(request, input); }, [&] { return state_->add(request, input); });
}

Result<void> Core::continue_session(RequestId id, const SessionInput* input, const StepInput& now) {
  return told(
      state_->context.seams.calls, [&](CallSink& calls) { calls.continue_session(id, input, now); },
      [&] { return state_->continue_session(id, input, now); });
}

Result<void> Core::fork(RequestId parent, const ForkRequest& child, const StepInput& input) {
  return told(
      state_->context.seams.calls, [&](CallSink& calls) { calls.fork(parent, child, input); },
      [&] { return state_->fork(parent, child, input); });
}

const StepPlan& Core::schedule(const StepInput& input) {
  CallSink* calls = state_->context.seams.calls;
  if (calls != nullptr) calls->schedule(input);
  const StepPlan& plan = state_->schedule(input);
  if (calls != nullptr) calls->planned(plan);
  return plan;
}

Result<const StepOutcome*> Core::apply(const StepResult& result, const StepInput& input) {
  CallSink* calls = state_->context.seams.calls;
  if (calls != nullptr) calls->apply(result, input);
  Result<const StepOutcome*> outcome = state_->apply(result, input);
  if (calls != nullptr) calls->applied(outcome.value_or(nullptr));
  return outcome;
}

void Core::set_drafts(std::span<const Draft> drafts) {
  told(state_->context.seams.calls, [&](CallSink& calls) { calls.set_drafts(drafts); }, [&] { state_->drafts.set(drafts); });
}

void Core::set_drafts_in_plan(std::span<const Draft> drafts) {
  told(
      state_->context.seams.calls, [&](CallSink& calls) { calls.set_drafts_in_plan(drafts); },
      [&] {
        if (state_->plans.size() > 0) state_->drafts.set_in_plan(drafts, state_->plans.newest());
      });
}

FinishEffect Core::finish(RequestId id, RequestStatus status, const StepInput& input) {
  return told(
      state_->context.seams.calls, [&](CallSink& calls) { calls.finish(id, status, input); },
      [&] { return state_->finish(id, status, input); });
}

void Core::finish(std::span<const RequestId> ids, RequestStatus status, std::vector<RequestId>& finished, const StepInput& input) {
  CallSink* calls = state_->context.seams.calls;
  const std::size_t num_before = finished.size();
  if (calls != nullptr) calls->finish(ids, status, input);
  state_->finish(ids, status, finished, input);
  QUIRE_CHECK(finished.size() >= num_before, "who has ended is added to those that were there");
  if (calls != nullptr) calls->answered(finished.size() - num_before);
}

void Core::forget_blocks(RequestId id) {
  told(state_->context.seams.calls, [&](CallSink& calls) { calls.forget_blocks(id); }, [&] { state_->forget_blocks(id); });
}

Result<bool> Core::reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) {
  return told(
      state_->context.seams.calls, [&](CallSink& calls) { calls.reset_prefix_cache(preempt_running, reset_connector, input); },
      [&] { return state_->reset_prefix_cache(preempt_running, reset_connector, input); });
}

void Core::end_pins() {
  told(state_->context.seams.calls, [](CallSink& calls) { calls.end_pins(); }, [&] { state_->policy.end_pins(); });
}

bool Core::reset_connector_cache() {
  return told(
      state_->context.seams.calls, [](CallSink& calls) { calls.reset_connector_cache(); }, [&] { return state_->reset_connector_cache(); });
}

void Core::reset_encoder_cache() {
  told(state_->context.seams.calls, [](CallSink& calls) { calls.reset_encoder_cache(); }, [&] { state_->encoder.cache().reset(); });
}

// Engines say it before each step, and mostly the same.
void Core::set_swap_costs(const SwapCosts& costs) {
  if (costs == state_->swap.costs()) return;
  told(state_->context.seams.calls, [&](CallSink& calls) { calls.set_swap_costs(costs); }, [&] { state_->swap.set_costs(costs); });
}

void Core::set_pause_state(PauseState state) {
  told(state_->context.seams.calls, [&](CallSink& calls) { calls.set_pause_state(state); }, [&] { state_->pause(state); });
}

const SchedulerStats* Core::make_stats() {
  CallSink* calls = state_->context.seams.calls;
  if (calls != nullptr) calls->make_stats();
  state_->stats.begin();
  const SchedulerStats* stats = state_->stats.collect();
  if (calls != nullptr) calls->answered(stats != nullptr ? 1 : 0);
  return stats;
}

}  // namespace quire
