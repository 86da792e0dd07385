#pragma once
// What a recorded call is, for counts and for people.
#include <cstdint>
#include <string>

#include "quire/core.h"
#include "quire/journal.h"

namespace quire {

// Told of the calls of the core that is run again, and of their answers, which it digests as a JournalRecorder does.
class ToldCall final : public CallSink {
 public:
  void bind(const Core& core) override;
  void add(const NewRequest& request, const StepInput& input) override;
  void continue_session(RequestId id, const SessionInput* input, const StepInput& now) override;
  void fork(RequestId parent, const ForkRequest& child, const StepInput& input) override;
  void schedule(const StepInput& input) override;
  void apply(const StepResult& result, const StepInput& input) override;
  void set_drafts(std::span<const Draft> drafts) override;
  void set_drafts_in_plan(std::span<const Draft> drafts) override;
  void finish(RequestId id, RequestStatus status, const StepInput& input) override;
  void finish(std::span<const RequestId> ids, RequestStatus status, const StepInput& input) override;
  void forget_blocks(RequestId id) override;
  void reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) override;
  void end_pins() override;
  void reset_connector_cache() override;
  void reset_encoder_cache() override;
  void set_swap_costs(const SwapCosts& costs) override;
  void set_pause_state(PauseState state) override;
  void make_stats() override;
  void planned(const StepPlan& plan) override;
  void applied(const StepOutcome* outcome) override;
  void answered(std::uint64_t answer) override;

  CallSink* also = nullptr;  // is told of the answers too
  bool with_tokens = true;   // in the digests
  // Of the last one.
  [[nodiscard]] std::string text() const;
  JournalAnswer answer;
  // Of all. Tokens: those that requests got.
  std::uint64_t num_requests = 0, num_forks = 0, num_steps = 0, num_tokens = 0;
  double first_s = 0.0, last_s = 0.0;  // the times of plans

 private:
  void begin(const char* name, std::uint64_t about = UINT64_MAX);

  const char* name_ = "";
  std::uint64_t about_ = UINT64_MAX;  // a request, or the step of a result
};

}  // namespace quire
