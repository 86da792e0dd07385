#pragma once
// Validated options: every limit of the engine, with its unit and default.
// Values, copied where they are used. They are checked when an engine is built, and an error names the field. 0 often means "find out":
// then Engine::options() tells what was found.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/hash_algorithm.h"
#include "quire/base/kv_spec.h"

namespace quire {

// Of the numbers in KV pages. int8: codes of -127 .. 127, and per token and head a float that they are multiplied with.
enum class KvDtype : std::uint8_t { bf16, f32, int8 };

constexpr std::uint32_t element_bytes(KvDtype dtype) {
  return dtype == KvDtype::f32 ? 4 : dtype == KvDtype::bf16 ? 2 : 1;
}
// Elements that a head keeps of a token: its dims, and with int8 the bytes of their float behind them.
constexpr std::uint32_t row_elements(KvDtype dtype, std::uint32_t head_dim) {
  return head_dim + (dtype == KvDtype::int8 ? std::uint32_t{sizeof(float)} : 0);
}
// The same, as the core's specs have it, with PyTorch's name.
inline CacheDtype cache_dtype_of(KvDtype dtype) {
  return {dtype == KvDtype::f32 ? "float32" : dtype == KvDtype::bf16 ? "bfloat16" : "int8", element_bytes(dtype)};
}
constexpr const char* name_of(KvDtype dtype) {
  return dtype == KvDtype::f32 ? "f32" : dtype == KvDtype::bf16 ? "bf16" : "int8";
}

// How weights meet their activations. Those of 4 to 8 bits: integer dot products with codes of 16 or 8 bits, scaled per 32 values, or
// floats. Those in bf16: floats, or, with bf16, activations that are rounded to it; such a mode is for models that have such weights. With
// int8 and bf16, attention over a cache in bf16 rounds queries and weights to bf16, too.
enum class ActivationMode : std::uint8_t { int16, f32, int8, bf16 };

// `best`: the fastest that this processor has. One that it lacks is refused when the engine is made. `reference` is plain C++, for
// comparison.
// Of the fast ones of a processor's family the later is the faster: avx2, avx_vnni (which multiplies bytes without AVX-512, as laptops do),
// avx512, which needs VNNI, avx512_bf16 and amx; on ARM neon, which takes its dot products, and neon_i8mm.
enum class KernelIsa : std::uint8_t { best, reference, avx2, avx_vnni, avx512, avx512_bf16, amx, neon, neon_i8mm };

struct CacheOptions {
  std::uint32_t block_size = 16;                          // tokens per block; more of them where a state must fit into one
  std::uint32_t num_blocks = 0;                           // with the null block; 0: as many as kv_cache_bytes hold
  std::uint64_t kv_cache_bytes = std::uint64_t{1} << 30;  // 0: a share of the memory that is left beside the weights
  KvDtype dtype = KvDtype::bf16;
  bool enable_prefix_caching = true;
  // Of models whose layers have states: where these are kept. Not given: without prefix caching `none`; with it `all` where a state is no
  // larger than the keys and values of a block, else `align`.
  std::optional<MambaCacheMode> mamba_cache_mode;
  HashAlgorithm hash = HashAlgorithm::canonical;
  std::string hash_seed;          // servers with equal seeds and algorithms name equal blocks alike (vLLM's PYTHONHASHSEED)
  bool lifo_free_blocks = false;  // reuse the block freed last first: hotter in the processor's caches, and prefixes are forgotten sooner
  // How long blocks are in the cache, and lie there unused, is measured on this share of those that are taken (EngineStats::kv_residency).
  bool kv_cache_metrics = false;
  double kv_cache_metrics_sample = 0.01;  // above 0, at most 1
  bool count_common_prefix = false;       // see ReportOptions
};

// Which waiting request goes first, and which running one gives way.
// continuum: the turns of an agent's job together, first come first served by job; the blocks of a turn stay while its tool runs.
enum class SchedulingPolicy : std::uint8_t { fcfs, priority, continuum };

// Of SchedulingPolicy::continuum. The defaults are what the fork of vLLM does that the policy comes from; the flags are cures of it.
struct ContinuumOptions {
  double pin_s = 2.0;              // how long the blocks of a turn stay after its end
  double longest_tool_s = 2.0;     // they do not stay at all for a tool that takes longer, in the mean
  std::uint32_t max_jobs = 65536;  // remembered between turns; the job unused longest is forgotten
  std::uint32_t max_tools = 4096;  // whose times are remembered
  // Where blocks lack, pins end before anybody is preempted, or kept waiting while nobody runs: the oldest expiry first.
  bool pins_give_way = false;
  bool pins_end_with_job = false;  // a job's pin ends with its last step, with an aborted or failed turn, and at a reset of the cache
  bool jobless_in_order = false;   // a request without a job counts as entered when it was added: else any job goes before it

  friend bool operator==(const ContinuumOptions&, const ContinuumOptions&) = default;
};

struct SchedulerOptions {
  std::uint32_t max_num_seqs = 128;                // requests in the running batch
  std::uint32_t max_num_batched_tokens = 2048;     // token budget of one step
  std::uint32_t max_model_len = 0;                 // prompt and output; 0: the model's context, or what the cache holds if less
  std::uint32_t long_prefill_token_threshold = 0;  // at most this many prompt tokens of a request per step; 0: no limit
  std::uint32_t max_num_waiting = 1024;            // new ones; all open ones are at most max_num_seqs more: else `overloaded`
  bool enable_chunked_prefill = true;
  bool reserve_full_isl = true;  // admit only when the whole input fits (vLLM: scheduler_reserve_full_isl)
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  bool async_scheduling = true;            // plan step N+1 while step N runs
  std::uint32_t max_in_flight_tokens = 0;  // of all plans under way at most; 0: no bound (DecisionRules::windows_cap_admission)
  bool admit_oversized = false;            // take requests that can never run, as vLLM's scheduler does (its front end checks them)

  friend bool operator==(const SchedulerOptions&, const SchedulerOptions&) = default;
};

// How full the KV cache may be where requests are admitted. Shares of its blocks (without the null block), of those that are referenced:
// what is cached and held by nobody counts as free. The defaults are vLLM's way: whoever finds blocks is admitted.
struct PressureOptions {
  double admission_watermark = 0.0;  // an admission leaves so many free
  // Above `pressure_high` nobody is admitted until there are fewer than `pressure_low`; both 0: off. Who holds blocks that were loaded for
  // him is admitted all the same; and so is, while nothing runs and nothing is being loaded, whoever fits, whatever the watermark.
  double pressure_high = 0.0, pressure_low = 0.0;
  // Above `pressure_high` those who would give way first are also preempted, until it is that or less, or one is left that runs.
  bool pressure_preempts = false;

  friend bool operator==(const PressureOptions&, const PressureOptions&) = default;
};

// Which preempted requests keep what they have computed, outside of the cache, and which compute it again.
enum class SwapChoice : std::uint8_t {
  off,
  always,   // whoever finds room
  measured  // whose blocks are moved there and back in less time than it takes to compute them (SwapCosts)
};

// A record of each step of the scheduler, in files (docs/trace.md).
struct TraceOptions {
  std::string path;                                       // PATH.steps.jsonl and PATH.requests.jsonl; empty: off
  std::uint32_t every = 1;                                // only every n-th step
  std::uint64_t max_steps = 0;                            // no more than so many; 0: no limit
  std::uint64_t max_file_bytes = std::uint64_t{1} << 28;  // then the file becomes FILE.1, and the one before FILE.2, ...
  std::uint32_t max_files = 4;                            // of each kind; the oldest goes
};

// What the scheduler was asked and a digest of what it decided, for `quire replay` (docs/journal.md).
struct JournalOptions {
  std::string folder = {};  // each start begins a new file here; empty: none
  // Of all journals in the folder; the oldest go first.
  std::uint64_t max_bytes = std::uint64_t{1} << 30;
  // The last minutes, kept in memory until somebody asks for them (Engine::save_journal()); 0: none are.
  std::uint64_t memory_bytes = std::uint64_t{32} << 20;
  std::string save_folder = {};  // where they are saved; empty: `folder`
  bool tokens = true;            // false: what prompts and answers say is left out (docs/journal.md)
};

// Who is told which blocks the KV cache holds: vLLM's KVEventsConfig, with its names (docs/events.md).
struct KvEventsOptions {
  bool enable_kv_cache_events = false;
  std::string publisher = "zmq";  // or "null": nobody
  // ZeroMQ's addresses. One that names a place of others (no "*", "::", ipc or inproc) is connected to, but for the default, which clients
  // on this machine reach.
  std::string endpoint = "tcp://127.0.0.1:5557";
  std::string replay_endpoint;             // empty: nobody can ask for what he has missed
  std::uint32_t buffer_steps = 10'000;     // batches that are kept for that, 64 MiB of them at most
  std::uint32_t hwm = 100'000;             // batches that wait for a subscriber; beyond it they are dropped for him
  std::uint32_t max_queue_size = 100'000;  // batches that wait to be sent; beyond it they are dropped for all
  std::string topic;
  bool use_int_block_hashes = true;  // of a hash the last eight bytes, as a number (VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES)
  std::string format = "0.19.0";     // the vLLM whose bytes these are, or "0.32.0"; who reads the one cannot read the other

  [[nodiscard]] bool is_on() const { return enable_kv_cache_events && publisher != "null"; }
};

// Memory for the blocks of preempted requests, beside the KV cache (SwapOptions).
struct KvSwapOptions {
  std::uint64_t bytes = 0;  // 0: none; without a folder either, what is preempted is computed again
  SwapChoice choice = SwapChoice::measured;
  // Where the memory is full, or there is none: files in "quire-swap" in this folder, which end with the engine. Empty: none.
  std::string folder = {};
  std::uint64_t folder_bytes = std::uint64_t{4} << 30;  // at most, as `du` counts it

  [[nodiscard]] bool is_on() const { return bytes > 0 || !folder.empty(); }
};

// Drafts of an answer that repeats what its prompt or itself has said (vLLM's method "ngram", with its names): the last tokens are looked
// up, and what followed them there is computed along with the next token. Changes the speed of answers, and not a bit of them.
struct NgramOptions {
  std::uint32_t num_speculative_tokens = 0;  // drafts per step; 0: off, or 4 with EngineOptions::draft_model
  // Tokens that must be found again: as many of prompt_lookup_max as can be, at least prompt_lookup_min.
  std::uint32_t prompt_lookup_min = 5, prompt_lookup_max = 5;

  friend bool operator==(const NgramOptions&, const NgramOptions&) = default;
};

// A LoRA adapter under a name that requests may ask for: a folder as PEFT writes it.
struct AdapterModule {
  std::string name, path;

  friend bool operator==(const AdapterModule&, const AdapterModule&) = default;
};

// Adapters beside the model (docs/lora.md), with vLLM's names.
struct AdapterOptions {
  std::uint32_t max_loras = 0;       // adapters in one step; 0: none are served
  std::uint32_t max_lora_rank = 16;  // of those that are loaded: 1, 8, 16, 32, 64, 128, 256, 320 or 512
  // Whose weights are in memory, max_loras at least: those that requests name, waiting ones too. 0: max_loras, the modules or 4, whichever
  // is most.
  std::uint32_t max_cpu_loras = 0;
  std::vector<AdapterModule> modules;  // loaded at the start

  [[nodiscard]] bool is_on() const { return max_loras > 0; }
};

// What becomes of requests whose blocks a tier or connector could not load (vLLM's kv_load_failure_policy).
enum class KvLoadFailurePolicy : std::uint8_t {
  fail,      // they end in error
  recompute  // their tokens are computed here
};

// What becomes of a decoder's matrices that the model has as floats, where their columns are a multiple of 32; routers, convolutions and
// what is quantised stay as they are.
enum class WeightQuantisation : std::uint8_t {
  none,
  q8_0,  // 8 bits, a scale per 32 columns
  q4_k,  // 4 bits, a scale and a minimum per 32 columns; those of the vocabulary 8 bits
};

// Weights as the kernels read them, and where they are.
struct WeightsOptions {
  WeightQuantisation quantise = WeightQuantisation::none;
  // Of packed weights, a file for each model: read at the next start in place of packing the model again. Empty: nothing is kept. Whoever
  // can write to it can make us serve other weights.
  std::string cache_folder;
  std::uint64_t cache_bytes = std::uint64_t{64} << 30U;  // of all files of the folder; those that were not used for longest go
  // Memory for the routed experts of a mixture: the others are read from the folder when they are wanted. 0: all of them are in memory, or,
  // if there is a folder and they do not fit, half of what there is.
  std::uint64_t expert_bytes = 0;
};

struct EngineOptions {
  std::string model;              // a GGUF file or a Hugging Face folder
  std::string mmproj;             // beside a GGUF file: that of its encoder of pictures, as llama.cpp's converter makes it; empty: none
  std::string served_model_name;  // empty: the name of the file or folder
  CacheOptions cache;
  SchedulerOptions scheduler;
  PressureOptions pressure;
  KvSwapOptions kv_swap;
  // With the three cures of what the fork does.
  ContinuumOptions continuum{.pins_give_way = true, .pins_end_with_job = true, .jobless_in_order = true};
  std::uint32_t max_fork_family = 256;  // open requests that descend by forks from one, itself among them
  KvLoadFailurePolicy kv_load_failure = KvLoadFailurePolicy::recompute;
  NgramOptions speculation;
  // A smaller model of the same vocabulary, a GGUF file or a Hugging Face folder, whose guesses are the drafts instead of what is looked
  // up: num_speculative_tokens at most (0: 4), fewer or none where they do not pay. Empty: none.
  std::string draft_model;
  AdapterOptions adapters;
  WeightsOptions weights;
  ActivationMode activations = ActivationMode::int16;
  KernelIsa isa = KernelIsa::best;
  std::uint32_t num_threads = 0;  // 0: one per core that the process may use
  std::uint64_t seed = 0;         // for requests without a seed of their own
  TraceOptions trace;
  // Requests that explain() still knows when they have ended, about 1 KiB each; 0: it knows none, and nothing is remembered of blocks.
  std::uint32_t explained_requests = 1000;
  // Names of blocks that are followed for cache_curve() (CurveOptions::max_tracked), 28 bytes each; 0: none, and there is no curve.
  std::uint32_t curve_blocks = 131072;
  JournalOptions journal;
  KvEventsOptions kv_events;
};

}  // namespace quire
