#pragma once
// The options of the engine and of its tiers: one table of rows for each struct. Options that the engine shares with the core are in
// quire/base/core_option_table.h. A struct has two tables if only `quire serve` has some of its flags. A row gives the option its flag, its
// keyword in quire.EngineConfig, its check, and its name in errors.
#include <string>
#include <string_view>

#include "quire/base/core_option_table.h"
#include "quire/engine_builder.h"

namespace quire {

inline constexpr std::uint32_t kMaxThreads = 1024;
inline constexpr std::uint32_t kMaxCpuLoras = 65536;

// clang-format off
inline constexpr auto kCacheOptions = std::to_array<Option<CacheOptions>>({
    {member<&CacheOptions::kv_cache_bytes>, {.flag = "--kv-cache-memory", .field = "kv_cache_bytes", .group = OptionGroup::kv_cache,
     .kind = OptionKind::bytes,
     .help = "Size of the KV cache, such as 512MiB or 2GiB. auto: four fifths of the memory that the weights and memory tiers leave "
             "free, on the machine or in its cgroup. A size that does not fit is rejected (default 1GiB)"}},
    {member<&CacheOptions::num_blocks>, {.flag = "--num-blocks", .group = OptionGroup::kv_cache,
     .help = "Number of KV cache blocks, including the null block; 0: as many as fit into --kv-cache-memory"}},
    {member<&CacheOptions::block_size>, {.flag = "--block-size", .group = OptionGroup::kv_cache, .range = OptionRange{1, 1024},
     .help = "Number of tokens in a KV cache block"}},
    {member<&CacheOptions::dtype>, {.flag = "--kv-cache-dtype", .group = OptionGroup::kv_cache,
     .help = "Data type of cached keys and values: bf16, f32 or int8 (default bf16). int8 needs half the memory of bf16 and is less "
             "accurate"}},
    {member<&CacheOptions::enable_prefix_caching>, {.flag = "--enable-prefix-caching", .group = OptionGroup::kv_cache,
     .can_be_negated = true, .help = "Keep full KV cache blocks after use, so that requests with the same prefix reuse them (default on)"}},
    {member<&CacheOptions::mamba_cache_mode>, {.flag = "--mamba-cache-mode", .group = OptionGroup::kv_cache,
     .help = "Where models with recurrent states cache them. all: at the end of every block; align: at the ends of prompts and prompt "
             "chunks, which needs less memory; none: one state per request, without prefix caching (default: align if a state is "
             "larger than the keys and values of a block and a step has room for a whole block, else all)"}},
    {member<&CacheOptions::hash>, {.flag = "--prefix-caching-hash-algo", .field = "hash", .group = OptionGroup::kv_cache,
     .help = "Hash function for block hashes: canonical (quire), or sha256, sha256_cbor, xxhash or xxhash_cbor as in vLLM. xxhash is "
             "faster, but a client can construct two prompts with the same hash (default canonical)"}},
    {member<&CacheOptions::hash_seed>, {.flag = "--prefix-caching-hash-seed", .group = OptionGroup::kv_cache, .type = "TEXT",
     .help = "Seed of the block hashes, as PYTHONHASHSEED in vLLM. Servers with the same seed compute the same hash for equal blocks "
             "(default none)"}},
    {member<&CacheOptions::lifo_free_blocks>, {.flag = "--kv-lifo", .group = OptionGroup::kv_cache,
     .help = "Reuse the most recently freed block first instead of the least recently used one. Cached prefixes are evicted sooner "
             "(default off)"}},
    {member<&CacheOptions::slru_share>, {.flag = "--kv-slru", .group = OptionGroup::kv_cache, .kind = OptionKind::share, .type = "SHARE",
     .range = OptionRange{0, 1},
     .help = "Segmented LRU: protect blocks that a later request found in the cache. Protected blocks, at most this share of the KV cache, "
             "are evicted after all other blocks; 0: LRU (docs/eviction.md; serve: default 0.2)", .note = "0.2 in `quire serve`"}},
    {member<&CacheOptions::retained_share>, {.flag = "--kv-retention", .group = OptionGroup::kv_cache, .kind = OptionKind::share,
     .type = "SHARE", .range = OptionRange{0, 1},
     .help = "Evict the blocks that clients ask to keep (prompt_cache_retention, cache_control) after all others, up to this share of the KV "
             "cache; 0: ignore the fields (docs/retention.md; serve: default 0.25)", .note = "0.25 in `quire serve`"}},
    {member<&CacheOptions::count_common_prefix>, {.flag = "--count-common-prefix", .group = OptionGroup::kv_cache, .can_be_negated = true,
     .help = "Count in each step the leading blocks that all running requests share, for /metrics and --trace. Each step then scans all "
             "blocks of one request (default off)"}},
});

inline constexpr auto kCacheMetricsOptions = std::to_array<Option<CacheOptions>>({
    {member<&CacheOptions::kv_cache_metrics>, {.flag = "--kv-cache-metrics", .group = OptionGroup::observability, .can_be_negated = true,
     .help = "Measure the lifetime and the idle time of KV cache blocks, for /metrics (default off)"}},
    {member<&CacheOptions::kv_cache_metrics_sample>, {.flag = "--kv-cache-metrics-sample", .group = OptionGroup::observability,
     .kind = OptionKind::share, .type = "SHARE", .needs = "--kv-cache-metrics",
     .help = "Share of the blocks to measure: above 0, at most 1"}},
});

inline constexpr auto kKvSwapOptions = std::to_array<Option<KvSwapOptions>>({
    {member<&KvSwapOptions::bytes>, {.flag = "--kv-swap", .group = OptionGroup::kv_cache, .kind = OptionKind::bytes,
     .help = "Memory for swapped-out blocks of preempted requests, in addition to the KV cache. Requests are swapped when that is "
             "faster than recomputing their tokens (default 0: always recompute)"}},
    {member<&KvSwapOptions::choice>, {.flag = "--kv-swap-choice", .group = OptionGroup::kv_cache,
     .help = "Which preempted requests are swapped out. measured: requests for which swapping is faster than recomputing; always: all "
             "that fit; off: none (default measured)"}},
    {member<&KvSwapOptions::folder>, {.flag = "--kv-swap-disk", .group = OptionGroup::kv_cache, .type = "DIR",
     .help = "Directory for swapped-out KV blocks when --kv-swap is full or not set. Files are removed at exit"}},
    {member<&KvSwapOptions::folder_bytes>, {.flag = "--kv-swap-disk-budget", .group = OptionGroup::kv_cache, .kind = OptionKind::bytes,
     .needs = "--kv-swap-disk", .help = "Maximum size of the files in --kv-swap-disk (default 4GiB)"}},
});

inline constexpr auto kNgramOptions = std::to_array<Option<NgramOptions>>({
    {member<&NgramOptions::num_speculative_tokens>, {.flag = "--num-speculative-tokens", .group = OptionGroup::speculation,
     .range = OptionRange{0, 64},
     .help = "Maximum number of draft tokens of a request per step. Without a draft model, quire proposes the tokens that followed the same tokens earlier in "
             "the request (n-gram). The output stays bit-identical (default 0: off, or 4 with --speculative-model)"}},
    {member<&NgramOptions::prompt_lookup_min>, {.flag = "--prompt-lookup-min", .group = OptionGroup::speculation,
     .help = "Minimum number of consecutive tokens that must match for prompt lookup"}},
    {member<&NgramOptions::prompt_lookup_max>, {.flag = "--prompt-lookup-max", .group = OptionGroup::speculation,
     .range = OptionRange{1, 1024}, .help = "Maximum number of consecutive tokens that prompt lookup matches"}},
});

inline constexpr auto kAdapterOptions = std::to_array<Option<AdapterOptions>>({
    {member<&AdapterOptions::max_loras>, {.flag = "--max-loras", .group = OptionGroup::lora, .range = OptionRange{0, 1024},
     .help = "Maximum number of different adapters in one step; requests for other adapters wait until running requests have ended"}},
    {member<&AdapterOptions::max_lora_rank>, {.flag = "--max-lora-rank", .group = OptionGroup::lora,
     .help = "Maximum rank of adapters: 1, 8, 16, 32, 64, 128, 256, 320 or 512"}},
    {member<&AdapterOptions::max_cpu_loras>, {.flag = "--max-cpu-loras", .group = OptionGroup::lora, .range = OptionRange{0, kMaxCpuLoras},
     .help = "Maximum number of adapters in memory. The least recently used adapter is removed, and is read from its folder again when "
             "needed (default: the largest of --max-loras, the number of --lora-modules and 4)"}},
    {nullptr, {.flag = "--lora-modules", .group = OptionGroup::lora}},
});

inline constexpr auto kWeightsOptions = std::to_array<Option<WeightsOptions>>({
    {member<&WeightsOptions::quantise>, {.flag = "--quantize", .group = OptionGroup::model,
     .help = "Quantize float weight matrices to 8 bits (q8_0) or 4 bits (q4_k) while loading: less memory, faster, less accurate. With "
             "--weights-cache this happens only once (default none)"}},
    {member<&WeightsOptions::cache_folder>, {.flag = "--weights-cache", .group = OptionGroup::model, .type = "DIR",
     .help = "Directory for cached packed weights, one file per model, so that the next start does not pack the model again. Anyone who "
             "can write to it can change the served weights (default: no cache)"}},
    {member<&WeightsOptions::cache_bytes>, {.flag = "--weights-cache-budget", .group = OptionGroup::model, .kind = OptionKind::bytes,
     .needs = "--weights-cache",
     .help = "Maximum size of the files in --weights-cache; the least recently used file is removed first (default 64GiB)"}},
    {member<&WeightsOptions::expert_bytes>, {.flag = "--expert-memory", .group = OptionGroup::model, .kind = OptionKind::bytes,
     .needs = "--weights-cache",
     .help = "Memory for the experts of a mixture of experts. The most used experts stay in memory; the others are read from "
             "--weights-cache when needed (default: all experts, or half of the memory if they do not fit)"}},
});

inline constexpr auto kTraceOptions = std::to_array<Option<TraceOptions>>({
    {member<&TraceOptions::path>, {.flag = "--trace", .group = OptionGroup::observability, .type = "PATH",
     .help = "Record each step of the scheduler in PATH.steps.jsonl and PATH.requests.jsonl, including prompt tokens; quire trace shows "
             "them"}},
    {member<&TraceOptions::every>, {.flag = "--trace-every", .group = OptionGroup::observability, .range = OptionRange{1, UINT32_MAX},
     .help = "Record only every n-th step"}},
    {member<&TraceOptions::max_steps>, {.flag = "--trace-max-steps", .group = OptionGroup::observability,
     .help = "Maximum number of recorded steps; 0: no limit"}},
    {member<&TraceOptions::max_file_bytes>, {.flag = "--trace-file-bytes", .group = OptionGroup::observability, .kind = OptionKind::bytes,
     .range = OptionRange{1U << 16U, UINT64_MAX},
     .help = "Maximum size of a trace file. Then it is renamed to FILE.1, and a new file begins (default 256MiB)"}},
    {member<&TraceOptions::max_files>, {.flag = "--trace-files", .group = OptionGroup::observability, .range = OptionRange{1, 1000},
     .help = "Maximum number of trace files of each kind; the oldest is deleted"}},
});

inline constexpr auto kJournalOptions = std::to_array<Option<JournalOptions>>({
    {member<&JournalOptions::folder>, {.flag = "--journal", .group = OptionGroup::observability, .type = "DIR",
     .help = "Directory for journals. Each run records the inputs of the scheduler, including prompt tokens, and a digest of each "
             "decision in a new file, which quire replay runs again"}},
    {member<&JournalOptions::max_bytes>, {.flag = "--journal-max-bytes", .group = OptionGroup::observability, .kind = OptionKind::bytes,
     .help = "Maximum size of all journals in the directory; the oldest are deleted first (default 1GiB)"}},
    {member<&JournalOptions::memory_bytes>, {.flag = "--journal-memory", .group = OptionGroup::observability, .kind = OptionKind::bytes,
     .help = "Memory for a journal of the last minutes, which POST /v1/journal/save writes to a file; 0: off (default 32MiB)"}},
    {member<&JournalOptions::tokens>, {.flag = "--journal-tokens", .group = OptionGroup::observability, .can_be_negated = true,
     .help = "Record the tokens of prompts and outputs (default on). Journals without tokens can be replayed too"}},
});

inline constexpr auto kSavedJournalOptions = std::to_array<Option<JournalOptions>>({
    {member<&JournalOptions::save_folder>, {.flag = "--journal-save", .group = OptionGroup::observability, .type = "DIR",
     .help = "Folder for saved journals of --journal-memory (default: --journal)"}},
});

inline constexpr auto kEngineOptions = std::to_array<Option<EngineOptions>>({
    {member<&EngineOptions::mmproj>, {.flag = "--mmproj", .group = OptionGroup::model, .type = "FILE",
     .help = "GGUF file of the image encoder that belongs to a GGUF model; the converter of llama.cpp calls it mmproj (SmolVLM, Gemma "
             "3, Qwen2-VL, Qwen2.5-VL)"}},
    {member<&EngineOptions::served_model_name>, {.flag = "--served-model-name", .group = OptionGroup::model,
     .help = "Model name in the API (default: the name of the file or folder)"}},
    {member<&EngineOptions::draft_model>, {.flag = "--speculative-model", .group = OptionGroup::speculation, .type = "MODEL",
     .help = "Draft model (GGUF file or Hugging Face folder) with the same vocabulary. It proposes up to --num-speculative-tokens draft "
             "tokens per step, as many as save time; the output stays bit-identical"}},
    {member<&EngineOptions::step_time_target_ms>, {.flag = "--step-time-target", .group = OptionGroup::scheduling, .type = "MS",
     .range = OptionRange{0, 60'000},
     .help = "Target time of a step in milliseconds while requests decode. Prompts are computed in chunks that fit (docs/long_prompts.md). "
             "The output stays bit-identical. 0: no limit (serve: default 100)", .note = "100 in `quire serve`"}},
    {member<&EngineOptions::max_num_queued_reqs>, {.flag = "--max-num-queued-reqs", .group = OptionGroup::scheduling,
     .help = "Maximum number of open requests, running or waiting; further requests get status 503, as in vLLM. 0: no limit"}},
    {member<&EngineOptions::max_num_queued_tokens>, {.flag = "--max-num-queued-tokens", .group = OptionGroup::scheduling,
     .help = "Maximum number of prompt tokens of requests that have no first token yet. At this number, new requests get status 503, as in "
             "vLLM. 0: no limit"}},
    {member<&EngineOptions::max_ttft_ms>, {.flag = "--max-ttft", .group = OptionGroup::scheduling, .type = "MS",
     .range = OptionRange{0, 3'600'000},
     .help = "Reject a request (status 429, with Retry-After) if its first token is predicted to take longer than this many milliseconds "
             "because of the prompts before it. 0: no limit"}},
    {member<&EngineOptions::max_fork_family>, {.flag = "--max-forks", .field = "max_fork_family", .group = OptionGroup::scheduling,
     .help = "Maximum number of open requests that descend from one request by forks, including that request"}},
    {member<&EngineOptions::num_threads>, {.flag = "--threads", .field = "num_threads", .range = OptionRange{0, kMaxThreads},
     .help = "Number of compute threads; 0: one per core available to the process (affinity, CPU quota)"}},
    {member<&EngineOptions::seed>, {.flag = "--seed", .help = "Sampling seed for requests that do not set a seed (default 0)"}},
    {member<&EngineOptions::activations>, {.flag = "--activations",
     .help = "Data type of activations that are multiplied with 4- to 8-bit weights: int16, int8 (faster, less accurate) or f32. bf16: "
             "multiply bf16 weights with bf16 activations, which is faster and less accurate than floats (default int16)"}},
    {member<&EngineOptions::isa>, {.flag = "--isa",
     .help = "Instruction set of the compute kernels: best (the fastest that the CPU supports), reference, avx2, avx_vnni, avx512, "
             "avx512_bf16 or amx (x86), neon or neon_i8mm (ARM) (default best)"}},
});

inline constexpr auto kLoadFailureOptions = std::to_array<Option<EngineOptions>>({
    {member<&EngineOptions::kv_load_failure>, {.flag = "--kv-load-failure-policy", .group = OptionGroup::tiers,
     .help = "Handling of requests whose blocks could not be loaded. recompute: compute their tokens; fail: end them with an error "
             "(default recompute)"}},
});

inline constexpr auto kObservationOptions = std::to_array<Option<EngineOptions>>({
    {member<&EngineOptions::explained_requests>, {.flag = "--explained-requests", .group = OptionGroup::observability,
     .range = OptionRange{0, 1'000'000},
     .help = "Number of finished requests for which GET /v1/requests/ID/explain still reports waits, cache misses and preemptions; 0: "
             "off, and causes are not counted"}},
    {member<&EngineOptions::curve_blocks>, {.flag = "--curve-blocks", .group = OptionGroup::observability,
     .range = OptionRange{0, 1'000'000},
     .help = "Number of blocks whose reuse is tracked, 28 bytes each, so that GET /v1/cache/curve can predict the hit rate of other KV "
             "cache sizes; 0: off"}},
});

inline constexpr auto kTenantOptions = std::to_array<Option<EngineOptions>>({
    {member<&EngineOptions::max_tenant_waiting>, {.flag = "--max-tenant-waiting", .group = OptionGroup::security,
     .help = "Maximum number of waiting requests of one tenant; further requests get status 429 (default with tenant keys: an even share "
             "of --max-num-waiting, at least 128; else --max-num-waiting)"}},
});

inline constexpr auto kKvDramOptions = std::to_array<Option<KvDramOptions>>({
    {member<&KvDramOptions::bytes>, {.flag = "--kv-dram", .group = OptionGroup::tiers, .kind = OptionKind::bytes,
     .help = "Size of a host memory tier for KV blocks, for a KV cache on a device. If the KV cache is in host memory, a larger "
             "--kv-cache-memory uses the memory better (default: no tier)"}},
    {member<&KvDramOptions::eviction_policy>, {.flag = "--kv-dram-policy", .group = OptionGroup::tiers, .needs = "--kv-dram",
     .help = "Eviction policy of --kv-dram; same values as --kv-disk-policy"}},
});

inline constexpr auto kKvDiskOptions = std::to_array<Option<KvDiskOptions>>({
    {member<&KvDiskOptions::folder>, {.flag = "--kv-disk", .group = OptionGroup::tiers, .type = "DIR",
     .help = "Folder of a disk tier for KV blocks. Prompts reuse blocks that were evicted from memory or computed by an earlier run, "
             "also with sliding windows. One model and one process per folder; docs/tiers.md"}},
    {member<&KvDiskOptions::budget_bytes>, {.flag = "--kv-disk-budget", .group = OptionGroup::tiers, .kind = OptionKind::bytes,
     .needs = "--kv-disk",
     .help = "Maximum size of the folder, reserved at start if the file system supports it (default auto: a quarter of the free space "
             "including the folder's present files, at most 64GiB)"}},
    {member<&KvDiskOptions::eviction_policy>, {.flag = "--kv-disk-policy", .group = OptionGroup::tiers, .needs = "--kv-disk",
     .help = "Eviction policy of --kv-disk: lru, arc (as in vLLM), arc_paper (ARC as published), s3fifo, or a policy of a "
             "--kv-connector-library"}},
    {member<&KvDiskOptions::write_through>, {.flag = "--kv-disk-write-through", .group = OptionGroup::tiers, .needs = "--kv-disk",
     .help = "With --kv-dram: store each full block in both tiers (default: in host memory first, and on disk before it is evicted "
             "there; with --kv-policy exact always in both)"}},
    {member<&KvDiskOptions::bytes_per_second>, {.flag = "--kv-disk-bandwidth", .group = OptionGroup::tiers, .kind = OptionKind::bytes,
     .needs = "--kv-disk", .help = "Maximum read rate and maximum write rate of the folder, in bytes per second (default 0: no limit)"}},
});

inline constexpr auto kKvRemoteOptions = std::to_array<Option<KvRemoteOptions>>({
    {member<&KvRemoteOptions::address>, {.flag = "--kv-remote", .group = OptionGroup::tiers, .type = "URL", .env = "QUIRE_KV_REMOTE",
     .help = "URL of a store for KV blocks that several servers share: redis://[user:password@]host[:port][/database], rediss:// for "
             "TLS, or unix:///path. Redis, Redis Cluster or a compatible store; docs/tiers.md"}},
    {member<&KvRemoteOptions::key_file>, {.flag = "--kv-remote-key", .group = OptionGroup::tiers, .type = "FILE", .needs = "--kv-remote",
     .help = "File with at least 16 random bytes, the same on all servers that share the store. Blocks stored without this key are "
             "ignored. Required unless the store is on this machine"}},
    {member<&KvRemoteOptions::ca_file>, {.flag = "--kv-remote-ca", .group = OptionGroup::tiers, .type = "FILE", .needs = "--kv-remote",
     .help = "File with CA certificates (PEM) that verify a rediss:// store (default: the certificates of the system)"}},
    {member<&KvRemoteOptions::budget_bytes>, {.flag = "--kv-remote-budget", .group = OptionGroup::tiers, .kind = OptionKind::bytes,
     .needs = "--kv-remote",
     .help = "Maximum size of the blocks that this server stores in --kv-remote, and of the blocks of other servers that it tracks "
             "(default auto: 16GiB)"}},
    {member<&KvRemoteOptions::ttl_s>, {.flag = "--kv-remote-ttl", .group = OptionGroup::tiers, .needs = "--kv-remote",
     .help = "Seconds after which the store deletes a block that no server has stored or loaded again"}},
});

inline constexpr auto kKvPeerOptions = std::to_array<Option<KvPeerOptions>>({
    {member<&KvPeerOptions::role>, {.flag = "--kv-role", .group = OptionGroup::tiers,
     .help = "Role in disaggregated prefill, for requests with the kv_transfer_params of vLLM. producer: compute prompts and keep their "
             "KV blocks for other servers. consumer: load these blocks and continue. both: do both. none: reject such requests (default "
             "none); docs/disaggregation.md"}},
    {member<&KvPeerOptions::host>, {.flag = "--kv-host", .group = OptionGroup::tiers, .needs = "--kv-role",
     .help = "Address of this machine on which a producer offers its KV blocks; it is reported to consumers"}},
    {member<&KvPeerOptions::port>, {.flag = "--kv-port", .group = OptionGroup::tiers, .needs = "--kv-role",
     .help = "Port on which a producer offers its KV blocks; 0: any free port"}},
    {member<&KvPeerOptions::lease_s>, {.flag = "--kv-lease", .group = OptionGroup::tiers, .needs = "--kv-role",
     .help = "Seconds for which a producer keeps the blocks of a request that no consumer loads"}},
    {member<&KvPeerOptions::producers>, {.flag = "--kv-producers", .group = OptionGroup::tiers, .type = "HOST[:PORT][,...]",
     .separated_by_commas = true,
     .help = "Servers that a consumer may load from, as their --kv-host and --kv-port (without PORT: any port). Requests that name "
             "another server are rejected (default: none)"}},
});

inline constexpr auto kKvPeerCacheOptions = std::to_array<Option<KvPeerCacheOptions>>({
    {member<&KvPeerCacheOptions::peers>, {.flag = "--kv-peers", .group = OptionGroup::tiers, .type = "HOST:PORT[,...]",
     .separated_by_commas = true,
     .help = "Addresses (--kv-share) of at most 16 servers of the same model that are asked for missing KV blocks. Blocks that do not "
             "arrive in time are computed; docs/tiers.md"}},
    {member<&KvPeerCacheOptions::share>, {.flag = "--kv-share", .group = OptionGroup::tiers, .type = "HOST:PORT",
     .help = "Address on which this server offers the KV blocks in --kv-dram to other servers. Any address other than loopback requires "
             "--kv-key; port 0: any free port"}},
});

// Fields of the JSON object of --kv-events-config.
inline constexpr auto kKvEventsOptions = std::to_array<Option<KvEventsOptions>>({
    {member<&KvEventsOptions::enable_kv_cache_events>, {.field = "enable_kv_cache_events"}},
    {member<&KvEventsOptions::publisher>, {.field = "publisher"}},
    {member<&KvEventsOptions::endpoint>, {.field = "endpoint"}},
    {member<&KvEventsOptions::replay_endpoint>, {.field = "replay_endpoint"}},
    {member<&KvEventsOptions::buffer_steps>, {.field = "buffer_steps", .range = OptionRange{0, 10'000'000}}},
    {member<&KvEventsOptions::hwm>, {.field = "hwm", .range = OptionRange{0, 10'000'000}}},
    {member<&KvEventsOptions::max_queue_size>, {.field = "max_queue_size", .range = OptionRange{1, 10'000'000}}},
    {member<&KvEventsOptions::topic>, {.field = "topic"}},
    {member<&KvEventsOptions::use_int_block_hashes>, {.field = "use_int_block_hashes"}},
    {member<&KvEventsOptions::format>, {.field = "format"}},
});
// clang-format on

// Calls `visit` with each table of an engine's options and the function that returns its struct. The function's argument has a member for
// each struct of EngineBuilder, as quire.EngineConfig has.
template <class Visit>
constexpr void visit_engine_options(const Visit& visit) {
  visit(kCacheOptions, [](auto& all) -> auto& { return all.engine.cache; });
  visit(kCacheMetricsOptions, [](auto& all) -> auto& { return all.engine.cache; });
  visit(kSchedulerOptions, [](auto& all) -> auto& { return all.engine.scheduler; });
  visit(kContinuumOptions, [](auto& all) -> auto& { return all.engine.continuum; });
  visit(kPressureOptions, [](auto& all) -> auto& { return all.engine.pressure; });
  visit(kKvSwapOptions, [](auto& all) -> auto& { return all.engine.kv_swap; });
  visit(kNgramOptions, [](auto& all) -> auto& { return all.engine.speculation; });
  visit(kAdapterOptions, [](auto& all) -> auto& { return all.engine.adapters; });
  visit(kWeightsOptions, [](auto& all) -> auto& { return all.engine.weights; });
  visit(kTraceOptions, [](auto& all) -> auto& { return all.engine.trace; });
  visit(kJournalOptions, [](auto& all) -> auto& { return all.engine.journal; });
  visit(kSavedJournalOptions, [](auto& all) -> auto& { return all.engine.journal; });
  visit(kEngineOptions, [](auto& all) -> auto& { return all.engine; });
  visit(kLoadFailureOptions, [](auto& all) -> auto& { return all.engine; });
  visit(kObservationOptions, [](auto& all) -> auto& { return all.engine; });
  visit(kTenantOptions, [](auto& all) -> auto& { return all.engine; });
  visit(kKvDramOptions, [](auto& all) -> auto& { return all.kv_dram; });
  visit(kKvDiskOptions, [](auto& all) -> auto& { return all.kv_disk; });
  visit(kKvRemoteOptions, [](auto& all) -> auto& { return all.kv_remote; });
}
// Calls `visit` with the tables of options for exchanging blocks with other servers. Python does not have these options.
template <class Visit>
constexpr void visit_peer_options(const Visit& visit) {
  visit(kKvPeerOptions, [](auto& all) -> auto& { return all.kv_peer; });
  visit(kKvPeerCacheOptions, [](auto& all) -> auto& { return all.kv_peer_cache; });
}

// Returns the flag of the option that errors of the engine call `field`; empty: the option has no flag. In errors of the core, `field`
// begins with the name of the group, as in "continuum.pin_s".
inline std::string_view flag_of(std::string_view field) {
  std::string_view found;
  const auto search = [&](const auto& table, const auto& /*struct_of*/, std::string_view group = "") {
    if (!found.empty() || field.empty() || !field.starts_with(group)) return;
    const std::string_view name = field.substr(group.size());
    for (const auto& [value, info] : table)
      if (!info.flag.empty() && (name == info.field || name == keyword_of(info.flag))) found = info.flag;
  };
  visit_engine_options(search);
  visit_peer_options(search);
  visit_core_options(search);
  return found;
}

}  // namespace quire
