#pragma once
// Collects the requests of a journal during a replay: their arrivals and ends, the tokens that they received, and the durations of the
// steps. The replay is needed because only the core knows which tokens of a result were kept.
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "quire/core_call.h"

namespace quire {

class RecordedWorkload final : public CallSink {
 public:
  struct Arrival {
    RequestId id;
    double time_s = 0.0;
    std::size_t num_prompt_tokens = 0;
    bool has_arrival_time = false;
    std::vector<std::uint8_t> call;  // the recorded add() call
  };

  void bind(const Core& core) override { core_ = &core; }
  void on_call(const CoreCall& call) override;
  void applied(const StepOutcome* outcome) override;
  void answered(std::uint64_t answer) override;

  std::vector<Arrival> arrivals;  // in order of arrival
  std::unordered_map<RequestId, std::vector<TokenId>> tokens;
  std::unordered_map<RequestId, std::vector<std::uint8_t>> names;  // hashes of full blocks, if the journal has no tokens
  std::unordered_set<RequestId> repeated;                          // requests that ended because of a repetition
  std::unordered_map<RequestId, double> ended_s;                   // ends by the host: a stop string, or a client that disconnected
  std::vector<double> step_s;                                      // durations of steps that computed something
  std::vector<std::pair<double, PrefillLimits>> prefill_limits;    // each with the time of the first step to which it applies
  bool needs_tool_namer = false;                                   // a turn of a job names no tool, so the core asks the ToolNamer
  std::string missing;                                             // the first feature that cannot be replayed; empty: none

 private:
  void take(const core_call::Add& call);
  void take(const core_call::Finish& call);
  void take(const core_call::FinishAll& call);
  void take(const core_call::Schedule& call);
  void take(const core_call::Apply& call);
  void take(const core_call::EndPins& /*call*/) {}
  void take(const core_call::SetSwapCosts& /*call*/) {}
  void take(const core_call::SetPrefillLimits& call) { limits_ = call.limits; }
  void take(const core_call::MakeStats& /*call*/) {}
  // The calls from here to the end of the list cannot be replayed with another configuration.
  void take(const core_call::ContinueSession& /*call*/) { set_missing("sessions"); }
  void take(const core_call::Fork& /*call*/) { set_missing("forks"); }
  void take(const core_call::SetDrafts& /*call*/) { set_missing("draft tokens"); }
  void take(const core_call::SetDraftsInPlan& /*call*/) { set_missing("draft tokens"); }
  void take(const core_call::ForgetBlocks& /*call*/) { set_missing("outputs with NaN or Inf"); }
  void take(const core_call::ResetPrefixCache& /*call*/) { set_missing("cache resets"); }
  void take(const core_call::ResetConnectorCache& /*call*/) { set_missing("cache resets"); }
  void take(const core_call::ResetEncoderCache& /*call*/) { set_missing("cache resets"); }
  void take(const core_call::SetPauseState& /*call*/) { set_missing("pauses"); }
  void take(const auto& call) { set_missing(call.kName); }

  void set_missing(const char* what) {
    if (missing.empty()) missing = what;
  }
  void take_block_hashes(RequestId id);

  const Core* core_ = nullptr;
  std::optional<RequestId> added_;  // request of the add() in progress, if the journal has no tokens
  PrefillLimits limits_;            // of the next step
  bool is_first_step_ = true;
  std::deque<double> planned_s_;
  double applied_s_ = 0.0;
};

}  // namespace quire
