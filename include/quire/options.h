#pragma once
// Validated options: every limit of the engine, with its unit and default.
#include <cstdint>
#include <string>

#include "quire/error.h"

namespace quire {

enum class KvDtype : std::uint8_t { bf16, f32 };

// How weights of 4 and 8 bits meet their activations: two 8-bit halves per value (integer dot products), or float.
enum class ActivationMode : std::uint8_t { int16, f32 };

enum class KernelIsa : std::uint8_t { best, reference, avx2, avx512 };

struct CacheOptions {
  std::uint32_t block_size = 16;                          // tokens per block
  std::uint32_t num_blocks = 0;                           // with the null block; 0: as many as kv_cache_bytes hold
  std::uint64_t kv_cache_bytes = std::uint64_t{1} << 30;  // 0: a share of the memory that is left beside the weights
  KvDtype dtype = KvDtype::bf16;
  bool enable_prefix_caching = true;
};

// Which waiting request goes first, and which running one gives way.
enum class SchedulingPolicy : std::uint8_t { fcfs, priority };

struct SchedulerOptions {
  std::uint32_t max_num_seqs = 128;                // requests in the running batch
  std::uint32_t max_num_batched_tokens = 2048;     // token budget of one step
  std::uint32_t max_model_len = 0;                 // prompt and output; 0: the model's context, or what the cache holds if less
  std::uint32_t long_prefill_token_threshold = 0;  // at most this many prompt tokens of a request per step; 0: no limit
  std::uint32_t max_num_waiting = 1024;            // new ones; all open ones are at most max_num_seqs more: else `overloaded`
  bool enable_chunked_prefill = true;
  bool reserve_full_isl = true;  // admit only when the whole input fits (vLLM: scheduler_reserve_full_isl)
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  bool async_scheduling = true;  // plan step N+1 while step N runs
  bool admit_oversized = false;  // take requests that can never run, as vLLM's scheduler does (its front end checks them)
};

struct EngineOptions {
  std::string model;              // a GGUF file or a Hugging Face folder
  std::string served_model_name;  // empty: the name of the file or folder
  CacheOptions cache;
  SchedulerOptions scheduler;
  ActivationMode activations = ActivationMode::int16;
  KernelIsa isa = KernelIsa::best;
  std::uint32_t num_threads = 0;  // 0: one per core that the process may use
  std::uint64_t seed = 0;         // for requests without a seed of their own
};

}  // namespace quire
