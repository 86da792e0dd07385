#include "core/schedule/results/stats.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

void Stats::count_drafts(std::uint32_t num_drafts, std::uint32_t num_accepted) {
  if (!context_.config.report.log_stats) return;
  if (!stats_.spec_decoding) stats_.spec_decoding.emplace();
  SpecDecodingStats& stats = *stats_.spec_decoding;
  if (!std::exchange(counts_drafts_, true)) {
    stats.num_spec_tokens = context_.config.speculation.num_spec_tokens;
    stats.num_drafts = stats.num_draft_tokens = stats.num_accepted_tokens = 0;
    stats.num_accepted_per_position.assign(context_.config.speculation.num_spec_tokens, 0);
    stats.num_drafted_per_position.assign(context_.config.speculation.num_spec_tokens, 0);
  }
  ++stats.num_drafts;
  stats.num_draft_tokens += num_drafts;
  stats.num_accepted_tokens += num_accepted;
  for (std::uint32_t i = 0; i < std::min(num_accepted, context_.config.speculation.num_spec_tokens); ++i)
    ++stats.num_accepted_per_position[i];
  for (std::uint32_t i = 0; i < std::min(num_drafts, context_.config.speculation.num_spec_tokens); ++i) ++stats.num_drafted_per_position[i];
}

const SchedulerStats* Stats::collect() {
  if (!context_.config.report.log_stats) return nullptr;
  SchedulerStats& stats = stats_;
  stats.num_running = static_cast<std::uint32_t>(queues_.running.size());
  stats.num_waiting = static_cast<std::uint32_t>(queues_.num_waiting());
  stats.num_deferred = queues_.num_deferred;
  stats.kv_cache_usage = kv_.pool().usage();
  const auto capacity = static_cast<double>(encoder_.cache().capacity());
  stats.encoder_cache_usage = capacity == 0.0 ? 0.0 : (capacity - static_cast<double>(encoder_.cache().num_free())) / capacity;
  stats.prefix_cache = kv_.take_prefix_cache_stats();
  if (context_.seams.connector != nullptr) stats.connector_prefix_cache = look_up_.take_connector_stats();
  if (!std::exchange(counts_drafts_, false)) stats.spec_decoding.reset();
  evictions_.clear();
  kv_.residency().take_events(evictions_);
  stats.evictions = evictions_;
  return &stats;
}

std::span<const FinishedSet> Stats::collect_finished_sets(std::vector<std::pair<std::uint32_t, RequestId>>& ended) {
  finished_ids_.clear();
  finished_sets_.clear();
  const std::size_t num_ended = ended.size();
  finished_ids_.reserve(num_ended);
  while (!ended.empty()) {
    const std::uint32_t client = ended.front().first;
    const std::size_t begin = finished_ids_.size();
    std::erase_if(ended, [&](const auto& one) {
      if (one.first == client) finished_ids_.push_back(one.second);
      return one.first == client;
    });
    finished_sets_.push_back({client, std::span(finished_ids_).subspan(begin)});
  }
  QUIRE_CHECK(finished_ids_.size() == num_ended, "each finished request is reported once, in memory that does not move");
  return finished_sets_;
}

}  // namespace quire
