#pragma once
// One simulated engine in virtual time: the real core, and the loop of vLLM's EngineCore around it. The simulation steps it on its single
// thread. Only virtual time is used, so equal calls give equal results.
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "core/connect/offload_connector.h"
#include "lab/simulate/modelled_links.h"
#include "lab/simulate/simulated_steps.h"
#include "lab/workload/block_keys.h"
#include "quire/core.h"
#include "quire/lab/curve.h"
#include "quire/simulation.h"

namespace quire {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// State that the instances share: the workload and the results of its requests.
struct SimulationRun {
  const Workload& workload;
  const SimulationOptions& options;
  BlockHasher hasher;
  std::vector<RequestTimes> times = {};   // indexed as in the workload
  std::vector<std::uint32_t> ended = {};  // requests that ended since the list was last cleared
  std::string first_refusal = {};
  std::vector<SimulatedStep>* steps = nullptr;  // receives the steps; null: steps are not stored
};

// Sums over the steps of an instance.
struct InstanceTotals {
  double busy_s = 0.0, held_by_batch_s = 0.0, held_by_budget_s = 0.0, held_by_blocks_s = 0.0;
  double kv_usage_s = 0.0;  // fraction of blocks in use, integrated over the duration of steps
  double kv_usage_peak = 0.0;
};

class Instance {
 public:
  // Errors: the errors of Core::create() and, with a tier, of OffloadConnector::create().
  static Result<std::unique_ptr<Instance>> create(std::uint32_t index, const CoreConfig& config, SimulationRun& run);

  // Adds a request that has arrived (RequestTimes::arrival_s). The core receives it at the next turn of the loop.
  void give(std::uint32_t request);
  // Returns the time at which turn() is due; kNever if there is nothing to do.
  [[nodiscard]] double next_turn_s() const;
  // Runs one turn of the loop: applies the oldest step's result, adds the new requests, and makes the next plans.
  void turn();

  [[nodiscard]] std::uint32_t num_open() const { return num_open_; }
  [[nodiscard]] CoreCounters counters() const { return core_->counters(); }
  [[nodiscard]] const InstanceTotals& totals() const { return totals_; }
  [[nodiscard]] const ModelledLinks& links() const { return links_; }
  [[nodiscard]] const CurveSampler* curve() const { return curve_.get(); }
  // Called with each plan after it is made, for tests of decisions.
  std::function<void(const StepPlan&)> on_plan;

 private:
  struct InFlightStep {
    const StepPlan* plan;
    double ready_s;  // time at which the step's result is ready
  };

  Instance(std::uint32_t index, const CoreConfig& config, SimulationRun& run);
  void take_inbox();
  void add(std::uint32_t request);
  // Makes a plan, starts its step, and returns the number of scheduled tokens.
  std::uint32_t launch();
  void note_plan(const StepPlan& plan);
  void count_step(const StepPlan& plan, double seconds);
  // Begins the plan's transfers. Returns the time at which the plan's fences allow its step to begin.
  double begin_transfers(const StepPlan& plan);
  // Applies the oldest result. Returns whether it reported the end of a transfer to the core.
  bool apply_oldest();
  void note_updates(const StepOutcome& outcome);

  const std::uint32_t index_;
  const std::uint32_t max_in_flight_;
  const std::uint32_t max_num_seqs_, max_step_tokens_;
  const double num_blocks_;
  SimulationRun& run_;
  MixedHashes hash_;
  ModelledLinks links_;
  std::unique_ptr<OffloadConnector> connector_;  // null: no tier
  std::unique_ptr<CurveSampler> curve_;          // null: no curve was requested
  std::unique_ptr<Core> core_;
  double now_s_ = 0.0;
  double worker_free_s_ = 0.0;
  std::uint32_t num_turns_now_ = 0;  // since virtual time last advanced
  bool is_idle_ = false;             // the last plan was empty and nothing is in flight
  std::deque<InFlightStep> in_flight_;
  std::deque<std::uint32_t> inbox_;
  std::uint32_t num_open_ = 0;
  InstanceTotals totals_;
  // Buffers that every step reuses.
  std::vector<BlockHash> names_;
  std::vector<SampledToken> sampled_;
};

}  // namespace quire
