#pragma once
// Describes replayed calls for counts and error texts.
#include <cstdint>
#include <optional>
#include <string>

#include "quire/core_call.h"
#include "quire/journal.h"

namespace quire {

// Receives the calls of the replayed core and their answers, and digests the answers as JournalRecorder does.
class ReplayedCall final : public CallSink {
 public:
  void bind(const Core& core) override;
  void on_call(const CoreCall& call) override;
  void planned(const StepPlan& plan) override;
  void applied(const StepOutcome* outcome) override;
  void answered(std::uint64_t answer) override;

  CallSink* also = nullptr;  // also receives the calls and the answers; may be null
  bool with_tokens = true;   // the digests include tokens
  // Returns the last call as text.
  [[nodiscard]] std::string text() const;
  JournalAnswer answer;
  // Counts over all calls. `num_tokens` counts the tokens that requests received.
  std::uint64_t num_requests = 0, num_forks = 0, num_steps = 0, num_tokens = 0;
  double first_s = 0.0, last_s = 0.0;  // times of the first and the last plan

 private:
  const char* name_ = "";
  std::optional<std::uint64_t> about_;  // id of the request, or number of the step of a result
};

}  // namespace quire
