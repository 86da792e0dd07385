#pragma once
// Computes the vectors of pooling requests from the rows of successive passes. PoolingKind::all keeps all rows until the last row is
// computed. A mean adds its rows one by one in the order of their positions, so its bits do not depend on where the prompt was split into
// steps.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/plan.h"
#include "quire/base/pooling.h"
#include "runtime/worker/batch.h"
#include "runtime/worker/step_results.h"

namespace quire {

// Interface for reading the values that the pass has computed for the rows of a run.
class PooledRows {
 public:
  virtual ~PooledRows() = default;
  // Writes hidden rows to `rows`, [output][width]. `outputs`: indices among the output rows of the pass.
  virtual void read_hidden(std::span<const std::uint32_t> outputs, const PoolRun& run, std::span<float> rows) = 0;
  // Writes the logits of `tokens` in one output row.
  virtual void read_logits(std::uint32_t output, const PoolRun& run, std::span<const TokenId> tokens, std::span<float> logits) = 0;
};

// Owned by a worker, and called once per step, when the worker samples. Each slot has a state. admit() resets the state, because a
// preempted pooling request computes its whole prompt again.
class Pooler {
 public:
  Pooler(std::uint32_t max_num_seqs, std::uint32_t width);

  // Starts a request that is computed from its first token, also after a preemption.
  void admit(const AdmittedRequest& request);
  // Adds the runs of a pass. The vectors of completed prompts go to `results`.
  void pool(std::span<const PoolRun> runs, PooledRows& rows, StepResults& results);

 private:
  struct State {
    const PoolingParams* params = nullptr;
    std::uint32_t num_required = 0;  // rows that the vector needs
    std::uint32_t num_rows = 0;      // rows so far, in `sum` or `all`
    std::vector<double> sum;         // for a mean, or the single row
    std::vector<float> all;
  };
  void add(const PoolRun& run, PooledRows& rows, State& state);
  std::vector<float> take(State& state) const;

  std::uint32_t width_;
  std::vector<State> states_;  // by slot
  std::vector<std::uint32_t> outputs_;
  std::vector<float> rows_;  // one slice of a run
};

}  // namespace quire
