#pragma once
// The options of the core: one table of rows for each group of CoreConfig, in the order of its members. SchedulerOptions, ContinuumOptions
// and PressureOptions are also options of the engine. `flag` is the flag of `quire serve` that sets the field. `note` says which flag sets
// the field indirectly, or why a user cannot set it.
#include "quire/base/core_config.h"
#include "quire/base/option.h"

namespace quire {

// Upper bound of counts; it keeps the sum of two counts within 31 bits.
inline constexpr std::uint32_t kMaxCoreCount = 1U << 29U;
inline constexpr OptionRange kAnyCount{0, kMaxCoreCount};
inline constexpr OptionRange kPositiveCount{1, kMaxCoreCount};
// Upper bound of the stages of a pipeline. Each plan needs an arena of the size of the largest step.
inline constexpr std::uint32_t kMaxPlans = 64;
// Bounds of the time for which a pin keeps blocks from other requests. No client waits longer than an hour for a tool.
inline constexpr OptionRange kUpToAnHour{0, 3600};
inline constexpr const char* kSetByNewerAdapter = "vLLM 0.32.0 only; its adapter sets it";
inline constexpr const char* kAlwaysOn = "always on in `quire serve`";
inline constexpr const char* kOneProcess = "one process computes all tokens; inside vLLM its own setting counts";

// clang-format off
inline constexpr auto kSchedulerOptions = std::to_array<Option<SchedulerOptions>>({
    {member<&SchedulerOptions::max_num_seqs>, {.flag = "--max-num-seqs", .group = OptionGroup::scheduling,
     .range = OptionRange{1, 1U << 16U}, .core_range = kPositiveCount, .help = "Maximum number of requests that run at the same time"}},
    {member<&SchedulerOptions::max_num_batched_tokens>, {.flag = "--max-num-batched-tokens", .group = OptionGroup::scheduling,
     .range = OptionRange{1, 1U << 20U}, .core_range = kPositiveCount, .help = "Maximum number of tokens computed in one step"}},
    {member<&SchedulerOptions::max_model_len>, {.flag = "--max-model-len", .group = OptionGroup::scheduling,
     .core_range = OptionRange{2, kMaxCoreCount},
     .help = "Maximum number of tokens of a request, prompt plus output; 0: the context length of the model",
     .note = "0 is refused in CoreConfig, which has no model"}},
    {member<&SchedulerOptions::long_prefill_token_threshold>, {.flag = "--long-prefill-token-threshold", .group = OptionGroup::scheduling,
     .core_range = kAnyCount, .help = "Maximum number of prompt tokens of one request in one step; 0: no limit"}},
    {member<&SchedulerOptions::max_num_waiting>, {.flag = "--max-num-waiting", .group = OptionGroup::scheduling,
     .range = OptionRange{1, 1U << 24U}, .help = "Maximum number of waiting requests; further requests are rejected (status 429)"}},
    {member<&SchedulerOptions::enable_chunked_prefill>, {.flag = "--enable-chunked-prefill", .group = OptionGroup::scheduling,
     .can_be_negated = true, .help = "Compute a prompt in several steps if it exceeds the token budget of one step (default on)"}},
    {member<&SchedulerOptions::reserve_full_isl>, {.flag = "--scheduler-reserve-full-isl", .field = "reserve_full_isl",
     .group = OptionGroup::scheduling, .can_be_negated = true,
     .help = "Admit a request only if its whole prompt fits into the KV cache (default on)"}},
    {member<&SchedulerOptions::policy>, {.flag = "--scheduling-policy", .field = "policy", .group = OptionGroup::scheduling,
     .help = "Order in which requests are admitted: fcfs (by arrival), priority (smallest \"priority\" first, which may starve the others) "
             "or continuum (the turns of a \"job_id\" together, docs/continuum.md) (default fcfs)"}},
    {member<&SchedulerOptions::tenant_turns>, {.flag = "--tenant-turns", .group = OptionGroup::scheduling, .can_be_negated = true,
     .help = "Share batch rows and prompt tokens among tenants: admit the tenant with the fewest rows first; if no row is free, it takes a "
             "row from the tenant with the most rows. Background requests run on what others leave, docs/background.md (serve: default "
             "on)", .note = "on in `quire serve`"}},
    {member<&SchedulerOptions::async_scheduling>, {.flag = "--async-scheduling", .group = OptionGroup::scheduling, .can_be_negated = true,
     .help = "Plan the next step while the current step is computed: same output, less time between steps (default on)"}},
    {member<&SchedulerOptions::max_in_flight_tokens>, {.field = "max_in_flight_tokens",
     .help = "Maximum number of tokens of all plans in flight; 0: no limit", .note = kSetByNewerAdapter}},
    {member<&SchedulerOptions::admit_oversized>, {.field = "admit_oversized",
     .help = "Accept requests that can never run, as vLLM's scheduler does", .note = "the server refuses requests that can never run"}},
});

inline constexpr auto kContinuumOptions = std::to_array<Option<ContinuumOptions>>({
    {member<&ContinuumOptions::pin_s>, {.flag = "--continuum-pin", .field = "pin_s", .group = OptionGroup::scheduling,
     .kind = OptionKind::seconds, .type = "S", .core_range = kUpToAnHour,
     .help = "Seconds for which the KV cache blocks of a finished turn stay cached, with --scheduling-policy continuum"}},
    {member<&ContinuumOptions::longest_tool_s>, {.flag = "--continuum-longest-tool", .field = "longest_tool_s",
     .group = OptionGroup::scheduling, .kind = OptionKind::seconds, .type = "S", .core_range = kUpToAnHour,
     .help = "Longest mean run time of a tool, in seconds, for which the blocks of a turn stay cached"}},
    {member<&ContinuumOptions::max_jobs>, {.flag = "--continuum-max-jobs", .field = "max_jobs", .group = OptionGroup::scheduling,
     .core_range = kPositiveCount, .help = "Maximum number of jobs that the scheduler remembers between turns"}},
    {member<&ContinuumOptions::max_tools>, {.flag = "--continuum-max-tools", .field = "max_tools", .group = OptionGroup::scheduling,
     .core_range = kPositiveCount, .help = "Maximum number of tools whose run times the scheduler remembers"}},
    {member<&ContinuumOptions::pins_give_way>, {.field = "pins_give_way",
     .help = "CONTINUUM: if blocks are missing, pins end (oldest expiry first) before a request is preempted, or waits while no request "
             "runs", .note = kAlwaysOn}},
    {member<&ContinuumOptions::pins_end_with_job>, {.field = "pins_end_with_job",
     .help = "CONTINUUM: a job's pin ends with its last step, with an aborted or failed turn, and at a reset of the prefix cache",
     .note = kAlwaysOn}},
    {member<&ContinuumOptions::jobless_in_order>, {.field = "jobless_in_order",
     .help = "CONTINUUM: requests without a job are admitted in the order of arrival; False: any job goes before them", .note = kAlwaysOn}},
});

inline constexpr auto kPressureOptions = std::to_array<Option<PressureOptions>>({
    {member<&PressureOptions::admission_watermark>, {.flag = "--kv-watermark", .field = "admission_watermark",
     .group = OptionGroup::kv_cache, .kind = OptionKind::share, .type = "SHARE",
     .help = "Share of the KV cache blocks that admission keeps free, so that running requests are preempted less often: 0.01, ... "
             "(default 0)"}},
    {member<&PressureOptions::pressure_high>, {.flag = "--kv-pressure-high", .field = "pressure_high", .group = OptionGroup::kv_cache,
     .kind = OptionKind::share, .type = "SHARE",
     .help = "Stop admitting requests when requests hold more than this share of the KV cache blocks, until they hold less than "
             "--kv-pressure-low. Requests that hold loaded blocks are still admitted: 0.95, ... (default 0: off)"}},
    {member<&PressureOptions::pressure_low>, {.flag = "--kv-pressure-low", .field = "pressure_low", .group = OptionGroup::kv_cache,
     .kind = OptionKind::share, .type = "SHARE", .needs = "--kv-pressure-high",
     .help = "After --kv-pressure-high was exceeded, admit requests again when requests hold less than this share of the KV cache blocks "
             "(default 0.8)"}},
    {member<&PressureOptions::pressure_preempts>, {.flag = "--kv-pressure-preempt", .field = "pressure_preempts",
     .group = OptionGroup::kv_cache, .needs = "--kv-pressure-high",
     .help = "Above --kv-pressure-high, also preempt requests until usage is at most that share, in the order of the scheduling policy "
             "(fcfs: the most recently admitted first). One request always runs (default off)"}},
});

inline constexpr auto kPrefixCacheOptions = std::to_array<Option<PrefixCacheOptions>>({
    {member<&PrefixCacheOptions::enable_prefix_caching>, {.flag = "--enable-prefix-caching",
     .help = "Share the blocks of equal prefixes between requests"}},
    {member<&PrefixCacheOptions::hash>, {.flag = "--prefix-caching-hash-algo", .field = "hash", .help = "Algorithm of block hashes"}},
    {member<&PrefixCacheOptions::hash_seed>, {.flag = "--prefix-caching-hash-seed", .field = "hash_seed",
     .help = "Seed of block hashes. Replicas with equal seeds compute equal hashes"}},
    {nullptr, {.field = "root_hash", .help = "Parent hash of every first block (vLLM's NONE_HASH); empty: made from the seed",
     .note = "made from the seed; the vLLM adapter passes vLLM's"}},
    {member<&PrefixCacheOptions::retention_interval>, {.field = "retention_interval",
     .help = "vLLM 0.32.0: hits within a sliding window end at multiples of this many tokens, and at the ends of prompts and shared "
             "prefixes; 0: only at these ends; -1: at any block", .note = kSetByNewerAdapter}},
    {member<&PrefixCacheOptions::lifo_free_blocks>, {.flag = "--kv-lifo", .field = "lifo_free_blocks",
     .help = "Reuse the most recently freed block first, instead of the least recently used block"}},
    {member<&PrefixCacheOptions::slru_share>, {.flag = "--kv-slru", .field = "slru_share", .kind = OptionKind::share,
     .core_range = OptionRange{0, 1},
     .help = "Segmented LRU: protects blocks that a later request found in the cache. Protected blocks, at most this share of all blocks, "
             "are evicted after all other blocks; 0: LRU"}},
    {member<&PrefixCacheOptions::retained_share>, {.flag = "--kv-retention", .field = "retained_share", .kind = OptionKind::share,
     .core_range = OptionRange{0, 1},
     .help = "Evicts the blocks of requests that ask for it after all others, for the time that they ask for, up to this share of all blocks; "
             "0: off"}},
});

inline constexpr auto kSpeculationOptions = std::to_array<Option<SpeculationOptions>>({
    {member<&SpeculationOptions::num_spec_tokens>, {.flag = "--num-speculative-tokens", .field = "num_spec_tokens",
     .core_range = OptionRange{0, 1024}, .help = "Maximum number of draft tokens of a request per step"}},
    {member<&SpeculationOptions::num_lookahead_tokens>, {.field = "num_lookahead_tokens", .core_range = OptionRange{0, 1024},
     .help = "Number of token positions that are reserved in blocks for draft tokens",
     .note = "for draft models with their KV cache in the core's blocks (EAGLE, MTP). `quire serve` has none: the model of "
             "`--speculative-model` has a separate KV cache"}},
    {member<&SpeculationOptions::use_eagle>, {.field = "use_eagle",
     .help = "The last block of a prefix hit is computed again, as EAGLE needs it", .note = "as `num_lookahead_tokens`"}},
});

inline constexpr auto kEncoderOptions = std::to_array<Option<EncoderOptions>>({
    {member<&EncoderOptions::max_encoder_tokens>, {.field = "max_encoder_tokens",
     .help = "Maximum number of encoder embeddings computed per step",
     .note = "image models: `--max-num-batched-tokens`, or the largest image ([images](pictures.md)); audio models: one input per step "
             "([audio](sound.md))"}},
    {member<&EncoderOptions::encoder_cache_size>, {.field = "encoder_cache_size",
     .help = "Maximum number of embeddings in the encoder cache",
     .note = "image models: as `max_encoder_tokens`; no limit for audio models, as encoder outputs are written directly to the KV cache"}},
    {member<&EncoderOptions::is_encoder_decoder>, {.field = "is_encoder_decoder", .help = "The decoder attends to the output of an encoder",
     .note = "true with Whisper"}},
    {member<&EncoderOptions::disable_chunked_mm_input>, {.field = "disable_chunked_mm_input",
     .help = "A multimodal item is never split over several steps", .note = "images may be split over steps"}},
    {member<&EncoderOptions::uncut_items>, {.field = "uncut_items",
     .help = "All tokens of a multimodal item that are not computed yet run in one step",
     .note = "on for models with image tokens that attend to the whole image (Gemma 3)"}},
});

inline constexpr auto kParallelOptions = std::to_array<Option<ParallelOptions>>({
    {member<&ParallelOptions::pipeline_parallel>, {.field = "pipeline_parallel",
     .help = "Plans contain the sampled tokens for the first pipeline stage",
     .note = "one process computes all layers; inside vLLM its own setting counts"}},
    {member<&ParallelOptions::dcp_world_size>, {.field = "dcp_world_size", .core_range = kPositiveCount,
     .help = "Number of ranks of decode context parallelism", .note = kOneProcess}},
    {member<&ParallelOptions::pcp_world_size>, {.field = "pcp_world_size", .core_range = kPositiveCount,
     .help = "Number of ranks of prefill context parallelism", .note = kOneProcess}},
});
// Fixes of errors in vLLM's decisions. All are off by default in CoreConfig. FixOptions gives the reasons.
inline constexpr auto kFixOptions = std::to_array<Option<FixOptions>>({
    {member<&FixOptions::forget_unwritten_blocks>, {.field = "forget_unwritten_blocks",
     .help = "Fix: blocks that a preempted request did not write are removed from the prefix cache", .note = kAlwaysOn}},
    {member<&FixOptions::discard_only_in_flight>, {.field = "discard_only_in_flight",
     .help = "Fix: a reset with preemption drops a token of a request only if one is in flight", .note = kAlwaysOn}},
    {member<&FixOptions::reserve_windows_only>, {.field = "reserve_windows_only",
     .help = "Fix: reserve_full_isl counts the blocks that a request holds at one time, without blocks that its windows have passed",
     .note = kAlwaysOn}},
    {member<&FixOptions::loaded_give_way>, {.field = "loaded_give_way",
     .help = "Fix: if no request runs and the first waiting request is blocked, the last waiting request or session that holds blocks "
             "frees them",
     .note = kAlwaysOn}},
    {member<&FixOptions::hits_before_loads>, {.field = "hits_before_loads",
     .help = "Fix: the cached blocks of all cache groups are allocated before blocks for external tokens", .note = kAlwaysOn}},
    {member<&FixOptions::early_loads>, {.flag = "--kv-policy", .field = "early_loads",
     .help = "Fix: requests load external blocks while they wait for a batch row", .note = "on with `measured`"}},
    {member<&FixOptions::unsure_drafts>, {.field = "unsure_drafts",
     .help = "Fix: a sliding window moves only over accepted tokens, not over draft tokens in flight", .note = kAlwaysOn}},
    {member<&FixOptions::cut_sessions>, {.field = "cut_sessions",
     .help = "Fix: a streaming session that waits for input takes no token of a step that ran past the end of its answer",
     .note = kAlwaysOn}},
    {member<&FixOptions::unloaded_begin_anew>, {.field = "unloaded_begin_anew",
     .help = "Fix: a request that ran on blocks with a failed load is computed from scratch", .note = kAlwaysOn}},
    {member<&FixOptions::idle_sessions_yield>, {.field = "idle_sessions_yield",
     .help = "Fix: a streaming session that waits for input frees its blocks when another request needs blocks", .note = kAlwaysOn}},
});

inline constexpr auto kSwapOptions = std::to_array<Option<SwapOptions>>({
    {member<&SwapOptions::num_swap_slots>, {.flag = "--kv-swap", .field = "num_swap_slots",
     .help = "Number of slots for blocks of preempted requests", .note = "as many blocks as the memory holds"}},
    {member<&SwapOptions::num_slow_slots>, {.flag = "--kv-swap-disk", .field = "num_slow_slots",
     .help = "Number of these slots that are slower; used when no other slot is free", .note = "as many as its files hold"}},
    {member<&SwapOptions::swap_choice>, {.flag = "--kv-swap-choice", .field = "swap_choice",
     .help = "Which preempted requests are swapped out"}},
});

inline constexpr auto kVllm032Options = std::to_array<Option<Vllm032Options>>({
    {member<&Vllm032Options::max_num_active_seqs>, {.field = "max_num_active_seqs",
     .help = "vLLM 0.32.0: maximum number of running requests; 0: max_num_seqs", .note = kSetByNewerAdapter}},
    {member<&Vllm032Options::num_watermark_blocks>, {.field = "num_watermark_blocks",
     .help = "vLLM 0.32.0: number of blocks that an admission leaves free while a request runs",
     .note = "as `max_num_active_seqs`, from `watermark`"}},
    {member<&Vllm032Options::shared_prefill_tokens>, {.field = "shared_prefill_tokens", .core_range = kAnyCount,
     .help = "vLLM 0.32.0: long_prefill_token_threshold is at least an even share of this many tokens among all requests; 0: no minimum",
     .note = "as `max_num_active_seqs`, from `long_prefill_token_threshold_adaptive`"}},
    {member<&Vllm032Options::defer_block_free>, {.field = "defer_block_free",
     .help = "vLLM 0.32.0: freed blocks return to the pool after the last step that may write to them",
     .note = "as `max_num_active_seqs`, from the connector's role"}},
    {member<&Vllm032Options::drop_undelivered>, {.field = "drop_undelivered",
     .help = "vLLM 0.32.0: tokens in flight of a preempted request are dropped", .note = kSetByNewerAdapter}},
});

inline constexpr auto kCoreLimits = std::to_array<Option<CoreLimits>>({
    {member<&CoreLimits::max_outstanding_plans>, {.flag = "--async-scheduling", .field = "max_outstanding_plans",
     .core_range = OptionRange{1, kMaxPlans},
     .help = "Maximum number of plans that are made and not yet applied: 1 for synchronous scheduling, 2 for asynchronous",
     .note = "2 with it, 1 without"}},
    {member<&CoreLimits::max_fork_family>, {.flag = "--max-forks", .field = "max_fork_family", .core_range = kPositiveCount,
     .help = "Maximum number of open requests that descend from one request by forks, including that request"}},
    {member<&CoreLimits::max_open_transfers>, {.field = "max_open_transfers", .core_range = OptionRange{1, 1U << 16U},
     .help = "Maximum number of transfers in flight", .note = "an internal limit of the core"}},
    {member<&CoreLimits::max_loras>, {.flag = "--max-loras", .field = "max_loras",
     .help = "Maximum number of LoRA adapters in one step; 0: no limit", .note = "with `--enable-lora`; else 0: no adapters"}},
});

inline constexpr auto kReportOptions = std::to_array<Option<ReportOptions>>({
    {member<&ReportOptions::log_stats>, {.flag = "--kv-cache-metrics", .field = "log_stats",
     .help = "Outcomes contain statistics and request events",
     .note = "the engine uses only the block lifetimes of these statistics, and counts the rest of `/metrics` itself"}},
    {member<&ReportOptions::enable_kv_events>, {.flag = "--kv-events-config", .field = "enable_kv_events",
     .help = "Outcomes contain the events of the prefix cache", .note = "on if its `enable_kv_cache_events` is true"}},
    {member<&ReportOptions::kv_metrics_sample>, {.flag = "--kv-cache-metrics-sample", .field = "kv_metrics_sample",
     .kind = OptionKind::share, .help = "Share of blocks with measured residency, 0 to 1; 0: off",
     .note = "0 without `--kv-cache-metrics`"}},
    {member<&ReportOptions::include_finished_set>, {.field = "include_finished_set",
     .help = "Outcomes list the requests that ended, per client", .note = "for engines with several clients, such as vLLM's"}},
    {member<&ReportOptions::count_common_prefix>, {.flag = "--count-common-prefix", .field = "count_common_prefix",
     .help = "Count the leading blocks that all running requests share in each step, for cascade attention",
     .note = "reported in `/metrics` and the trace; the worker finds shared prefixes without it"}},
});

// The fields of CoreConfig that belong to no group.
inline constexpr auto kCoreOptions = std::to_array<Option<CoreConfig>>({
    {member<&CoreConfig::decisions>, {.field = "decisions", .help = "The vLLM version that the core's decisions follow",
     .note = "as in vLLM 0.19.0; inside vLLM as in its version"}},
    {[](CoreConfig& config) -> OptionValue { return &config.kv.num_blocks; }, {.flag = "--num-blocks", .field = "num_blocks",
     .core_range = OptionRange{2, kMaxCoreCount}, .help = "Number of KV cache blocks, including the null block (id 0)",
     .note = "default: as many as `--kv-cache-memory` holds"}},
    {nullptr, {.field = "groups", .help = "Cache groups of the model; default: one group with full attention",
     .note = "made from the model"}},
    {member<&CoreConfig::block_size>, {.flag = "--block-size", .field = "block_size", .core_range = kPositiveCount,
     .help = "Number of tokens in a hashed block"}},
    {member<&CoreConfig::cache_block_size>, {.field = "cache_block_size", .core_range = kAnyCount,
     .help = "vLLM's cache_config.block_size, in tokens; 0: block_size",
     .note = "the vLLM adapter sets it; for models with states it is the block size"}},
    {member<&CoreConfig::mamba_align>, {.flag = "--mamba-cache-mode", .field = "mamba_align",
     .help = "True if vLLM's mamba_cache_mode is 'align'", .note = "true with `align` ([docs/hybrids.md](hybrids.md))"}},
    {member<&CoreConfig::kv_load_failure>, {.flag = "--kv-load-failure-policy", .field = "kv_load_failure",
     .help = "Handling of requests with external blocks that could not be loaded"}},
});
// clang-format on

// Calls `visit` with each table, the function that returns its struct in a CoreConfig, and the group's name in errors ("continuum.").
template <class Visit>
constexpr void visit_core_options(const Visit& visit) {
  visit(kCoreOptions, [](auto& config) -> auto& { return config; }, "");
  visit(kSchedulerOptions, [](auto& config) -> auto& { return config.scheduler; }, "");
  visit(kPrefixCacheOptions, [](auto& config) -> auto& { return config.prefix_cache; }, "prefix_cache.");
  visit(kSpeculationOptions, [](auto& config) -> auto& { return config.speculation; }, "speculation.");
  visit(kEncoderOptions, [](auto& config) -> auto& { return config.encoder; }, "encoder.");
  visit(kParallelOptions, [](auto& config) -> auto& { return config.parallel; }, "parallel.");
  visit(kContinuumOptions, [](auto& config) -> auto& { return config.continuum; }, "continuum.");
  visit(kFixOptions, [](auto& config) -> auto& { return config.fixes; }, "fixes.");
  visit(kPressureOptions, [](auto& config) -> auto& { return config.pressure; }, "pressure.");
  visit(kSwapOptions, [](auto& config) -> auto& { return config.swap; }, "swap.");
  visit(kVllm032Options, [](auto& config) -> auto& { return config.newer; }, "newer.");
  visit(kCoreLimits, [](auto& config) -> auto& { return config.limits; }, "limits.");
  visit(kReportOptions, [](auto& config) -> auto& { return config.report; }, "report.");
}

}  // namespace quire
