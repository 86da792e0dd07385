#pragma once
// What the engine thread counts of its requests and steps. Belongs to that thread; others read copies of stats().
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "engine/stats/histogram.h"
#include "quire/base/kv_stats.h"
#include "quire/core.h"
#include "quire/engine.h"

namespace quire {

// s
struct StepTimes {
  double plan_s = 0.0;
  double run_s = 0.0;  // from its start to its result
  double apply_s = 0.0;
};

class EngineCounts {
 public:
  // A request was admitted for the first time, after so long.
  void admitted(double waited_s) { observe(stats_.queue_time_s, waited_s); }
  // A request's first tokens came, so long after it did.
  void first_tokens(std::size_t num_tokens, std::uint32_t num_prompt_tokens, std::uint32_t num_cached_tokens, double after_s);
  // Further ones, so long after those before.
  void next_tokens(std::size_t num_tokens, double after_s);
  // A request ended, so long after it came.
  void ended(FinishReason reason, double after_s);
  // Of one request's drafts.
  void drafts(std::uint32_t num_verified, std::uint32_t num_accepted);
  void step(const StepTimes& times);
  // The same step computed something.
  void pass(double forward_s, double sample_s);
  // Of followed blocks, those that were evicted since the last step.
  void evictions(std::span<const KvEvictionEvent> events);
  // A plan runs so many requests, with so many common blocks per cache group (StepPlan::num_common_prefix_blocks).
  void common_prefix(std::size_t num_requests, std::span<const std::uint32_t> num_blocks);
  // Of requests that run with an adapter: it waits, it was admitted, it ended (`ran`: it had been).
  void adapter_waits(const std::string& name);
  void adapter_runs(const std::string& name);
  void adapter_ends(const std::string& name, bool ran);
  // What the core has counted.
  void take(const CoreCounters& counters);

  // To be completed by whoever knows more.
  [[nodiscard]] EngineStats& stats() { return stats_; }

 private:
  // Requests that name an adapter.
  struct AdapterUse {
    std::uint32_t num_waiting = 0, num_running = 0;
  };
  void tell_adapters();

  EngineStats stats_ = make_engine_stats();
  std::map<std::string, AdapterUse> adapters_;
};

}  // namespace quire
