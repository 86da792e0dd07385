#pragma once
// Configuration of the core, in groups. The Python package has the same field names and shows all groups as one class (quire.CoreConfig). A
// config is a value: validate() checks it, and the core copies it and never changes it. Each group holds the fields that one part of the
// core reads, so that the part can be understood from them. Recordings of a core's calls contain every field (core_calls.h).
#include <cstdint>
#include <string>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/decision_profile.h"
#include "quire/base/error.h"
#include "quire/base/hash_algorithm.h"
#include "quire/base/kv_spec.h"
#include "quire/base/options.h"

namespace quire {

// How blocks are hashed, found in the prefix cache, and reused.
struct PrefixCacheOptions {
  bool enable_prefix_caching = true;
  HashAlgorithm hash = HashAlgorithm::canonical;
  std::string hash_seed;                // replicas with equal seeds compute equal block hashes
  std::vector<std::uint8_t> root_hash;  // replaces the root hash that is made from the seed (vLLM's NONE_HASH)
  // Tokens. With DecisionRules::caches_windows_sparsely only some hits are possible within a window. They end at multiples of this number,
  // at the ends of prompts, and at the ends of prefixes that prompts share. 0: only at these ends. -1: everywhere.
  std::int64_t retention_interval = -1;
  bool lifo_free_blocks = false;  // reuse the most recently freed block first, instead of the least recently used one

  friend bool operator==(const PrefixCacheOptions&, const PrefixCacheOptions&) = default;
};

// Speculative decoding, with any source of draft tokens. The core only plans slots for draft tokens and rolls back the rejected ones.
struct SpeculationOptions {
  std::uint32_t num_spec_tokens = 0;       // draft tokens per step
  std::uint32_t num_lookahead_tokens = 0;  // slots for draft tokens, with EAGLE and draft models
  bool use_eagle = false;

  friend bool operator==(const SpeculationOptions&, const SpeculationOptions&) = default;
};

// Multimodal inputs (images, audio), and encoder-decoder models.
struct EncoderOptions {
  // The next two fields count embeddings, not placeholder tokens: an item may take an embedding in only some of its positions.
  std::uint32_t max_encoder_tokens = 0;  // embeddings that encoders compute per step
  std::uint32_t encoder_cache_size = 0;  // embeddings that the encoder cache holds
  bool is_encoder_decoder = false;
  bool disable_chunked_mm_input = false;
  // Only in quire, for models with placeholder tokens that attend to their whole item. All tokens of an item that are not computed yet run
  // in one step. This also holds after a prefix hit within the item, and when its embeddings are cached. disable_chunked_mm_input covers
  // neither of these two cases.
  bool uncut_items = false;

  friend bool operator==(const EncoderOptions&, const EncoderOptions&) = default;
};

// How one model is spread over several workers, as far as decisions depend on it. Tensor parallelism changes no decision.
struct ParallelOptions {
  bool pipeline_parallel = false;  // plans carry the sampled tokens back to the first stage (unless async)
  // Ranks that share the tokens of a sequence, in decode and in prefill. On each rank a block holds 1 / (dcp * pcp) of block_size tokens.
  std::uint32_t dcp_world_size = 1, pcp_world_size = 1;

  friend bool operator==(const ParallelOptions&, const ParallelOptions&) = default;
};

// Preemption by swapping. Blocks of a preempted request that no other request holds are stored in numbered slots (Transfer::tier ==
// kSwapTier). When they have been loaded again, the request continues where it stopped. If there are too few slots, or a transfer failed,
// the request is computed again, as without swapping. The worker must carry out transfers. Sessions are never swapped out.
struct SwapOptions {
  std::uint32_t num_swap_slots = 0;  // slots, of one block each
  std::uint32_t num_slow_slots = 0;  // the last of these slots, which are slower; used when no other slot is free
  SwapChoice swap_choice = SwapChoice::off;

  friend bool operator==(const SwapOptions&, const SwapOptions&) = default;
};

// Limits that bound the core's memory, in addition to max_num_seqs and max_num_waiting.
struct CoreLimits {
  // Plans that are made and not yet applied. A call of schedule() beyond this limit is the caller's error and stops the program.
  std::uint32_t max_outstanding_plans = 2;
  std::uint32_t max_fork_family = 256;  // open requests that descend by forks from one request, including that request
  std::uint32_t max_open_transfers = 4096;
  std::uint32_t max_loras = 0;  // LoRA adapters in one step; 0: no limit

  friend bool operator==(const CoreLimits&, const CoreLimits&) = default;
};

// Options that only the decisions of vLLM 0.32.0 have (DecisionProfile). Under the decisions of 0.19.0 all must be off.
struct Vllm032Options {
  std::uint32_t max_num_active_seqs = 0;  // most running requests, if fewer than max_num_seqs (the rows of a batch); 0: max_num_seqs
  // While a request runs, an admission leaves this many blocks free; checked also if it takes no block.
  std::uint32_t num_watermark_blocks = 0;
  // long_prefill_token_threshold is at least an even share of this many tokens among all running and waiting requests; 0: no such minimum.
  std::uint32_t shared_prefill_tokens = 0;
  // Freed blocks return to the pool when the newest step that may write to them is over. A load into them that starts earlier would not be
  // ordered after that step.
  bool defer_block_free = false;
  // Tokens in flight of a preempted request are dropped. The request hands over its blocks at its end, and they must hold all its tokens.
  bool drop_undelivered = false;

  friend bool operator==(const Vllm032Options&, const Vllm032Options&) = default;
};

// Statistics and events that the core reports.
struct ReportOptions {
  bool log_stats = true;
  bool enable_kv_events = false;
  double kv_metrics_sample = 0.0;  // share of blocks with measured residency; 0: off
  bool include_finished_set = false;
  bool count_common_prefix = true;  // for cascade attention; reads every block of the first running request in each step

  friend bool operator==(const ReportOptions&, const ReportOptions&) = default;
};

// Complete configuration of one core. Values that EngineOptions writes as 0 must be resolved: max_model_len and num_blocks are positive
// here.
struct QUIRE_API CoreConfig {
  DecisionProfile decisions = DecisionProfile::vllm_0_19;  // vllm_0_32 does not support states (Mamba), forks or swapping
  SchedulerOptions scheduler;
  KvCacheConfig kv;                    // number of blocks (null block included) and cache groups
  std::uint32_t block_size = 16;       // tokens of a hashed block: vLLM's scheduler block size (multiplied by the context-parallel sizes)
  std::uint32_t cache_block_size = 0;  // vLLM's cache_config.block_size, by which mamba_align splits prefills; 0: block_size
  bool mamba_align = false;            // mamba_cache_mode == "align"
  KvLoadFailurePolicy kv_load_failure = KvLoadFailurePolicy::fail;

  PrefixCacheOptions prefix_cache;
  SpeculationOptions speculation;
  EncoderOptions encoder;
  ParallelOptions parallel;
  ContinuumOptions continuum;
  FixOptions fixes;
  PressureOptions pressure;
  SwapOptions swap;
  Vllm032Options newer;
  CoreLimits limits;
  ReportOptions report;

  // Returns an error if a field is out of range or options exclude each other. The error names the field. Fields of the groups after `kv`
  // have the group's name in front, as in "speculation.num_spec_tokens".
  [[nodiscard]] Result<void> validate() const;

  friend bool operator==(const CoreConfig&, const CoreConfig&) = default;
};

}  // namespace quire
