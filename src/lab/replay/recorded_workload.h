#pragma once
// What a journal says of its requests: when they came and went, what they got, and how long steps took. Gathered while it is run again, for
// which tokens of a result were kept is known to the core alone.
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/journal/write_call.h"
#include "quire/journal.h"

namespace quire {

class RecordedWorkload final : public CallBytes {
 public:
  struct Arrival {
    RequestId id;
    double time_s = 0.0;
    std::size_t num_prompt_tokens = 0;
    bool has_arrival_time = false;
    std::vector<std::uint8_t> call;  // add()
  };

  void bind(const Core& core) override { core_ = &core; }
  void add(const NewRequest& request, const StepInput& input) override;
  void finish(RequestId id, RequestStatus status, const StepInput& input) override;
  void finish(std::span<const RequestId> ids, RequestStatus status, const StepInput& input) override;
  void schedule(const StepInput& input) override;
  void apply(const StepResult& result, const StepInput& input) override;
  void applied(const StepOutcome* outcome) override;
  void answered(std::uint64_t answer) override;
  // What cannot be said of another configuration.
  void continue_session(RequestId /*id*/, const SessionInput* /*input*/, const StepInput& /*now*/) override { lacks("sessions"); }
  void fork(RequestId /*parent*/, const ForkRequest& /*child*/, const StepInput& /*input*/) override { lacks("forks"); }
  void set_drafts(std::span<const Draft> /*drafts*/) override { lacks("drafts"); }
  void set_drafts_in_plan(std::span<const Draft> /*drafts*/) override { lacks("drafts"); }
  void forget_blocks(RequestId /*id*/) override { lacks("answers that are no numbers"); }
  void reset_prefix_cache(bool /*preempt*/, bool /*connector*/, const StepInput& /*input*/) override { lacks("resets of the cache"); }
  void reset_connector_cache() override { lacks("resets of the cache"); }
  void reset_encoder_cache() override { lacks("resets of the cache"); }
  void set_pause_state(PauseState /*state*/) override { lacks("pauses"); }
  void end_pins() override {}
  void set_swap_costs(const SwapCosts& /*costs*/) override {}
  void make_stats() override {}

  std::vector<Arrival> arrivals;  // in their order
  std::unordered_map<RequestId, std::vector<TokenId>> tokens;
  std::unordered_map<RequestId, std::vector<std::uint8_t>> names;  // where tokens are left out: of full blocks
  std::unordered_set<RequestId> repeated;                          // that ended since they repeated themselves
  std::unordered_map<RequestId, double> ended_s;                   // from outside: by a stop string, a client that went away
  std::vector<double> step_s;                                      // of steps that computed something
  bool asks_for_tools = false;                                     // a turn of a job whose tool the ToolNamer is asked for
  std::string missing;                                             // the first thing that cannot be said; empty: nothing

 private:
  void lacks(const char* what) {
    if (missing.empty()) missing = what;
  }

  void take_names(RequestId id);

  const Core* core_ = nullptr;
  std::optional<RequestId> added_;  // by the call under way, without tokens
  std::deque<double> planned_s_;
  double applied_s_ = 0.0;
};

}  // namespace quire
