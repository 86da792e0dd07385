#pragma once
// Predicts how long a step takes, and how many prompt tokens fit into a target time. Belongs to the engine thread.
//
// Predicted time = time of a step without prompt tokens + cost of the prompt tokens x time per unit of cost. Both times are running
// averages, and the newest steps count most. The prediction therefore follows a machine that gets busy. A single step raises an average
// little, however long it took, because a process may be stopped in the middle of a step. The cost counts what attention reads
// (PrefillLimits::context_of_double_cost).
#include <cstdint>

#include "engine/loop/context_cost.h"
#include "quire/core.h"

namespace quire {

// The work of one step.
struct StepWork {
  std::uint32_t num_prompt_tokens = 0;  // tokens of requests that run more than one token and its draft tokens
  double num_context_reads = 0.0;       // sum over the prompt tokens of the number of tokens before each
  std::uint32_t num_decodes = 0;
  bool has_encoder_inputs = false;  // encoder outputs are computed, too; the time of the step is then not predicted
};

class StepTimePredictor {
 public:
  // `target_s` is the target for steps with decodes. The target in effect is at least twice the time of a step without prompt tokens, and
  // four times as long for steps without decodes.
  explicit StepTimePredictor(double target_s) : target_s_(target_s) {}

  // Takes the time that a step took. Ignores steps with encoder inputs, and times that are not positive and finite.
  void observe(const StepWork& work, double seconds);
  // Returns the predicted time of a step; 0 until a step of this kind was observed, and for steps with encoder inputs.
  [[nodiscard]] double predict_s(const StepWork& work) const;
  // Returns limits for the next step. The limits change only if they would change much, because each change is a call in the journal.
  PrefillLimits limits();

 private:
  // Returns the predicted time of a step with so many decodes and no prompt tokens; 0: not known.
  [[nodiscard]] double decodes_s(std::uint32_t num_decodes) const;
  // Returns the cost of a prompt token with this number of tokens before it, in tokens without any.
  [[nodiscard]] double token_cost(double context) const;
  [[nodiscard]] double cost(const StepWork& work) const;
  [[nodiscard]] std::uint32_t cost_within(double seconds, double least, std::uint32_t last) const;

  double target_s_;
  double decode_s_ = 0.0;          // of a step without prompt tokens; 0: not known
  double decode_rows_ = 0.0;       // average number of decodes in the steps of decode_s_
  std::uint32_t num_decodes_ = 0;  // in the last step that had any
  double prompt_token_s_ = 0.0;    // time per unit of cost; 0: not known
  double context_ = 0.0;           // mean number of tokens before each prompt token in the last step that had any
  ContextCost context_cost_;
  PrefillLimits limits_{.beside_decodes = 64, .without_decodes = 256};
};

}  // namespace quire
