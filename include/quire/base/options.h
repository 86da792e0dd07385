#pragma once
// Options of the engine: every limit, with its unit and default. Values, copied where they are used. They are checked when an engine is
// built, and an error names the field. 0 often means "choose a value": Engine::options() then returns the chosen one.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/hash_algorithm.h"
#include "quire/base/kv_spec.h"

namespace quire {

// Element type of KV pages. int8: codes of -127 .. 127, and one float scale per token and head.
enum class KvDtype : std::uint8_t { bf16, f32, int8 };

// Returns the bytes of one element.
constexpr std::uint32_t element_bytes(KvDtype dtype) {
  return dtype == KvDtype::f32 ? 4 : dtype == KvDtype::bf16 ? 2 : 1;
}
// Returns the elements that a head keeps of one token: head_dim, and with int8 also the bytes of the float scale after them.
constexpr std::uint32_t row_elements(KvDtype dtype, std::uint32_t head_dim) {
  return head_dim + (dtype == KvDtype::int8 ? std::uint32_t{sizeof(float)} : 0);
}
// Returns the type as the core's specs have it, with PyTorch's name.
inline CacheDtype cache_dtype_of(KvDtype dtype) {
  return {dtype == KvDtype::f32 ? "float32" : dtype == KvDtype::bf16 ? "bfloat16" : "int8", element_bytes(dtype)};
}
// Returns quire's name of the type.
constexpr const char* name_of(KvDtype dtype) {
  return dtype == KvDtype::f32 ? "f32" : dtype == KvDtype::bf16 ? "bf16" : "int8";
}

// How weights are multiplied with activations. Weights of 4 to 8 bits use floats, or integer dot products with codes of 16 or 8 bits,
// scaled per 32 values. Weights in bf16 use floats, or in mode bf16, activations that are rounded to bf16. That mode is for models with
// such weights. With int8 and bf16, attention over a bf16 cache also rounds queries and attention weights to bf16.
enum class ActivationMode : std::uint8_t { int16, f32, int8, bf16 };

// Instruction set of the kernels. `best` is the fastest that this processor has. The engine refuses a set that the processor does not have.
// `reference` is plain C++, for comparison. Within a processor family, later sets are faster: avx2, avx_vnni (multiplies bytes without
// AVX-512, as on laptops), avx512 (requires VNNI), avx512_bf16 and amx; on ARM neon (requires its dot products) and neon_i8mm.
enum class KernelIsa : std::uint8_t { best, reference, avx2, avx_vnni, avx512, avx512_bf16, amx, neon, neon_i8mm };

// Options of the KV cache.
struct CacheOptions {
  std::uint32_t block_size = 16;                          // tokens per block; more where a state must fit into one block
  std::uint32_t num_blocks = 0;                           // null block included; 0: as many as kv_cache_bytes hold
  std::uint64_t kv_cache_bytes = std::uint64_t{1} << 30;  // 0: a share of the memory that the weights leave free
  KvDtype dtype = KvDtype::bf16;
  bool enable_prefix_caching = true;
  // States to keep, for models with layers that have states. nullopt: `none` without prefix caching. With it, `all` if a state is no larger
  // than the keys and values of a block, else `align`.
  std::optional<MambaCacheMode> mamba_cache_mode;
  HashAlgorithm hash = HashAlgorithm::canonical;
  std::string hash_seed;          // servers with equal seeds and algorithms compute equal block hashes (vLLM's PYTHONHASHSEED)
  bool lifo_free_blocks = false;  // reuse the most recently freed block first: hotter in CPU caches, but prefixes are evicted sooner
  // Measures how long blocks stay in the cache and how long they stay unused, on a share of allocated blocks (EngineStats::kv_residency).
  bool kv_cache_metrics = false;
  double kv_cache_metrics_sample = 0.01;  // share of allocated blocks; above 0, at most 1
  bool count_common_prefix = false;       // see ReportOptions
};

// Order in which waiting requests are admitted and running requests are preempted. continuum: schedules the turns of an agent's job
// together, first come first served by job; the blocks of a turn stay while its tool runs.
enum class SchedulingPolicy : std::uint8_t { fcfs, priority, continuum };

// Options of SchedulingPolicy::continuum. The defaults are as in the vLLM fork that the policy comes from. The flags fix the fork's errors.
struct ContinuumOptions {
  double pin_s = 2.0;              // how long the blocks of a turn stay after its end
  double longest_tool_s = 2.0;     // no blocks stay for a tool with a longer mean time
  std::uint32_t max_jobs = 65536;  // jobs remembered between turns; the least recently used one is forgotten
  std::uint32_t max_tools = 4096;  // tools with remembered times
  // If blocks are missing, pins end before a request is preempted, or waits while no request runs. The oldest expiry ends first.
  bool pins_give_way = false;
  bool pins_end_with_job = false;  // a job's pin ends with its last step, with an aborted or failed turn, and at a reset of the cache
  bool jobless_in_order = false;   // a request without a job enters when it is added; false: any job goes before it

  friend bool operator==(const ContinuumOptions&, const ContinuumOptions&) = default;
};

// Options of the scheduler.
struct SchedulerOptions {
  std::uint32_t max_num_seqs = 128;                // requests in the running batch
  std::uint32_t max_num_batched_tokens = 2048;     // token budget of one step
  std::uint32_t max_model_len = 0;                 // prompt and output tokens; 0: the model's context, or what the cache holds if less
  std::uint32_t long_prefill_token_threshold = 0;  // most prompt tokens of a request per step; 0: no limit
  std::uint32_t max_num_waiting = 1024;            // new waiting requests; open ones are at most max_num_seqs more; else `overloaded`
  bool enable_chunked_prefill = true;
  bool reserve_full_isl = true;  // admit only when the whole input fits (vLLM: scheduler_reserve_full_isl)
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  // Only in quire. While several tenants (RequestTags::tenant) have requests, the tenant with the fewest rows is admitted next. If no row
  // is free, it takes one from a tenant that has at least two rows more. Prompts of one tenant leave others their share of a step's tokens.
  bool tenant_turns = false;
  bool async_scheduling = true;            // plan step N+1 while step N runs
  std::uint32_t max_in_flight_tokens = 0;  // most tokens of all plans in flight; 0: no bound (DecisionRules::admission_capped_by_window)
  bool admit_oversized = false;            // accept requests that can never run, as vLLM's scheduler does (its front end checks them)

  friend bool operator==(const SchedulerOptions&, const SchedulerOptions&) = default;
};

// How full the KV cache may be when requests are admitted. Values are shares of its blocks, without the null block. Only referenced blocks
// count: a cached block that no request holds is free. The defaults are vLLM's: a request that finds enough blocks is admitted.
struct PressureOptions {
  double admission_watermark = 0.0;  // share of blocks that an admission leaves free
  // Above `pressure_high` no request is admitted until the share is below `pressure_low`; both 0: off. Requests that hold loaded blocks are
  // admitted all the same. While no request runs or loads, any request that fits is admitted, whatever the watermark.
  double pressure_high = 0.0, pressure_low = 0.0;
  // Above `pressure_high` requests are also preempted, in the policy's order, until the share is that or less, or one request runs.
  bool pressure_preempts = false;

  friend bool operator==(const PressureOptions&, const PressureOptions&) = default;
};

// Which preempted requests keep their computed blocks, outside of the cache. All others compute them again.
enum class SwapChoice : std::uint8_t {
  off,
  always,   // all requests that find free slots
  measured  // requests with blocks that move out and back faster than they are computed again (SwapCosts)
};

// Options of the trace: a record of each scheduler step, in files (docs/trace.md).
struct TraceOptions {
  std::string path;                                       // PATH.steps.jsonl and PATH.requests.jsonl; empty: off
  std::uint32_t every = 1;                                // only every n-th step
  std::uint64_t max_steps = 0;                            // most steps in the trace; 0: no limit
  std::uint64_t max_file_bytes = std::uint64_t{1} << 28;  // a full file becomes FILE.1, and the one before FILE.2, ...
  std::uint32_t max_files = 4;                            // of each kind; the oldest is removed
};

// Options of the journal: the calls of the scheduler and a digest of its decisions, for `quire replay` (docs/journal.md).
struct JournalOptions {
  std::string folder = {};  // each start begins a new file here; empty: no files
  // Limit of all journals in the folder. The oldest are removed first.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  // Memory for the last minutes of the journal, which Engine::save_journal() writes to a file. 0: they are not kept.
  std::uint64_t memory_bytes = std::uint64_t{32} << 20;
  std::string save_folder = {};  // folder of saved journals; empty: `folder`
  bool tokens = true;            // false: the contents of prompts and answers are left out (docs/journal.md)
};

// Options for publishing which blocks the KV cache holds: vLLM's KVEventsConfig, with its names (docs/events.md).
struct KvEventsOptions {
  bool enable_kv_cache_events = false;
  std::string publisher = "zmq";  // or "null": events are not published
  // Addresses of ZeroMQ. An endpoint of this machine is bound. An endpoint of another machine, or after a ">", is connected to: a router
  // has bound it.
  std::string endpoint = "tcp://127.0.0.1:5557";
  std::string replay_endpoint;             // empty: subscribers cannot ask for batches that they missed
  std::uint32_t buffer_steps = 10'000;     // batches kept for replay, at most 64 MiB of them
  std::uint32_t hwm = 100'000;             // batches that wait for one subscriber; further ones are dropped for this subscriber
  std::uint32_t max_queue_size = 100'000;  // batches that wait to be sent; further ones are dropped for all subscribers
  std::string topic;
  bool use_int_block_hashes = true;  // publish the last eight bytes of a block hash, as a number (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)
  std::string format = "0.19.0";     // vLLM version of the wire format, or "0.32.0"; a reader of one cannot read the other

  // Returns true if events are published.
  [[nodiscard]] bool is_on() const { return enable_kv_cache_events && publisher != "null"; }
};

// Memory and files for the blocks of preempted requests, in addition to the KV cache (SwapOptions).
struct KvSwapOptions {
  std::uint64_t bytes = 0;  // 0: no memory; without a folder either, preempted requests are computed again
  SwapChoice choice = SwapChoice::measured;
  // Folder for files in "quire-swap", used if the memory is full or 0. The files are removed with the engine. Empty: no files.
  std::string folder = {};
  std::uint64_t folder_bytes = std::uint64_t{4} << 30;  // most bytes of these files, as `du` counts them

  [[nodiscard]] bool is_on() const { return bytes > 0 || !folder.empty(); }
};

// Speculative decoding with draft tokens from the prompt and the answer so far (vLLM's method "ngram", with its names). The last tokens are
// looked up there, and the tokens that followed them are computed along with the next token. This changes the speed of answers, but no bit
// of them.
struct NgramOptions {
  std::uint32_t num_speculative_tokens = 0;  // draft tokens per step; 0: off, or 4 with EngineOptions::draft_model
  // Tokens that must match: as many as possible up to prompt_lookup_max, and at least prompt_lookup_min.
  std::uint32_t prompt_lookup_min = 5, prompt_lookup_max = 5;

  friend bool operator==(const NgramOptions&, const NgramOptions&) = default;
};

// A LoRA adapter: the name that requests give, and its folder in PEFT's format.
struct AdapterModule {
  std::string name, path;

  friend bool operator==(const AdapterModule&, const AdapterModule&) = default;
};

// Options of LoRA adapters (docs/lora.md), with vLLM's names.
struct AdapterOptions {
  std::uint32_t max_loras = 0;       // adapters in one step; 0: no adapter is served
  std::uint32_t max_lora_rank = 16;  // largest rank of an adapter: 1, 8, 16, 32, 64, 128, 256, 320 or 512
  // Most adapters with weights in memory; at least max_loras. Adapters that open requests name stay in memory, also while the requests
  // wait. 0: the largest of max_loras, the number of modules, and 4.
  std::uint32_t max_cpu_loras = 0;
  std::vector<AdapterModule> modules;  // adapters that are loaded at the start

  [[nodiscard]] bool is_on() const { return max_loras > 0; }
};

// How requests are treated if a tier or connector could not load their blocks (vLLM's kv_load_failure_policy).
enum class KvLoadFailurePolicy : std::uint8_t {
  fail,      // they end with an error
  recompute  // their tokens are computed again
};

// How float matrices of a decoder are quantised, if their columns are a multiple of 32. Routers, convolutions and quantised matrices stay
// as they are.
enum class WeightQuantisation : std::uint8_t {
  none,
  q8_0,  // 8 bits, one scale per 32 columns
  q4_k,  // 4 bits, a scale and a minimum per 32 columns; matrices of the vocabulary have 8 bits
};

// How weights are packed for the kernels, and where they are kept.
struct WeightsOptions {
  WeightQuantisation quantise = WeightQuantisation::none;
  // Folder of cached packed weights, one file per model. The next start reads the file instead of packing the model again. Empty: no cache.
  // Write access to the folder is enough to change the weights that are served.
  std::string cache_folder;
  std::uint64_t cache_bytes = std::uint64_t{64} << 30U;  // limit of all files in the folder; the least recently used are removed
  // Memory for the routed experts of a mixture of experts (MoE). The other experts are read from the folder when they are needed. 0: all
  // experts are in memory. If there is a folder and they do not fit, 0 means half of the memory that the other weights leave.
  std::uint64_t expert_bytes = 0;
};

// All options of an engine.
struct EngineOptions {
  std::string model;              // a GGUF file or a Hugging Face folder
  std::string mmproj;             // for a GGUF file: the GGUF file of its image encoder, as llama.cpp's converter makes it; empty: none
  std::string served_model_name;  // empty: the name of the file or folder
  CacheOptions cache;
  SchedulerOptions scheduler;
  PressureOptions pressure;
  KvSwapOptions kv_swap;
  // Enables the three fixes of the fork's errors.
  ContinuumOptions continuum{.pins_give_way = true, .pins_end_with_job = true, .jobless_in_order = true};
  // Longest time that a step should take while requests decode, at least twice the time of their decodes. Prompts are cut to fit. 0: no
  // limit.
  std::uint32_t step_time_target_ms = 0;
  // vLLM's limits of open requests, and of prompt tokens of requests without a first token. Further requests are refused (`unavailable`).
  // 0: no limit.
  std::uint32_t max_num_queued_reqs = 0;
  std::uint32_t max_num_queued_tokens = 0;
  // Longest predicted time until the first token, in milliseconds. A request that prompts before it would delay beyond is refused
  // (`overloaded`).
  std::uint32_t max_ttft_ms = 0;
  std::uint32_t max_fork_family = 256;  // open requests that descend by forks from one request, including that request
  // Limit of the new waiting requests of one tenant (RequestTags::tenant). 0: SchedulerOptions::max_num_waiting.
  std::uint32_t max_tenant_waiting = 0;
  KvLoadFailurePolicy kv_load_failure = KvLoadFailurePolicy::recompute;
  NgramOptions speculation;
  // A smaller model of the same vocabulary, a GGUF file or a Hugging Face folder. It proposes the draft tokens instead of a look-up: at
  // most num_speculative_tokens (0: 4), and fewer or none where they do not pay off. Empty: none.
  std::string draft_model;
  AdapterOptions adapters;
  WeightsOptions weights;
  ActivationMode activations = ActivationMode::int16;
  KernelIsa isa = KernelIsa::best;
  std::uint32_t num_threads = 0;  // 0: one per core that the process may use
  std::uint64_t seed = 0;         // for requests without a seed
  TraceOptions trace;
  // Ended requests that explain() still knows, about 1 KiB each. 0: explain() knows no request, and nothing is remembered of blocks.
  std::uint32_t explained_requests = 1000;
  // Block hashes that are followed for cache_curve() (CurveOptions::max_tracked), 28 bytes each. 0: there is no curve.
  std::uint32_t curve_blocks = 131072;
  JournalOptions journal;
  KvEventsOptions kv_events;
};

}  // namespace quire
