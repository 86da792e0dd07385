#pragma once
// Configuration of the core, in groups. Each group holds the fields that one part of the core reads. A config is a value: validate() checks
// it, and the core copies it and never changes its copy. The Python package has the same field names, in one class (quire.CoreConfig).
// Recordings of a core's calls contain every field (core_calls.h).
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
  // Distance in tokens between possible ends of prefix hits, with DecisionRules::caches_windows_sparsely. Hits in models with sliding
  // windows then end only at multiples of this number, at the ends of prompts, and at the ends of prefixes that prompts share.
  // 0: only at the ends of prompts and shared prefixes. -1: at every block.
  std::int64_t retention_interval = -1;
  bool lifo_free_blocks = false;  // reuse the most recently freed block first, instead of the least recently used one
  // Segmented LRU: blocks that a later request reused are evicted after all others while they are at most this share of all blocks. 0: LRU,
  // as in vLLM.
  double slru_share = 0.0;
  // Blocks of requests with RequestTags::retention_s are evicted after all others for that time, while they are at most this share of all
  // blocks. 0: the requests are not retained.
  double retained_share = 0.0;

  friend bool operator==(const PrefixCacheOptions&, const PrefixCacheOptions&) = default;
};

// Speculative decoding, with any source of draft tokens. The core only plans slots for draft tokens and rolls back the rejected ones.
struct SpeculationOptions {
  std::uint32_t num_spec_tokens = 0;       // maximum draft tokens of a request per step
  std::uint32_t num_lookahead_tokens = 0;  // additional slots per request, for EAGLE and draft models
  bool use_eagle = false;

  friend bool operator==(const SpeculationOptions&, const SpeculationOptions&) = default;
};

// Options of multimodal inputs (images, audio) and of encoder-decoder models.
struct EncoderOptions {
  // The next two fields count embeddings, not placeholder tokens: an item may have embeddings at only some of its positions.
  std::uint32_t max_encoder_tokens = 0;  // embeddings that encoders compute per step
  std::uint32_t encoder_cache_size = 0;  // embeddings that the encoder cache holds
  bool is_encoder_decoder = false;
  bool disable_chunked_mm_input = false;
  // Runs all tokens of an item that are not computed yet in one step. For models in which placeholder tokens attend to their whole item;
  // vLLM has no such option. Unlike disable_chunked_mm_input, this also applies after a prefix hit within the item, and when the item's
  // embeddings are cached.
  bool uncut_items = false;

  friend bool operator==(const EncoderOptions&, const EncoderOptions&) = default;
};

// How one model is distributed over several workers, as far as decisions depend on it. Tensor parallelism changes no decision.
struct ParallelOptions {
  bool pipeline_parallel = false;  // plans carry the sampled tokens to the first stage (unless async)
  // Numbers of ranks that share the tokens of a sequence, in decode and in prefill context parallelism. On each rank a block holds
  // block_size / (dcp * pcp) tokens.
  std::uint32_t dcp_world_size = 1, pcp_world_size = 1;

  friend bool operator==(const ParallelOptions&, const ParallelOptions&) = default;
};

// Options of preemption by swapping. Blocks of a preempted request that no other request holds are stored in numbered slots (Transfer::tier
// == kSwapTier). When the blocks have been loaded again, the request continues where it stopped. If there are too few slots, or if a
// transfer failed, the request is recomputed, as without swapping. The worker must carry out transfers. Sessions are never swapped out.
struct SwapOptions {
  std::uint32_t num_swap_slots = 0;  // number of slots, which hold one block each
  std::uint32_t num_slow_slots = 0;  // number of slots at the end that are slower; used only when no other slot is free
  SwapChoice swap_choice = SwapChoice::off;

  friend bool operator==(const SwapOptions&, const SwapOptions&) = default;
};

// Limits that bound the core's memory, in addition to max_num_seqs and max_num_waiting.
struct CoreLimits {
  // Maximum number of plans that are made and not yet applied. A schedule() beyond this limit is an error of the caller and stops the
  // program.
  std::uint32_t max_outstanding_plans = 2;
  std::uint32_t max_fork_family = 256;  // open requests that descend by forks from one request, including that request
  std::uint32_t max_open_transfers = 4096;
  std::uint32_t max_loras = 0;  // LoRA adapters in one step; 0: no limit

  friend bool operator==(const CoreLimits&, const CoreLimits&) = default;
};

// Options that exist only with the decisions of vLLM 0.32.0 (DecisionProfile). With the decisions of 0.19.0 all of them must be off.
struct Vllm032Options {
  std::uint32_t max_num_active_seqs = 0;  // maximum number of running requests, if below max_num_seqs (the batch rows); 0: max_num_seqs
  // Number of blocks that an admission leaves free while another request runs. Checked even if the admission takes no block.
  std::uint32_t num_watermark_blocks = 0;
  // Minimum of long_prefill_token_threshold: an even share of this many tokens among all running and waiting requests. 0: no minimum.
  std::uint32_t shared_prefill_tokens = 0;
  // Returns freed blocks to the pool only when the newest step that may write to them is over. Otherwise a load into these blocks could
  // start before that step ends.
  bool defer_block_free = false;
  // Drops the tokens in flight of a preempted request. Needed if another server loads the blocks of ended requests, because these blocks
  // must hold all tokens.
  bool drop_undelivered = false;

  friend bool operator==(const Vllm032Options&, const Vllm032Options&) = default;
};

// Statistics and events that the core reports.
struct ReportOptions {
  bool log_stats = true;
  bool enable_kv_events = false;
  double kv_metrics_sample = 0.0;  // share of blocks with measured residency; 0: off
  bool include_finished_set = false;
  bool count_common_prefix = true;  // blocks that all running requests share (cascade attention); scans one request's blocks per step

  friend bool operator==(const ReportOptions&, const ReportOptions&) = default;
};

// Complete configuration of one core. Values that may be 0 in EngineOptions must be resolved: max_model_len and num_blocks are positive
// here.
struct QUIRE_API CoreConfig {
  DecisionProfile decisions = DecisionProfile::vllm_0_19;  // vllm_0_32 does not support states (Mamba), forks or swapping
  SchedulerOptions scheduler;
  KvCacheConfig kv;                    // number of blocks (including the null block) and cache groups
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

  // Returns an error if a field is out of range or if options exclude each other. The error names the field. Names of fields in the groups
  // after `kv` begin with the group's name, as in "speculation.num_spec_tokens".
  [[nodiscard]] Result<void> validate() const;

  friend bool operator==(const CoreConfig&, const CoreConfig&) = default;
};

}  // namespace quire
