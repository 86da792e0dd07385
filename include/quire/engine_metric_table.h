#pragma once
// The metrics of the engine and of its tiers: one table for each struct of EngineStats, and one row per metric. /metrics, docs/metrics.md
// (tools/docs/metrics_table.py), the tiers of GET /v1/cache and Python's Engine.stats() are made from the rows. /metrics writes the metrics
// in the order of the rows.
#include <array>
#include <cstdint>
#include <functional>
#include <type_traits>
#include <variant>

#include "quire/engine.h"

namespace quire {

enum class MetricKind : std::uint8_t { counter, gauge, histogram };
inline constexpr MetricKind kCounter = MetricKind::counter, kGauge = MetricKind::gauge, kHistogram = MetricKind::histogram;

// The value of a metric. For a histogram, a pointer into the statistics that contain it.
using MetricValue = std::variant<std::uint64_t, double, const HistogramSnapshot*>;

struct MetricDetails {
  const char* python = "";    // key in the dict of Python's Engine.stats(); empty: the dict does not have the metric
  const char* old_name = "";  // metrics also contain the value under this name of version 0.1; empty: no old name
  const char* labels = "";    // labels of the sample: NAME="VALUE"
};

// A metric, or one sample of a metric that has several samples with different labels.
template <class Stats>
struct Metric {
  // Returns the value in `stats`, which must outlive the result.
  [[nodiscard]] MetricValue value(const Stats& stats) const {
    return std::visit(
        [&](auto from) -> MetricValue {
          const auto& found = std::invoke(from, stats);
          if constexpr (std::is_integral_v<std::remove_cvref_t<decltype(found)>>)
            return std::uint64_t{found};
          else if constexpr (std::is_same_v<std::remove_cvref_t<decltype(found)>, HistogramSnapshot>)
            return &found;
          else
            return found;
        },
        source);
  }

  const char* name;  // must not change, because dashboards use it; vLLM's name, if vLLM has the metric
  MetricKind kind;
  const char* help;  // empty: another sample of the metric in the row above
  std::variant<bool Stats::*, std::uint32_t Stats::*, std::uint64_t Stats::*, double Stats::*, HistogramSnapshot Stats::*,
               MetricValue (*)(const Stats&)>
      source;
  MetricDetails more = {};
};

inline MetricValue kv_cache_usage(const EngineStats& stats) {
  return stats.num_blocks == 0 ? 0.0 : 1.0 - static_cast<double>(stats.num_free_blocks) / stats.num_blocks;
}
inline MetricValue journal_has_ended(const EngineStats& stats) {
  return std::uint64_t{!stats.journal_ended.empty()};
}

// clang-format off
// Metrics of requests, the KV cache and latencies.
inline constexpr auto kEngineMetrics = [] { using S = EngineStats; return std::to_array<Metric<S>>({
    {"vllm:num_requests_running", kGauge, "Current number of running requests.", &S::num_running, {.python = "num_running"}},
    {"vllm:num_requests_waiting", kGauge, "Current number of requests waiting for admission, including preempted and held-back requests.",
     &S::num_waiting, {.python = "num_waiting"}},
    {"quire:num_queued_tokens", kGauge, "Current number of prompt tokens of requests without a first token.", &S::num_queued_tokens,
     {.python = "num_queued_tokens"}},
    {"vllm:kv_cache_usage_perc", kGauge, "Current share of KV cache blocks in use; 1 means all blocks.", kv_cache_usage},
    {"vllm:prefix_cache_queries_total", kCounter, "Total number of prompt tokens looked up in the prefix cache.", &S::prefix_cache_queries,
     {.python = "prefix_cache_queries"}},
    {"vllm:prefix_cache_hits_total", kCounter, "Total number of prompt tokens found in the prefix cache.", &S::prefix_cache_hits,
     {.python = "prefix_cache_hits"}},
    {"vllm:external_prefix_cache_queries_total", kCounter,
     "Total number of prompt tokens looked up in tiers and connectors, after the hit in the prefix cache.",
     &S::external_prefix_cache_queries},
    {"vllm:external_prefix_cache_hits_total", kCounter, "Total number of prompt tokens found in tiers and connectors and loaded.",
     &S::external_prefix_cache_hits},
    {"vllm:num_preemptions_total", kCounter, "Total number of preemptions.", &S::num_preemptions, {.python = "num_preemptions"}},
    {"quire:forks_total", kCounter, "Total number of requests forked from other requests.", &S::num_forks},
    {"quire:copied_blocks_total", kCounter, "Total number of KV cache blocks copied because forks shared them.", &S::num_copied_blocks},
    {"vllm:prompt_tokens_total", kCounter, "Total number of prompt tokens, computed or found in a cache.", &S::prompt_tokens,
     {.python = "prompt_tokens"}},
    {"vllm:prompt_tokens_cached_total", kCounter, "Total number of prompt tokens found in a cache.", &S::prompt_tokens_cached,
     {.python = "prompt_tokens_cached"}},
    {"vllm:generation_tokens_total", kCounter, "Total number of generated tokens.", &S::generation_tokens, {.python = "generation_tokens"}},
    {"vllm:request_success_total", kCounter, "Total number of finished requests, by reason.", &S::finished_stop,
     {.python = "finished_stop", .labels = R"(finished_reason="stop")"}},
    {"vllm:request_success_total", kCounter, "", &S::finished_length,
     {.python = "finished_length", .labels = R"(finished_reason="length")"}},
    {"vllm:request_success_total", kCounter, "", &S::finished_abort, {.python = "finished_abort", .labels = R"(finished_reason="abort")"}},
    {"vllm:request_success_total", kCounter, "", &S::finished_error, {.python = "finished_error", .labels = R"(finished_reason="error")"}},
    {"vllm:request_success_total", kCounter, "", &S::finished_repetition, {.labels = R"(finished_reason="repetition")"}},
    {"vllm:time_to_first_token_seconds", kHistogram, "Histogram of the time from arrival to the first token, in seconds.",
     &S::time_to_first_token_s},
    {"vllm:inter_token_latency_seconds", kHistogram, "Histogram of the time between two tokens of a request, in seconds.",
     &S::inter_token_latency_s},
    {"vllm:time_per_output_token_seconds", kHistogram,
     "Histogram of the time between two tokens of a request, in seconds: the older name of inter_token_latency_seconds.",
     &S::inter_token_latency_s},
    {"vllm:e2e_request_latency_seconds", kHistogram, "Histogram of the time from arrival to the end of a request, in seconds.",
     &S::e2e_latency_s},
    {"vllm:request_queue_time_seconds", kHistogram, "Histogram of the time from arrival to admission, in seconds.", &S::queue_time_s},
    {"quire:steps_total", kCounter, "Total number of engine steps.", &S::num_steps, {.python = "num_steps"}},
    {"quire:predicted_step_seconds_total", kCounter, "Total time of steps as predicted by --step-time-target, in seconds.",
     &S::predicted_steps_s},
    {"quire:measured_step_seconds_total", kCounter, "Total measured time of the same steps, in seconds.", &S::measured_steps_s},
    {"quire:prefill_limit_tokens", kGauge, "Number of prompt tokens that fit into a step with decodes; 0 without --step-time-target.",
     &S::prefill_limit},
    {"quire:paused", kGauge, "1 while the engine is paused.", &S::is_paused},
    {"quire:kv_cache_evicted_blocks_total", kCounter, "Total number of KV cache blocks evicted from the prefix cache.",
     &S::num_evicted_blocks, {.python = "num_evicted_blocks"}},
    {"quire:kv_cache_blocks", kGauge, "Number of KV cache blocks.", &S::num_blocks, {.python = "num_blocks"}},
    {"quire:kv_cache_cached_blocks", kGauge, "Current number of KV cache blocks in the prefix cache, in use or not.", &S::num_cached_blocks,
     {.old_name = "quire:kv_cache_named_blocks"}},
    {"quire:kv_cache_retained_blocks", kGauge,
     "Current number of free KV cache blocks that requests asked to keep (prompt_cache_retention, cache_control).",
     &S::num_retained_blocks, {.python = "num_retained_blocks"}},
    {"quire:kv_cache_free_blocks", kGauge, "Current number of free KV cache blocks, including cached blocks.", &S::num_free_blocks,
     {.python = "num_free_blocks"}},
    {"quire:pinned_requests", kGauge, "Current number of finished requests whose blocks are kept for the next turn of their job.",
     &S::num_pinned},
    {"quire:kv_pressure", kGauge, "Current share of KV cache blocks that requests hold.", kv_cache_usage},
    {"quire:admission_stopped", kGauge, "1 while no request is admitted because KV cache usage is too high (--kv-pressure-high).",
     &S::is_admission_stopped},
    {"quire:admission_stops_total", kCounter, "Total number of times that high KV cache usage stopped admission.", &S::num_admission_stops},
    {"quire:pressure_preemptions_total", kCounter,
     "Total number of requests preempted only because of high KV cache usage (--kv-pressure-preempt).", &S::num_pressure_preemptions},
}); }();

inline constexpr auto kSpeculationMetrics = [] { using S = SpeculationStats; return std::to_array<Metric<S>>({
    {"vllm:spec_decode_num_drafts_total", kCounter, "Total number of drafts: steps of a request with draft tokens.", &S::num_drafts},
    {"vllm:spec_decode_num_draft_tokens_total", kCounter, "Total number of draft tokens that were verified.", &S::num_draft_tokens},
    {"vllm:spec_decode_num_accepted_tokens_total", kCounter, "Total number of draft tokens that were accepted.", &S::num_accepted_tokens},
}); }();

inline constexpr auto kAdapterMetrics = [] { using S = AdapterStats; return std::to_array<Metric<S>>({
    {"quire:loras_registered", kGauge, "Current number of LoRA adapters that requests can use.", &S::num_known,
     {.old_name = "quire:loras_known"}},
    {"quire:loras_resident", kGauge, "Current number of LoRA adapters in memory (at most --max-cpu-loras).", &S::num_resident},
    {"quire:lora_bytes", kGauge,
     "Current size of LoRA adapter weights in memory, in bytes, without removed adapters that running requests still use.", &S::bytes},
    {"quire:lora_loads_total", kCounter, "Total number of LoRA adapter loads from files.", &S::num_loads},
    {"quire:lora_evictions_total", kCounter, "Total number of LoRA adapters evicted from memory.", &S::num_evictions},
    {"quire:lora_load_failures_total", kCounter, "Total number of failed LoRA adapter loads.", &S::num_failed_loads},
}); }();

inline constexpr auto kExpertMetrics = [] { using S = ExpertReads; return std::to_array<Metric<S>>({
    {"quire:experts_used_total", kCounter, "Total number of MoE experts used, each counted once per layer and forward pass.", &S::num_used},
    {"quire:experts_read_total", kCounter,
     "Total number of used MoE experts that were not in memory and were read from the file (--expert-memory).", &S::num_read},
    {"quire:expert_bytes_read_total", kCounter, "Total number of bytes of MoE experts read from the file.", &S::bytes_read},
    {"quire:expert_matrices_corrupted_total", kCounter,
     "Total number of MoE expert matrices that were corrupted in --weights-cache and were packed again.", &S::num_damaged,
     {.old_name = "quire:expert_matrices_damaged_total"}},
}); }();

inline constexpr auto kSwapMetrics = [] { using S = KvSwapStats; return std::to_array<Metric<S>>({
    {"quire:kv_swap_slots", kGauge, "Current number of swap slots, each for one KV cache block of a preempted request.", &S::num_places,
     {.old_name = "quire:kv_swap_places"}},
    {"quire:kv_swap_disk_slots", kGauge, "Current number of swap slots in files.", &S::num_slow_slots,
     {.old_name = "quire:kv_swap_far_places"}},
    {"quire:kv_swap_used_slots", kGauge, "Current number of swap slots in use.", &S::num_used_slots,
     {.old_name = "quire:kv_swap_used_places"}},
    {"quire:kv_swap_out_requests_total", kCounter, "Total number of preempted requests whose blocks were swapped out.", &S::num_out},
    {"quire:kv_swap_out_blocks_total", kCounter, "Total number of blocks swapped out.", &S::num_out_blocks},
    {"quire:kv_swap_in_requests_total", kCounter, "Total number of requests whose blocks were swapped in.", &S::num_in},
    {"quire:kv_swap_in_blocks_total", kCounter, "Total number of blocks swapped in.", &S::num_in_blocks},
    {"quire:kv_swap_in_tokens_total", kCounter, "Total number of tokens that were swapped in instead of recomputed.", &S::num_in_tokens},
    {"quire:kv_swap_lost_total", kCounter,
     "Total number of swapped-out requests that were recomputed: a transfer failed, or other requests needed the blocks.", &S::num_lost},
    {"quire:kv_swap_no_slot_total", kCounter, "Total number of preempted requests recomputed because too few swap slots were free.",
     &S::num_skipped_no_slot, {.old_name = "quire:kv_swap_no_place_total"}},
    {"quire:kv_swap_no_gain_total", kCounter, "Total number of preempted requests recomputed because that was as fast as swapping.",
     &S::num_skipped_no_gain},
    {"quire:kv_swap_checksum_failures_total", kCounter, "Total number of swapped-out blocks that failed their checksum.",
     &S::num_corrupted_blocks, {.old_name = "quire:kv_swap_refused_total"}},
    {"quire:kv_swap_out_bytes_per_second", kGauge, "Measured rate of swapping out to memory, in bytes per second.", &S::out_bytes_per_s},
    {"quire:kv_swap_in_bytes_per_second", kGauge, "Measured rate of swapping in from memory, in bytes per second.", &S::in_bytes_per_s},
    {"quire:kv_swap_disk_out_bytes_per_second", kGauge, "Measured rate of swapping out to files, in bytes per second.",
     &S::disk_out_bytes_per_s, {.old_name = "quire:kv_swap_far_out_bytes_per_second"}},
    {"quire:kv_swap_disk_in_bytes_per_second", kGauge, "Measured rate of swapping in from files, in bytes per second.",
     &S::disk_in_bytes_per_s, {.old_name = "quire:kv_swap_far_in_bytes_per_second"}},
}); }();

inline constexpr auto kResidencyMetrics = [] { using S = KvResidencyStats; return std::to_array<Metric<S>>({
    {"vllm:kv_block_lifetime_seconds", kHistogram,
     "Histogram of the time from allocation to eviction of sampled KV cache blocks, in seconds.", &S::lifetime_s},
    {"vllm:kv_block_idle_before_evict_seconds", kHistogram,
     "Histogram of the time from last use to eviction of sampled KV cache blocks, in seconds.", &S::idle_before_evict_s},
    {"vllm:kv_block_reuse_gap_seconds", kHistogram,
     "Histogram of the time between uses of sampled KV cache blocks (the last four uses), in seconds.", &S::reuse_gap_s},
}); }();

// Metrics with one sample per tier. GET /v1/cache uses the names without "quire:kv_tier_" and "_total".
inline constexpr auto kTierMetrics = [] { using S = KvTierStats; return std::to_array<Metric<S>>({
    {"quire:kv_tier_budget_bytes", kGauge, "Maximum size of the tier in bytes.", &S::budget_bytes},
    {"quire:kv_tier_slots", kGauge, "Current number of slots of the tier, each for one KV cache block.", &S::num_places,
     {.old_name = "quire:kv_tier_places"}},
    {"quire:kv_tier_capacity_tokens", kGauge, "Number of tokens whose blocks the tier has room for.", &S::capacity_tokens},
    {"quire:kv_tier_used_slots", kGauge, "Current number of slots that contain a block or are being written.", &S::num_used_slots,
     {.old_name = "quire:kv_tier_used_places"}},
    {"quire:kv_tier_unread_slots", kGauge, "Current number of slots from earlier runs that have not been read yet.", &S::num_unread_slots,
     {.old_name = "quire:kv_tier_unread_places"}},
    {"quire:kv_tier_restored_blocks_total", kCounter, "Total number of blocks restored from earlier runs.", &S::num_restored_blocks},
    {"quire:kv_tier_stored_blocks_total", kCounter, "Total number of blocks stored.", &S::num_stored_blocks},
    {"quire:kv_tier_stored_bytes_total", kCounter, "Total number of bytes stored.", &S::bytes_stored},
    {"quire:kv_tier_loaded_blocks_total", kCounter, "Total number of blocks loaded and verified.", &S::num_loaded_blocks},
    {"quire:kv_tier_loaded_bytes_total", kCounter, "Total number of bytes loaded.", &S::bytes_loaded},
    {"quire:kv_tier_loaded_tokens_total", kCounter, "Total number of prompt tokens loaded instead of computed.", &S::tokens_loaded},
    {"quire:kv_tier_without_room_total", kCounter,
     "Total number of blocks not stored because no slot was free: the request alone fills the tier, or all slots are in transfer or "
     "unread.", &S::num_without_slot},
    {"quire:kv_tier_checksum_failures_total", kCounter,
     "Total number of blocks and table entries that failed their checksum and count as misses.", &S::num_corrupted_blocks,
     {.old_name = "quire:kv_tier_refused_total"}},
    {"quire:kv_tier_failed_total", kCounter, "Total number of blocks that the tier failed to read or write.", &S::num_failed_blocks},
    {"quire:kv_tier_delayed_stores_total", kCounter,
     "Total number of blocks whose store was delayed because a quarter of the KV cache was already in transfer.", &S::num_deferred_by_limit,
     {.old_name = "quire:kv_tier_held_back_total"}},
    {"quire:kv_tier_stored_at_end_total", kCounter,
     "Total number of delayed blocks that were stored after their request had ended and the engine was idle.", &S::num_stored_when_idle},
    {"quire:kv_tier_skipped_stores_total", kCounter,
     "Total number of blocks not stored because the tier is too small for its reuse distance.", &S::num_filtered_blocks,
     {.old_name = "quire:kv_tier_thinned_total"}},
    {"quire:kv_tier_demoted_blocks_total", kCounter,
     "Total number of stored blocks that came from the tier above when it was about to evict them.", &S::num_demoted_blocks,
     {.old_name = "quire:kv_tier_taken_blocks_total"}},
    {"quire:kv_tier_dropped_total", kCounter,
     "Total number of blocks evicted before they were stored in the tier below, if blocks move down.", &S::num_dropped_blocks},
    {"quire:kv_tier_computed_tokens_total", kCounter,
     "Total number of prompt tokens in the tier that were computed because that was faster than loading.", &S::num_computed_tokens},
    {"quire:kv_tier_load_bytes_per_second", kGauge, "Recently measured load rate in bytes per second; 0 means not measured yet.",
     &S::load_bytes_per_s},
    {"quire:kv_tier_compute_tokens_per_second", kGauge, "Recently measured prefill rate in tokens per second; 0 means not measured yet.",
     &S::compute_tokens_per_s},
    {"quire:kv_tier_loads_disabled", kGauge, "1 while nothing is loaded from the tier because it fails, hangs or is gone.",
     &S::loads_left_out, {.old_name = "quire:kv_tier_loads_left_out"}},
    {"quire:kv_tier_stores_disabled", kGauge, "1 while nothing is stored in the tier because it fails, hangs or is gone.",
     &S::stores_left_out, {.old_name = "quire:kv_tier_stores_left_out"}},
    {"quire:kv_tier_disabled_total", kCounter, "Total number of times that loads or stores were disabled.", &S::num_times_disabled,
     {.old_name = "quire:kv_tier_left_out_total"}},
    {"quire:kv_tier_queried_blocks_total", kCounter, "Total number of block hashes looked up in a remote store.", &S::num_queried_blocks,
     {.old_name = "quire:kv_tier_asked_blocks_total"}},
    {"quire:kv_tier_found_blocks_total", kCounter, "Total number of looked-up block hashes that a remote store had.", &S::num_found_blocks},
    {"quire:kv_tier_late_answers_total", kCounter,
     "Total number of lookups in a remote store that were answered too late or not at all; the blocks were computed.",
     &S::num_query_timeouts},
    {"quire:kv_tier_absent_blocks_total", kCounter, "Total number of blocks that a remote store no longer had when they were loaded.",
     &S::num_vanished_blocks},
    {"quire:kv_tier_open_leases", kGauge, "Current number of requests whose blocks are kept for another server.", &S::num_open_leases},
    {"quire:kv_tier_leases_total", kCounter, "Total number of requests whose blocks were kept for another server.", &S::num_leases},
    {"quire:kv_tier_expired_leases_total", kCounter, "Total number of requests whose kept blocks were not fetched in time.",
     &S::num_expired_leases},
}); }();

// Metrics of the trace, KV cache events, the journal and the parts of a step.
inline constexpr auto kRecordMetrics = [] { using S = EngineStats; return std::to_array<Metric<S>>({
    {"quire:trace_steps_total", kCounter, "Total number of steps written to the trace.", &S::trace_steps, {.python = "trace_steps"}},
    {"quire:trace_steps_dropped_total", kCounter,
     "Total number of steps not written to the trace because the disk was slow, full or failing.", &S::trace_steps_dropped,
     {.python = "trace_steps_dropped"}},
    {"quire:kv_event_batches_total", kCounter, "Total number of KV cache event batches sent to subscribers.", &S::kv_event_batches},
    {"quire:kv_event_batches_unsubscribed_total", kCounter, "Total number of KV cache event batches while there was no subscriber.",
     &S::kv_event_batches_without_subscriber, {.old_name = "quire:kv_event_batches_unheard_total"}},
    {"quire:kv_event_batches_dropped_total", kCounter, "Total number of KV cache event batches dropped because the publisher was too slow.",
     &S::kv_event_batches_dropped},
    {"quire:journal_bytes_total", kCounter, "Total number of bytes written to the journal (--journal).", &S::journal_bytes},
    {"quire:journal_ended", kGauge, "1 if the journal has ended: its budget is used up, or the disk is slow, full or failing.",
     journal_has_ended},
    {"quire:journal_memory_bytes", kGauge, "Current size of the journal's last minutes in memory, in bytes (--journal-memory).",
     &S::journal_memory_bytes},
    {"quire:step_seconds", kHistogram, "Histogram of the duration of an engine step, in seconds.", &S::step_time_s},
    {"quire:scheduler_seconds", kHistogram, "Histogram of the scheduler's time in a step, in seconds.", &S::scheduler_time_s},
    {"quire:forward_seconds", kHistogram, "Histogram of the forward pass time in a step, in seconds.", &S::forward_time_s},
    {"quire:sample_seconds", kHistogram, "Histogram of the sampling time in a step, in seconds.", &S::sample_time_s},
}); }();
// clang-format on

}  // namespace quire
