#pragma once
// One engine in virtual time: the shipping core, and the loop of vLLM's EngineCore around it.
// Stepped by the simulation, on its one thread. It must know no time but the one it is told: equal calls give equal results.
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <vector>

#include "core/connect/offload_connector.h"
#include "lab/simulate/modelled_links.h"
#include "lab/simulate/simulated_steps.h"
#include "lab/workload/block_names.h"
#include "quire/core.h"
#include "quire/lab/curve.h"
#include "quire/simulation.h"

namespace quire {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

// What the instances share: the workload, and what becomes of its requests.
struct Played {
  const Workload& workload;
  const SimulationOptions& options;
  BlockNames names;
  std::vector<RequestTimes> times = {};   // as in the workload
  std::vector<std::uint32_t> ended = {};  // since this was cleared last
  std::string first_refusal = {};
  std::vector<SimulatedStep>* steps = nullptr;  // where they are kept; null: nowhere
};

// Sums over the steps of an instance.
struct InstanceTotals {
  double busy_s = 0.0, held_by_batch_s = 0.0, held_by_budget_s = 0.0, held_by_blocks_s = 0.0;
  double kv_usage_s = 0.0;  // share of blocks held, times seconds of steps
  double kv_usage_peak = 0.0;
};

class Instance {
 public:
  // Errors are those of Core::create() and, with a tier, of OffloadConnector::create().
  static Result<std::unique_ptr<Instance>> create(std::uint32_t index, const CoreConfig& config, Played& played);

  // The request has arrived (RequestTimes::arrival_s); the engine sees it at the next turn of its loop.
  void give(std::uint32_t request);
  // When turn() is due; kNever while there is nothing to do.
  [[nodiscard]] double next_turn_s() const;
  // One turn of the loop: the oldest step's result is taken, then who came meanwhile, then the next plans are made.
  void turn();

  [[nodiscard]] std::uint32_t num_open() const { return num_open_; }
  [[nodiscard]] CoreCounters counters() const { return core_->counters(); }
  [[nodiscard]] const InstanceTotals& totals() const { return totals_; }
  [[nodiscard]] const ModelledLinks& links() const { return links_; }
  [[nodiscard]] const CurveSampler* curve() const { return curve_.get(); }
  // For tests that look at decisions: called with each plan as it is made.
  std::function<void(const StepPlan&)> on_plan;

 private:
  struct Flight {
    const StepPlan* plan;
    double ready_s;  // when its result is
  };

  Instance(std::uint32_t index, const CoreConfig& config, Played& played);
  void take_inbox();
  void add(std::uint32_t request);
  // The tokens that it schedules.
  std::uint32_t launch();
  void note_plan(const StepPlan& plan);
  void count_step(const StepPlan& plan, double seconds);
  // Of a plan: its transfers begin. When its step may, as far as its fences go.
  double begin_transfers(const StepPlan& plan);
  // Whether it told the core that a transfer is over.
  bool apply_oldest();
  void note_updates(const StepOutcome& outcome);

  const std::uint32_t index_;
  const std::uint32_t max_flights_;
  const std::uint32_t max_num_seqs_, max_step_tokens_;
  const double num_blocks_;
  Played& played_;
  MixedNames hash_;
  ModelledLinks links_;
  std::unique_ptr<OffloadConnector> connector_;  // null: no tier
  std::unique_ptr<CurveSampler> curve_;          // null: nobody asked for it
  std::unique_ptr<Core> core_;
  double now_s_ = 0.0;
  double worker_free_s_ = 0.0;
  std::uint32_t num_turns_now_ = 0;  // since time went on
  bool sleeps_ = false;              // the last plan was empty and nothing is in flight
  std::deque<Flight> flights_;
  std::deque<std::uint32_t> inbox_;
  std::uint32_t num_open_ = 0;
  InstanceTotals totals_;
  // Reused from step to step.
  std::vector<BlockHash> names_;
  std::vector<SampledToken> sampled_;
};

}  // namespace quire
