#pragma once
// Options of the engine: every limit with its unit and default. Values, which are copied where they are used. They are checked when an
// engine is built, and an error names the field. 0 often means "choose a value"; Engine::options() then returns the chosen value.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/hash_algorithm.h"
#include "quire/base/kv_spec.h"

namespace quire {

// Element type of KV pages. int8: codes from -127 to 127, and one float scale per token and head.
enum class KvDtype : std::uint8_t { bf16, f32, int8 };

// Returns the size of one element in bytes.
constexpr std::uint32_t element_bytes(KvDtype dtype) {
  return dtype == KvDtype::f32 ? 4 : dtype == KvDtype::bf16 ? 2 : 1;
}
// Returns the number of elements that a head stores per token: head_dim, and with int8 also the bytes of the float scale after the codes.
constexpr std::uint32_t row_elements(KvDtype dtype, std::uint32_t head_dim) {
  return head_dim + (dtype == KvDtype::int8 ? std::uint32_t{sizeof(float)} : 0);
}
// Returns the type for the core's cache specs, with PyTorch's name.
inline CacheDtype cache_dtype_of(KvDtype dtype) {
  return {dtype == KvDtype::f32 ? "float32" : dtype == KvDtype::bf16 ? "bfloat16" : "int8", element_bytes(dtype)};
}
// Returns quire's name of the type.
constexpr const char* name_of(KvDtype dtype) {
  return dtype == KvDtype::f32 ? "f32" : dtype == KvDtype::bf16 ? "bf16" : "int8";
}

// How weights are multiplied with activations.
// Weights of 4 to 8 bits: as floats (f32), or as integers with activation codes of 16 bits (int16) or 8 bits (int8), scaled per 32 values.
// Weights in bf16: as floats, or with activations rounded to bf16 (bf16, only for models with bf16 weights).
// With int8 and bf16, attention over a bf16 cache also rounds queries and attention weights to bf16.
enum class ActivationMode : std::uint8_t { int16, f32, int8, bf16 };

// Instruction set of the kernels. `best` is the fastest set that this processor supports, and `reference` is plain C++, for comparison. The
// engine rejects a set that the processor does not support. Within a processor family, later sets are faster:
// x86: avx2; avx_vnni (multiplies bytes without AVX-512, as on laptops); avx512 (requires VNNI); avx512_bf16; amx.
// ARM: neon (requires the dot-product instructions); neon_i8mm.
enum class KernelIsa : std::uint8_t { best, reference, avx2, avx_vnni, avx512, avx512_bf16, amx, neon, neon_i8mm };

// Options of the KV cache.
struct CacheOptions {
  std::uint32_t block_size = 16;                          // tokens per block; increased if a state must fit into one block
  std::uint32_t num_blocks = 0;                           // includes the null block; 0: as many as fit into kv_cache_bytes
  std::uint64_t kv_cache_bytes = std::uint64_t{1} << 30;  // 0: four fifths of the memory that weights, swap and tiers leave
  KvDtype dtype = KvDtype::bf16;
  bool enable_prefix_caching = true;
  // Which states to cache, for models with layers that have states. nullopt: without prefix caching, `none`. With prefix caching, `align`
  // if a state is larger than the keys and values of a block, and a step has room for a block and one token of each other request;
  // otherwise `all`.
  std::optional<MambaCacheMode> mamba_cache_mode;
  HashAlgorithm hash = HashAlgorithm::canonical;
  std::string hash_seed;          // servers with equal seeds and algorithms compute equal block hashes (vLLM's PYTHONHASHSEED)
  bool lifo_free_blocks = false;  // reuse the most recently freed block first: more hits in CPU caches, but earlier eviction of prefixes
  double slru_share = 0.0;        // blocks that were reused stay longer, up to this share of all blocks (segmented LRU); 0: LRU
  double retained_share = 0.0;    // blocks that requests ask to keep (RequestTags::retention_s) stay longer, up to this share of all blocks
  // Measures how long blocks stay in the cache, and how long they stay unused, for a sample of allocated blocks
  // (EngineStats::kv_residency).
  bool kv_cache_metrics = false;
  double kv_cache_metrics_sample = 0.01;  // fraction of allocated blocks in the sample; above 0, at most 1
  bool count_common_prefix = false;       // see ReportOptions
};

// Order in which waiting requests are admitted and running requests are preempted. continuum: requests (turns) of one agent's job are
// scheduled together, the job that came first is served first, and the blocks of a turn stay in the cache while the turn's tool runs.
enum class SchedulingPolicy : std::uint8_t { fcfs, priority, continuum };

// Options of SchedulingPolicy::continuum. The defaults are as in the vLLM fork in which the policy was published. The three flags fix
// errors of that fork.
struct ContinuumOptions {
  double pin_s = 2.0;              // seconds for which the blocks of a turn stay after its end
  double longest_tool_s = 2.0;     // blocks do not stay for a tool with a longer mean time, in seconds
  std::uint32_t max_jobs = 65536;  // number of jobs remembered between turns; the least recently used job is forgotten
  std::uint32_t max_tools = 4096;  // number of tools whose times are remembered
  // If blocks are missing, pins end before a request is preempted, or waits while no request runs. The pin that expires first ends first.
  bool pins_give_way = false;
  bool pins_end_with_job = false;  // a job's pin ends with the job's last step, with an aborted or failed turn, and at a reset of the cache
  bool jobless_in_order = false;   // a request without a job is ordered by its time of arrival; false: requests of jobs go before it

  friend bool operator==(const ContinuumOptions&, const ContinuumOptions&) = default;
};

// Options of the scheduler.
struct SchedulerOptions {
  std::uint32_t max_num_seqs = 128;                // requests in the running batch
  std::uint32_t max_num_batched_tokens = 2048;     // token budget of one step
  std::uint32_t max_model_len = 0;                 // prompt and output tokens; 0: the model's context, or less if the cache holds less
  std::uint32_t long_prefill_token_threshold = 0;  // maximum prompt tokens of a request per step; 0: no limit
  std::uint32_t max_num_waiting = 1024;            // new requests that wait; at most max_num_seqs more may be open; beyond: `overloaded`
  bool enable_chunked_prefill = true;
  bool reserve_full_isl = true;  // admit a request only when its whole input fits (vLLM: scheduler_reserve_full_isl)
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  // Shares batch rows and prompt tokens between tenants (RequestTags::tenant); vLLM has no such option. While several tenants have
  // requests, the tenant with the fewest batch rows is admitted next. If no row is free, that tenant takes a row from a tenant that has at
  // least two rows more. The prompts of one tenant leave a share of each step's tokens to the others. Background requests
  // (RequestTags::is_background) run on what all other requests leave.
  bool tenant_turns = false;
  bool async_scheduling = true;            // plan step N+1 while step N runs
  std::uint32_t max_in_flight_tokens = 0;  // maximum tokens of all plans in flight; 0: no limit (DecisionRules::admission_capped_by_window)
  bool admit_oversized = false;            // accept requests that can never run, as vLLM's scheduler does (its front end rejects them)

  friend bool operator==(const SchedulerOptions&, const SchedulerOptions&) = default;
};

// Limits of the KV cache usage at which requests are admitted. Values are fractions of the cache's blocks, without the null block. Only
// referenced blocks count: a cached block that no request holds is free. The defaults are vLLM's: a request that finds enough blocks is
// admitted.
struct PressureOptions {
  double admission_watermark = 0.0;  // fraction of blocks that an admission leaves free
  // When usage exceeds `pressure_high`, no request is admitted until usage is below `pressure_low`; both 0: off. Requests that hold loaded
  // blocks are still admitted. While no request runs or loads, any request that fits is admitted, whatever the watermark.
  double pressure_high = 0.0, pressure_low = 0.0;
  // Above `pressure_high`, requests are also preempted, in the policy's order, until usage is at most `pressure_high`, or only one request
  // runs.
  bool pressure_preempts = false;

  friend bool operator==(const PressureOptions&, const PressureOptions&) = default;
};

// Which preempted requests keep their computed blocks, outside of the cache. All other preempted requests compute them again.
enum class SwapChoice : std::uint8_t {
  off,
  always,   // all requests for which slots are free
  measured  // requests whose blocks move out and back faster than they are recomputed (SwapCosts)
};

// Options of the trace: a record of each scheduler step, in files (docs/trace.md).
struct TraceOptions {
  std::string path;                                       // PATH.steps.jsonl and PATH.requests.jsonl; empty: off
  std::uint32_t every = 1;                                // record only every n-th step
  std::uint64_t max_steps = 0;                            // maximum number of steps in the trace; 0: no limit
  std::uint64_t max_file_bytes = std::uint64_t{1} << 28;  // a full file is renamed to FILE.1, FILE.1 to FILE.2, ...
  std::uint32_t max_files = 4;                            // files of each kind; the oldest is removed
};

// Options of the journal: the calls of the scheduler and a digest of its decisions, for `quire replay` (docs/journal.md).
struct JournalOptions {
  std::string folder = {};  // each start begins a new file here; empty: no files
  // Limit of the total size of all journals in the folder. The oldest journals are removed first.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  // Memory in bytes for the last minutes of the journal, which Engine::save_journal() writes to a file. 0: off.
  std::uint64_t memory_bytes = std::uint64_t{32} << 20;
  std::string save_folder = {};  // folder of saved journals; empty: `folder`
  bool tokens = true;            // false: the contents of prompts and answers are left out (docs/journal.md)
};

// Options for publishing which blocks the KV cache holds (docs/events.md). The names are as in vLLM's KVEventsConfig.
struct KvEventsOptions {
  bool enable_kv_cache_events = false;
  std::string publisher = "zmq";  // or "null": events are not published
  // ZeroMQ address. quire binds an endpoint of this machine. It connects to an endpoint of another machine, or one with ">" in front, which
  // a router must have bound.
  std::string endpoint = "tcp://127.0.0.1:5557";
  std::string replay_endpoint;             // empty: subscribers cannot ask for batches that they missed
  std::uint32_t buffer_steps = 10'000;     // batches kept for replay, at most 64 MiB in total
  std::uint32_t hwm = 100'000;             // batches that wait for one subscriber; further batches are dropped for this subscriber
  std::uint32_t max_queue_size = 100'000;  // batches that wait to be sent; further batches are dropped for all subscribers
  std::string topic;
  bool use_int_block_hashes = true;  // publish the last eight bytes of a block hash as a number (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)
  std::string format = "0.19.0";     // wire format of this vLLM version, or of "0.32.0"; a reader of one format cannot read the other

  // Returns true if events are published.
  [[nodiscard]] bool is_on() const { return enable_kv_cache_events && publisher != "null"; }
};

// Options of memory and files for the blocks of preempted requests, in addition to the KV cache (SwapOptions).
struct KvSwapOptions {
  std::uint64_t bytes = 0;  // 0: no memory; if there is no folder either, preempted requests are recomputed
  SwapChoice choice = SwapChoice::measured;
  // Folder in which files in "quire-swap" are used if the memory is full or 0. The files are removed when the engine ends. Empty: no files.
  std::string folder = {};
  std::uint64_t folder_bytes = std::uint64_t{4} << 30;  // maximum size of these files, as `du` counts it

  [[nodiscard]] bool is_on() const { return bytes > 0 || !folder.empty(); }
};

// Options of speculative decoding with draft tokens from the prompt and the answer so far (vLLM's method "ngram", with its names). The last
// tokens are looked up in the earlier text, and the tokens that followed there are computed along with the next token. The speed of answers
// changes, but no bit of them.
struct NgramOptions {
  std::uint32_t num_speculative_tokens = 0;  // maximum draft tokens of a request per step; 0: off, or 4 with EngineOptions::draft_model
  // Number of last tokens that must match: as many as possible, at least prompt_lookup_min and at most prompt_lookup_max.
  std::uint32_t prompt_lookup_min = 5, prompt_lookup_max = 5;

  friend bool operator==(const NgramOptions&, const NgramOptions&) = default;
};

// A LoRA adapter: the name that requests use, and the adapter's folder in PEFT's format.
struct AdapterModule {
  std::string name, path;

  friend bool operator==(const AdapterModule&, const AdapterModule&) = default;
};

// Options of LoRA adapters (docs/lora.md), with vLLM's names.
struct AdapterOptions {
  std::uint32_t max_loras = 0;       // adapters in one step; 0: no adapter is served
  std::uint32_t max_lora_rank = 16;  // maximum rank of an adapter: 1, 8, 16, 32, 64, 128, 256, 320 or 512
  // Maximum number of adapters with weights in memory; at least max_loras. Adapters of open requests stay in memory, also while the
  // requests wait. 0: the largest of max_loras, the number of modules, and 4.
  std::uint32_t max_cpu_loras = 0;
  std::vector<AdapterModule> modules;  // adapters that are loaded at the start

  [[nodiscard]] bool is_on() const { return max_loras > 0; }
};

// Decides what is done with requests whose blocks a tier or connector could not load (vLLM's kv_load_failure_policy).
enum class KvLoadFailurePolicy : std::uint8_t {
  fail,      // the requests end with an error
  recompute  // their tokens are computed again
};

// How float matrices of a decoder are quantized, if their number of columns is a multiple of 32. Routers, convolutions and matrices that
// are quantized already are not changed.
enum class WeightQuantisation : std::uint8_t {
  none,
  q8_0,  // 8 bits, one scale per 32 columns
  q4_k,  // 4 bits, a scale and a minimum per 32 columns; embedding and output matrices have 8 bits
};

// How weights are packed for the kernels, and where they are kept.
struct WeightsOptions {
  WeightQuantisation quantise = WeightQuantisation::none;
  // Folder of cached packed weights, with one file per model. The next start reads the file instead of packing the model again. Empty: no
  // cache. Write access to the folder is enough to change the weights that are served.
  std::string cache_folder;
  std::uint64_t cache_bytes = std::uint64_t{64} << 30U;  // maximum total size of the files in the folder; the least recently used is
                                                         // removed
  // Memory in bytes for the routed experts of a mixture of experts (MoE). Experts that are not in memory are read from the cache folder
  // when they are needed. 0: all experts are in memory; if there is a folder and the experts do not fit, half of the memory that the other
  // weights leave.
  std::uint64_t expert_bytes = 0;
};

// All options of an engine.
struct EngineOptions {
  std::string model;              // a GGUF file or a Hugging Face folder
  std::string mmproj;             // for a GGUF model: the GGUF file of its image encoder, from llama.cpp's converter; empty: none
  std::string served_model_name;  // empty: the name of the file or folder
  CacheOptions cache;
  SchedulerOptions scheduler;
  PressureOptions pressure;
  KvSwapOptions kv_swap;
  // Turns on the three options that fix scheduling errors of the CONTINUUM fork of vLLM.
  ContinuumOptions continuum{.pins_give_way = true, .pins_end_with_job = true, .jobless_in_order = true};
  // Target time of a step in milliseconds while requests decode; at least twice the time of the decodes alone. Prompts are split into
  // chunks that fit. 0: no limit.
  std::uint32_t step_time_target_ms = 0;
  // vLLM's limits of open requests, and of prompt tokens of requests without a first token. Further requests are rejected (`unavailable`).
  // 0: no limit.
  std::uint32_t max_num_queued_reqs = 0;
  std::uint32_t max_num_queued_tokens = 0;
  // Maximum predicted time until the first token, in milliseconds. A request that exceeds this limit because of prompts before it is
  // rejected (`overloaded`). 0: no limit.
  std::uint32_t max_ttft_ms = 0;
  std::uint32_t max_fork_family = 256;  // open requests that descend by forks from one request, including that request
  // Limit of the number of new waiting requests of one tenant (RequestTags::tenant). 0: SchedulerOptions::max_num_waiting.
  std::uint32_t max_tenant_waiting = 0;
  KvLoadFailurePolicy kv_load_failure = KvLoadFailurePolicy::recompute;
  NgramOptions speculation;
  // Draft model: a smaller model with the same vocabulary, as a GGUF file or a Hugging Face folder. It proposes the draft tokens instead of
  // the n-gram look-up: at most num_speculative_tokens (0: 4), and fewer or none if they do not save time. Empty: no draft model.
  std::string draft_model;
  AdapterOptions adapters;
  WeightsOptions weights;
  ActivationMode activations = ActivationMode::int16;
  KernelIsa isa = KernelIsa::best;
  std::uint32_t num_threads = 0;  // 0: one per core that the process may use
  std::uint64_t seed = 0;         // seed for requests without a seed
  TraceOptions trace;
  // Number of ended requests that explain() still knows, about 1 KiB each. 0: explain() is off, and the history of blocks is not recorded.
  std::uint32_t explained_requests = 1000;
  // Number of block hashes that are tracked for cache_curve() (CurveOptions::max_tracked), 28 bytes each. 0: cache_curve() is off.
  std::uint32_t curve_blocks = 131072;
  JournalOptions journal;
  KvEventsOptions kv_events;
};

}  // namespace quire
