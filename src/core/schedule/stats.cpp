// What is counted between two outcomes: vLLM's make_stats, SpecDecodingStats, and the finished requests of each client.
#include <algorithm>

#include "core/schedule/state.h"

namespace quire {

void Core::State::count_drafts(std::uint32_t num_drafts, std::uint32_t num_accepted) {
  if (!config.report.log_stats) return;
  if (!out.stats.spec_decoding) out.stats.spec_decoding.emplace();
  SpecDecodingStats& stats = *out.stats.spec_decoding;
  if (!std::exchange(out.counts_drafts, true)) {
    stats.num_spec_tokens = config.speculation.num_spec_tokens;
    stats.num_drafts = stats.num_draft_tokens = stats.num_accepted_tokens = 0;
    stats.num_accepted_per_position.assign(config.speculation.num_spec_tokens, 0);
  }
  ++stats.num_drafts;
  stats.num_draft_tokens += num_drafts;
  stats.num_accepted_tokens += num_accepted;
  for (std::uint32_t i = 0; i < std::min(num_accepted, config.speculation.num_spec_tokens); ++i) ++stats.num_accepted_per_position[i];
}

const SchedulerStats* Core::State::collect_stats() {
  if (!config.report.log_stats) return nullptr;
  SchedulerStats& stats = out.stats;
  stats.num_running = static_cast<std::uint32_t>(running.size());
  stats.num_waiting = static_cast<std::uint32_t>(waiting.size() + skipped_waiting.size());
  stats.kv_cache_usage = kv.pool().usage();
  const auto capacity = static_cast<double>(encoder_cache.capacity());
  stats.encoder_cache_usage = capacity == 0.0 ? 0.0 : (capacity - static_cast<double>(encoder_cache.num_free())) / capacity;
  stats.prefix_cache = kv.take_prefix_cache_stats();
  if (seams.connector != nullptr) stats.connector_prefix_cache = std::exchange(connector_stats, {});
  if (!std::exchange(out.counts_drafts, false)) stats.spec_decoding.reset();
  out.evictions.clear();
  kv.residency().take_events(out.evictions);
  stats.evictions = out.evictions;
  return &stats;
}

const SchedulerStats* Core::make_stats() {
  state_->out.counts_drafts = false;
  return state_->collect_stats();
}

// Clients in the order of their first end.
void Core::State::collect_finished_sets() {
  out.finished_ids.clear();
  out.finished_sets.clear();
  out.finished_ids.reserve(out.ended.size());
  while (!out.ended.empty()) {
    const std::uint32_t client = out.ended.front().first;
    const std::size_t begin = out.finished_ids.size();
    std::erase_if(out.ended, [&](const auto& ended) {
      if (ended.first == client) out.finished_ids.push_back(ended.second);
      return ended.first == client;
    });
    out.finished_sets.push_back({client, std::span(out.finished_ids).subspan(begin)});
  }
}

}  // namespace quire
