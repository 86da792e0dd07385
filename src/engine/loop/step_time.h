#pragma once
// Predicts how long a step takes, and how many prompt tokens fit into a target time. Belongs to the engine thread.
//
// Predicted time = time of a step without prompt tokens + prompt tokens x time per prompt token. Both are running averages, and the newest
// steps count most. So the prediction follows a growing context and a machine that gets busy. A single step raises an average
// little, however long it took, because a process may be stopped in the middle of a step.
#include <cstdint>

#include "quire/core.h"

namespace quire {

// The work of one step.
struct StepWork {
  std::uint32_t num_prompt_tokens = 0;  // tokens of requests that run more than one token and its draft tokens
  std::uint32_t num_decodes = 0;
  bool has_encoder_inputs = false;  // encoder outputs are computed, too: such a step is not predicted
};

class StepTimePredictor {
 public:
  // `target_s`: the longest time that a step should take, at least twice the time of a step without prompt tokens.
  explicit StepTimePredictor(double target_s) : target_s_(target_s) {}

  // Takes the time that a step took. Times that are not positive and finite are ignored.
  void observe(const StepWork& work, double seconds);
  // Returns 0 until such a step was observed.
  [[nodiscard]] double predict_s(const StepWork& work) const;
  // Returns limits for the next step. They change only when they would change much, because each change is a call in the journal.
  PrefillLimits limits();

 private:
  // Returns the predicted time of a step with so many decodes and no prompt tokens; 0: not known.
  [[nodiscard]] double decodes_s(std::uint32_t num_decodes) const;
  [[nodiscard]] std::uint32_t tokens_within(double seconds, double least, std::uint32_t last) const;

  double target_s_;
  double decode_s_ = 0.0;          // of a step without prompt tokens; 0: not known
  double decode_rows_ = 0.0;       // average number of decodes in the steps of decode_s_
  std::uint32_t num_decodes_ = 0;  // in the last step that had any
  double prompt_token_s_ = 0.0;    // 0: not known
  PrefillLimits limits_{.beside_decodes = 64, .without_decodes = 256};
};

}  // namespace quire
