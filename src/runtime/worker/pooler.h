#pragma once
// The vectors of pooling requests, made of the rows of one pass after another. All rows are kept until the last one is there. A mean adds
// its rows one by one, in the order of their positions, so its bits do not depend on where the prompt was cut.
#include <cstdint>
#include <span>
#include <vector>

#include "quire/base/plan.h"
#include "quire/base/pooling.h"
#include "runtime/worker/batch.h"
#include "runtime/worker/step_results.h"

namespace quire {

// What the pass has made of the rows of a run.
class PooledRows {
 public:
  virtual ~PooledRows() = default;
  // `outputs`: their places among the pass's output rows. Into [output][width].
  virtual void read_hidden(std::span<const std::uint32_t> outputs, const PoolRun& run, std::span<float> rows) = 0;
  // What the row says of these tokens.
  virtual void read_logits(std::uint32_t output, const PoolRun& run, std::span<const TokenId> tokens, std::span<float> logits) = 0;
};

// Owned by a worker; called in its sampling part, once per step. States are by slot and begin anew with each admission, since a preempted
// pooling request computes its whole prompt again.
class Pooler {
 public:
  Pooler(std::uint32_t max_num_seqs, std::uint32_t width);

  // A request that is computed from its beginning, also after a preemption.
  void admit(const AdmittedRequest& request);
  // Takes in the runs of a pass; of prompts that are done the vectors go to `results`.
  void pool(std::span<const PoolRun> runs, PooledRows& rows, StepResults& results);

 private:
  struct State {
    const PoolingParams* params = nullptr;
    std::uint32_t num_wanted = 0;  // rows
    std::uint32_t num_rows = 0;    // in `sum` or `all`
    std::vector<double> sum;       // of a mean, or the one row
    std::vector<float> all;
  };
  void add(const PoolRun& run, PooledRows& rows, State& state);
  std::vector<float> take(State& state) const;

  std::uint32_t width_;
  std::vector<State> states_;  // by slot
  std::vector<std::uint32_t> outputs_;
  std::vector<float> rows_;  // of a slice of a run
};

}  // namespace quire
