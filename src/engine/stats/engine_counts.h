#pragma once
// The counters of requests and steps. Belong to the engine thread; other threads read copies of stats().
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "engine/stats/histogram.h"
#include "quire/base/kv_stats.h"
#include "quire/core.h"
#include "quire/engine.h"

namespace quire {

// Times of one step, in seconds.
struct StepTimes {
  double plan_s = 0.0;
  double run_s = 0.0;  // from the start of the step until its result is available
  double apply_s = 0.0;
};

class EngineCounts {
 public:
  // Counts the first admission of a request, `waited_s` after its arrival.
  void admitted(double waited_s) { observe(stats_.queue_time_s, waited_s); }
  // Counts the first tokens of a request, `after_s` after its arrival.
  void first_tokens(std::size_t num_tokens, std::uint32_t num_prompt_tokens, std::uint32_t num_cached_tokens, double after_s);
  // Counts further tokens of a request, `after_s` after the previous ones.
  void next_tokens(std::size_t num_tokens, double after_s);
  // Counts the end of a request, `after_s` after its arrival.
  void ended(FinishReason reason, double after_s);
  // Counts the draft tokens of one request in one step.
  void drafts(std::uint32_t num_verified, std::uint32_t num_accepted);
  void step(const StepTimes& times);
  // Counts a forward pass. Called after step(), if the step computed something.
  void forward_pass(double forward_s, double sample_s);
  // Adds the predicted and the measured time of a step.
  void predicted_step(double predicted_s, double took_s) {
    stats_.predicted_steps_s += predicted_s;
    stats_.measured_steps_s += took_s;
  }
  // Counts evictions of sampled blocks since the last step.
  void evictions(std::span<const KvEvictionEvent> events);
  // Counts the leading blocks that the requests of a plan share. `num_blocks` has one entry per cache group
  // (StepPlan::num_common_prefix_blocks).
  void common_prefix(std::size_t num_requests, std::span<const std::uint32_t> num_blocks);
  // Count a request that names this adapter, when it starts to wait, is admitted, and ends. `ran`: the request was admitted before its end.
  void adapter_waits(const std::string& name);
  void adapter_runs(const std::string& name);
  void adapter_ends(const std::string& name, bool ran);
  // Copies the core's counters into the statistics.
  void take(const CoreCounters& counters);

  // Returns the statistics. The caller fills in the values that this class does not count.
  [[nodiscard]] EngineStats& stats() { return stats_; }

 private:
  // The numbers of waiting and running requests that name an adapter.
  struct AdapterUse {
    std::uint32_t num_waiting = 0, num_running = 0;
  };
  void update_adapter_stats();

  EngineStats stats_ = make_engine_stats();
  std::map<std::string, AdapterUse> adapters_;
};

}  // namespace quire
