#pragma once
// The calls that may change a core, as values. CoreCall lists all of them; code that records, replays or counts calls visits it. Each
// struct has the arguments of one member function of Core, and:
//
//   kName     the name of the member function
//   about()   the id of the request or step that the call is about; other calls do not have it
//   fields()  the arguments in the order of the byte form (core_calls.h), for writing and for reading
//   make()    makes the call on a core and returns the answer
//
// Arguments are views. A sink may use them only during on_call(). A reader that returns calls documents how long their views are valid.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <type_traits>
#include <variant>
#include <vector>

#include "quire/core.h"

namespace quire {

namespace core_call {

struct WithoutArguments {
  static void fields(auto& /*form*/, auto& /*call*/) {}
};

struct Add {
  static constexpr const char* kName = "add";
  NewRequest request{};
  StepInput input{};

  [[nodiscard]] std::uint64_t about() const { return request.id.value; }
  static void fields(auto& form, auto& call) { form(call.request, call.input); }
  Result<void> make(Core& core) const { return core.add(request, input); }
};

struct ContinueSession {
  static constexpr const char* kName = "continue_session";
  RequestId id;
  std::optional<SessionInput> session_input{};  // nullopt: no more input will come
  StepInput input{};

  [[nodiscard]] std::uint64_t about() const { return id.value; }
  static void fields(auto& form, auto& call) { form(call.id, call.session_input, call.input); }
  Result<void> make(Core& core) const { return core.continue_session(id, session_input ? &*session_input : nullptr, input); }
};

struct Fork {
  static constexpr const char* kName = "fork";
  RequestId parent;
  ForkRequest child{};
  StepInput input{};

  [[nodiscard]] std::uint64_t about() const { return parent.value; }
  static void fields(auto& form, auto& call) { form(call.parent, call.child, call.input); }
  Result<void> make(Core& core) const { return core.fork(parent, child, input); }
};

struct Schedule {
  static constexpr const char* kName = "schedule";
  StepInput input{};

  static void fields(auto& form, auto& call) { form(call.input); }
  const StepPlan& make(Core& core) const { return core.schedule(input); }
};

struct Apply {
  static constexpr const char* kName = "apply";
  StepResult result{};
  StepInput input{};

  [[nodiscard]] std::uint64_t about() const { return result.step.value; }
  static void fields(auto& form, auto& call) { form(call.result, call.input); }
  Result<const StepOutcome*> make(Core& core) const { return core.apply(result, input); }
};

struct SetDrafts {
  static constexpr const char* kName = "set_drafts";
  std::span<const Draft> drafts{};

  static void fields(auto& form, auto& call) { form(call.drafts); }
  void make(Core& core) const { core.set_drafts(drafts); }
};

struct SetDraftsInPlan {
  static constexpr const char* kName = "set_drafts_in_plan";
  std::span<const Draft> drafts{};

  static void fields(auto& form, auto& call) { form(call.drafts); }
  void make(Core& core) const { core.set_drafts_in_plan(drafts); }
};

struct Finish {
  static constexpr const char* kName = "finish";
  RequestId id;
  RequestStatus status = RequestStatus::finished_aborted;
  StepInput input{};

  [[nodiscard]] std::uint64_t about() const { return id.value; }
  static void fields(auto& form, auto& call) { form(call.id, call.status, call.input); }
  FinishEffect make(Core& core) const { return core.finish(id, status, input); }
};

struct ResetPrefixCache {
  static constexpr const char* kName = "reset_prefix_cache";
  bool preempt_running = false, reset_connector = false;
  StepInput input{};

  static void fields(auto& form, auto& call) { form(call.preempt_running, call.reset_connector, call.input); }
  Result<bool> make(Core& core) const { return core.reset_prefix_cache(preempt_running, reset_connector, input); }
};

struct EndPins : WithoutArguments {
  static constexpr const char* kName = "end_pins";
  static void make(Core& core) { core.end_pins(); }
};

struct ResetConnectorCache : WithoutArguments {
  static constexpr const char* kName = "reset_connector_cache";
  static bool make(Core& core) { return core.reset_connector_cache(); }
};

struct ResetEncoderCache : WithoutArguments {
  static constexpr const char* kName = "reset_encoder_cache";
  static void make(Core& core) { core.reset_encoder_cache(); }
};

struct SetPauseState {
  static constexpr const char* kName = "set_pause_state";
  PauseState state{};

  static void fields(auto& form, auto& call) { form(call.state); }
  void make(Core& core) const { core.set_pause_state(state); }
};

struct MakeStats : WithoutArguments {
  static constexpr const char* kName = "make_stats";
  static const SchedulerStats* make(Core& core) { return core.make_stats(); }
};

struct SetSwapCosts {
  static constexpr const char* kName = "set_swap_costs";
  SwapCosts costs{};

  static void fields(auto& form, auto& call) { form(call.costs); }
  void make(Core& core) const { core.set_swap_costs(costs); }
};

struct ForgetBlocks {
  static constexpr const char* kName = "forget_blocks";
  RequestId id;

  [[nodiscard]] std::uint64_t about() const { return id.value; }
  static void fields(auto& form, auto& call) { form(call.id); }
  void make(Core& core) const { core.forget_blocks(id); }
};

// Core::finish() with several ids.
struct FinishAll {
  static constexpr const char* kName = "finish";
  std::span<const RequestId> ids{};
  RequestStatus status = RequestStatus::finished_aborted;
  StepInput input{};

  static void fields(auto& form, auto& call) { form(call.ids, call.status, call.input); }
  std::vector<RequestId> make(Core& core) const {
    std::vector<RequestId> finished;
    core.finish(ids, status, finished, input);
    return finished;
  }
};

struct SetPrefillLimits {
  static constexpr const char* kName = "set_prefill_limits";
  PrefillLimits limits{};

  static void fields(auto& form, auto& call) { form(call.limits); }
  void make(Core& core) const { core.set_prefill_limits(limits); }
};

}  // namespace core_call

// The position in this list is part of the byte form: append new calls at the end.
using CoreCall =
    std::variant<core_call::Add, core_call::ContinueSession, core_call::Fork, core_call::Schedule, core_call::Apply, core_call::SetDrafts,
                 core_call::SetDraftsInPlan, core_call::Finish, core_call::ResetPrefixCache, core_call::EndPins,
                 core_call::ResetConnectorCache, core_call::ResetEncoderCache, core_call::SetPauseState, core_call::MakeStats,
                 core_call::SetSwapCosts, core_call::ForgetBlocks, core_call::FinishAll, core_call::SetPrefillLimits>;

// Makes the call on `core`. Returns the plan if the call is schedule(), else null.
inline const StepPlan* play(const CoreCall& call, Core& core) {
  return std::visit(
      [&core](const auto& one) -> const StepPlan* {
        if constexpr (std::is_same_v<decltype(one.make(core)), const StepPlan&>) {
          return &one.make(core);
        } else {
          (void)one.make(core);
          return nullptr;
        }
      },
      call);
}

// Receives each call that may change a core: the arguments before anything has changed, then the answer. Called on the core's thread; may
// call only const members of the core. A call that Core carries out through another call is reported once, under its own name.
// set_swap_costs() and set_prefill_limits() are reported only when they change something.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // Called once, before all other functions, with the core that reports its calls to this sink.
  virtual void bind(const Core& /*core*/) {}
  virtual void on_call(const CoreCall& call) = 0;

  // Receive the answers of schedule() and of apply(). `outcome` is null if apply() rejected the result.
  virtual void planned(const StepPlan& /*plan*/) {}
  virtual void applied(const StepOutcome* /*outcome*/) {}
  // Receives the answer of every other call, as a number. Different answers, including different errors, give different numbers.
  virtual void answered(std::uint64_t /*answer*/) {}
};

}  // namespace quire
