// Counts the engine's requests and steps. Called by the step loop on the engine thread for each output and each step. A call is one or two
// additions, without a lock. Other threads read copies.
#include "engine/stats/engine_counts.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace quire {

void EngineCounts::first_tokens(std::size_t num_tokens, std::uint32_t num_prompt_tokens, std::uint32_t num_cached_tokens, double after_s) {
  stats_.generation_tokens += num_tokens;
  stats_.prompt_tokens += num_prompt_tokens;
  stats_.prompt_tokens_cached += num_cached_tokens;
  observe(stats_.time_to_first_token_s, after_s);
}

void EngineCounts::next_tokens(std::size_t num_tokens, double after_s) {
  stats_.generation_tokens += num_tokens;
  observe(stats_.inter_token_latency_s, after_s);
}

void EngineCounts::ended(FinishReason reason, double after_s) {
  observe(stats_.e2e_latency_s, after_s);
  switch (reason) {
    case FinishReason::stop:
      ++stats_.finished_stop;
      break;
    case FinishReason::repetition:
      ++stats_.finished_repetition;
      break;
    case FinishReason::length:
      ++stats_.finished_length;
      break;
    case FinishReason::abort:
      ++stats_.finished_abort;
      break;
    case FinishReason::error:
      ++stats_.finished_error;
      break;
  }
}

void EngineCounts::drafts(std::uint32_t num_verified, std::uint32_t num_accepted) {
  if (!stats_.speculation) stats_.speculation.emplace();
  SpeculationStats& stats = *stats_.speculation;
  ++stats.num_drafts;
  stats.num_draft_tokens += num_verified;
  stats.num_accepted_tokens += num_accepted;
  std::vector<std::uint64_t>& per_position = stats.num_accepted_per_position;
  per_position.resize(std::max<std::size_t>(per_position.size(), num_accepted));
  for (std::uint32_t i = 0; i < num_accepted; ++i) ++per_position[i];
}

void EngineCounts::step(const StepTimes& times) {
  observe(stats_.step_time_s, times.plan_s + times.run_s + times.apply_s);
  observe(stats_.scheduler_time_s, times.plan_s + times.apply_s);
}

void EngineCounts::forward_pass(double forward_s, double sample_s) {
  observe(stats_.forward_time_s, forward_s);
  observe(stats_.sample_time_s, sample_s);
}

void EngineCounts::evictions(std::span<const KvEvictionEvent> events) {
  if (!stats_.kv_residency) stats_.kv_residency = make_residency_stats();
  for (const KvEvictionEvent& event : events) {
    observe(stats_.kv_residency->lifetime_s, event.lifetime);
    observe(stats_.kv_residency->idle_before_evict_s, event.idle);
    for (const double gap : event.reuse_gaps) observe(stats_.kv_residency->reuse_gap_s, gap);
  }
}

// Ignores a step with a single request, which shares all blocks with itself.
void EngineCounts::common_prefix(std::size_t num_requests, std::span<const std::uint32_t> num_blocks) {
  if (num_requests < 2) return;
  if (!stats_.common_prefix_blocks) stats_.common_prefix_blocks = make_block_histogram();
  observe(*stats_.common_prefix_blocks, static_cast<double>(std::reduce(num_blocks.begin(), num_blocks.end(), std::uint64_t{0})));
}

void EngineCounts::adapter_waits(const std::string& name) {
  ++adapters_[name].num_waiting;
  update_adapter_stats();
}

void EngineCounts::adapter_runs(const std::string& name) {
  AdapterUse& use = adapters_.at(name);
  --use.num_waiting;
  ++use.num_running;
  update_adapter_stats();
}

void EngineCounts::adapter_ends(const std::string& name, bool ran) {
  const auto found = adapters_.find(name);
  AdapterUse& use = found->second;
  --(ran ? use.num_running : use.num_waiting);
  if (use.num_running + use.num_waiting == 0) adapters_.erase(found);
  update_adapter_stats();
}

// Called when the use of adapters changes and not in each step, because there are more steps than such changes.
void EngineCounts::update_adapter_stats() {
  stats_.running_adapters.clear();
  stats_.waiting_adapters.clear();
  for (const auto& [name, use] : adapters_) {
    if (use.num_running > 0) stats_.running_adapters.push_back(name);
    if (use.num_waiting > 0) stats_.waiting_adapters.push_back(name);
  }
}

void EngineCounts::take(const CoreCounters& counters) {
  stats_.num_steps = counters.num_steps;
  stats_.num_running = counters.num_running;
  stats_.num_waiting = counters.num_waiting;
  stats_.num_blocks = counters.num_blocks;
  stats_.num_free_blocks = counters.num_free_blocks;
  stats_.num_cached_blocks = counters.num_cached_blocks;
  stats_.num_retained_blocks = counters.num_retained_blocks;
  stats_.num_pinned = counters.num_pinned;
  stats_.num_awaiting_transfers = counters.num_awaiting_transfers;
  stats_.num_open_transfers = counters.num_open_transfers;
  stats_.num_preemptions = counters.num_preemptions;
  stats_.is_admission_stopped = counters.is_admission_stopped;
  stats_.num_admission_stops = counters.num_admission_stops;
  stats_.num_pressure_preemptions = counters.num_pressure_preemptions;
  stats_.num_evicted_blocks = counters.num_evicted_blocks;
  stats_.num_forks = counters.num_forks;
  stats_.num_copied_blocks = counters.num_copied_blocks;
  stats_.prefix_cache_queries = counters.prefix_query_tokens;
  stats_.prefix_cache_hits = counters.prefix_hit_tokens;
  stats_.external_prefix_cache_queries = counters.external_query_tokens;
  stats_.external_prefix_cache_hits = counters.external_hit_tokens;
}

}  // namespace quire
