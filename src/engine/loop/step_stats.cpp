// What the step loop counts.
#include <algorithm>

#include "engine/loop/step_loop.h"
#include "engine/stats/histogram.h"

namespace quire {

void StepLoop::count_transfers(const TransferTotals& totals) {
  stats_.num_loads = totals.num_loads;
  stats_.num_stores = totals.num_stores;
  stats_.bytes_loaded = totals.bytes_loaded;
  stats_.bytes_stored = totals.bytes_stored;
  stats_.num_failed_transfers = totals.num_failed;
  stats_.num_stray_transfers = totals.num_stray;
}

void StepLoop::count_drafts(std::uint32_t num_verified, std::uint32_t num_accepted) {
  if (!stats_.speculation) stats_.speculation.emplace();
  SpeculationStats& stats = *stats_.speculation;
  ++stats.num_drafts;
  stats.num_draft_tokens += num_verified;
  stats.num_accepted_tokens += num_accepted;
  std::vector<std::uint64_t>& per_position = stats.num_accepted_per_position;
  per_position.resize(std::max<std::size_t>(per_position.size(), num_accepted));
  for (std::uint32_t i = 0; i < num_accepted; ++i) ++per_position[i];
}

void StepLoop::token_times(Live& live, std::size_t num_tokens, double now_s) {
  stats_.generation_tokens += num_tokens;
  if (live.last_token_s < 0.0) {
    stats_.prompt_tokens += live.num_prompt_tokens;
    stats_.prompt_tokens_cached += live.num_cached_tokens;
    observe(stats_.time_to_first_token_s, now_s - live.arrival_s);
  } else {
    observe(stats_.inter_token_latency_s, now_s - live.last_token_s);
  }
  live.last_token_s = now_s;
}

void StepLoop::count_end(RequestId id, Live& live, FinishReason reason) {
  live.ended = true;
  options_.tools->forget(id);
  if (live.structured_output != nullptr) options_.grammars->remove(id);
  ended_.push_back(id);
  observe(stats_.e2e_latency_s, clock_->now_s() - live.arrival_s);
  switch (reason) {
    case FinishReason::stop:
    case FinishReason::repetition:
      ++stats_.finished_stop;
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

const EngineStats& StepLoop::stats() {
  const CoreCounters counters = core_->counters();
  stats_.num_steps = counters.num_steps;
  stats_.num_running = counters.num_running;
  stats_.num_waiting = counters.num_waiting;
  for (const RequestId elder : elders_) stats_.num_waiting += static_cast<std::uint32_t>(requests_.at(elder).siblings.size());
  stats_.num_blocks = counters.num_blocks;
  stats_.num_free_blocks = counters.num_free_blocks;
  stats_.num_pinned = counters.num_pinned;
  if (options_.tracer != nullptr) {
    stats_.trace_steps = options_.tracer->num_written();
    stats_.trace_steps_dropped = options_.tracer->num_dropped();
  }
  stats_.num_awaiting_transfers = counters.num_awaiting_transfers;
  stats_.num_open_transfers = counters.num_open_transfers;
  stats_.num_preemptions = counters.num_preemptions;
  stats_.is_admission_stopped = counters.is_admission_stopped;
  stats_.num_admission_stops = counters.num_admission_stops;
  stats_.num_evicted_blocks = counters.num_evicted_blocks;
  stats_.num_forks = counters.num_forks;
  stats_.num_copied_blocks = counters.num_copied_blocks;
  stats_.prefix_cache_queries = counters.prefix_query_tokens;
  stats_.prefix_cache_hits = counters.prefix_hit_tokens;
  return stats_;
}

}  // namespace quire
