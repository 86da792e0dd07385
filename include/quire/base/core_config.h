#pragma once
// What the core can be told, in groups. A field has the same name in the Python package, which shows all groups as one (quire.CoreConfig).
// Values only: a config is checked by validate() and then copied into the core, which never changes it. The groups are what their readers
// need, so that a part of the core can be understood by the fields it reads. Every field is in the recorded form of a core's calls
// (core_calls.h).
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

// How blocks are named, found again and reused.
struct PrefixCacheOptions {
  bool enable_prefix_caching = true;
  HashAlgorithm hash = HashAlgorithm::canonical;
  std::string hash_seed;                // replicas with equal seeds name equal blocks alike
  std::vector<std::uint8_t> root_hash;  // instead of one made from the seed (vLLM's NONE_HASH)
  // DecisionRules::sparse_windows: of a window, blocks are found again at each multiple of so many tokens, 0: behind prompts and what they
  // have in common only, -1: everywhere.
  std::int64_t retention_interval = -1;
  bool lifo_free_blocks = false;  // reuse the block freed last first, instead of the least recently used

  friend bool operator==(const PrefixCacheOptions&, const PrefixCacheOptions&) = default;
};

// Of drafts, whoever makes them. The core only plans room for them, and takes back what proves wrong.
struct SpeculationOptions {
  std::uint32_t num_spec_tokens = 0;       // drafts per step
  std::uint32_t num_lookahead_tokens = 0;  // slots for them: with EAGLE and draft models
  bool use_eagle = false;

  friend bool operator==(const SpeculationOptions&, const SpeculationOptions&) = default;
};

// Images, sounds, and models of two halves.
struct EncoderOptions {
  // Both count embeds, not placeholder tokens: an item may take an embedding in some of its positions only.
  std::uint32_t max_encoder_tokens = 0;  // encoder embeds computed per step
  std::uint32_t encoder_cache_size = 0;  // embeds kept
  bool is_encoder_decoder = false;
  bool disable_chunked_mm_input = false;
  // quire's own, for models whose placeholders of an item attend to all of it: those that are not computed yet are in one step, also
  // behind a prefix hit within the item, and when its embeddings are cached (disable_chunked_mm_input asks for neither).
  bool uncut_items = false;

  friend bool operator==(const EncoderOptions&, const EncoderOptions&) = default;
};

// How one model is spread over several workers, as far as decisions depend on it. Tensor parallelism changes none.
struct ParallelOptions {
  bool pipeline_parallel = false;  // plans carry the sampled tokens back to the first stage (unless async)
  // Ranks that share the tokens of a sequence, in decode and in prefill: a block on each rank holds 1 / (dcp * pcp) of block_size tokens.
  std::uint32_t dcp_world_size = 1, pcp_world_size = 1;

  friend bool operator==(const ParallelOptions&, const ParallelOptions&) = default;
};

// Where vLLM goes wrong and quire need not. All off: decisions are vLLM's. ContinuumOptions has three more.
struct CureOptions {
  // Under SchedulingPolicy::priority a request that this step has scheduled already can be preempted by the same step. Its new blocks are
  // in the prefix cache by then, but nothing will be written to them. vLLM keeps them there, so a later hit reads garbage; with this
  // option they are removed.
  bool forget_unwritten_blocks = false;
  // With async scheduling, reset_prefix_cache(preempt_running) makes each preempted request drop the next token that arrives for it,
  // because that one was in flight. vLLM drops it even if none was in flight: then a good token is lost, its placeholder is never taken
  // back, and near its end the request is not scheduled any more but stays in the batch until it is aborted. With this option a token is
  // dropped only if one is in flight.
  bool discard_only_in_flight = false;
  // reserve_full_isl counts a block for every token of a request, also where a window will have passed most of them by the time the last
  // ones run. In vLLM a prompt of more tokens than the cache has room for therefore waits for ever, although its windows fit. With this
  // option no more is reserved than the request holds at once.
  bool reserve_windows_only = false;
  // Requests whose blocks have been loaded, and sessions with their next input, hold blocks while they wait. In vLLM, when nothing runs and
  // they hold so many that the first of them lacks some, all wait for ever. With this option the last of them then gives its blocks back,
  // and computes them again.
  bool loaded_give_way = false;
  // With several cache groups and a connector, vLLM takes the cached blocks that a request hits group by group, each time with new ones for
  // the tokens that are to be loaded. If nobody else holds a block that a later group hits, it can be one of these: the request then has it
  // in both groups, and what is loaded destroys what was hit. With this option all hits are taken first. OffloadConnector asks for it.
  bool hits_before_loads = false;
  // A connector is asked about a request when the waiting loop reaches it, which in vLLM is not before there are a slot and tokens for it:
  // behind a full batch a request waits for its turn first, and for its blocks thereafter. With this option the next ones in the queues
  // are asked about meanwhile, a few in each step, and what is filled while a request waits (ExternalMatch::load_async) begins to be, in
  // the order of the queues, as far as there is room beside all that goes before. What has come gives way where blocks lack for that.
  bool early_loads = false;
  // With async scheduling the drafts in flight count as computed until they prove wrong. In vLLM a sliding window therefore moves on over
  // them, and its first blocks may be gone when they do: the next step then attends to whatever came to lie there. And what a reset drops
  // takes its wrong drafts back all the same, from a request that has begun anew. With this option a window moves on over what is sure, and
  // what is dropped takes nothing back.
  bool unsure_drafts = false;
  // With async scheduling a step may be under way that goes on behind the answer of a session. vLLM appends the token that it samples, and
  // with the next input keeps the name of a block which that token, or the answer's last one, had filled, and its drafts: the block holds
  // something else by then. With this option a session that waits for input takes no token, and what its next input replaces is forgotten.
  // Nor does it begin to load while a token of its is under way, which may end its answer: vLLM's goes on then, with blocks half loaded.
  bool cut_sessions = false;
  // A request that ran on blocks which then were not loaded is cut back in vLLM to the first of them, and goes on there. With async
  // scheduling the step in flight has run on them too, and its token is taken; the blocks stay in the prefix cache meanwhile, so that
  // others may find them and what was computed on them; and with several cache groups it cannot be done at all. With this option the
  // request, and whoever has found such a block, begins anew like a preempted one: nothing of it is found, taken or stored, and nothing
  // more is loaded for it. Under KvLoadFailurePolicy::fail they end, in any number of groups. Nor is more than twice begun what a request
  // waits for: vLLM asks a connector again for as long as it says that it has what it cannot load.
  bool unloaded_begin_anew = false;

  friend bool operator==(const CureOptions&, const CureOptions&) = default;
};

// Preemption by swap: blocks of a preempted request that nobody else holds are stored in numbered places (Transfer::tier == kSwapTier), and
// it goes on where it was when they have been loaded again. It is computed again, as without this, where there are too few places, and
// where a transfer failed. The worker must carry out transfers; not for models with states, nor for sessions.
struct SwapOptions {
  std::uint32_t num_swap_places = 0;  // blocks
  std::uint32_t num_far_places = 0;   // of these the last, which are slower: used where no other is free
  SwapChoice swap_choice = SwapChoice::off;

  friend bool operator==(const SwapOptions&, const SwapOptions&) = default;
};

// What keeps the core's memory bounded, besides max_num_seqs and max_num_waiting.
struct CoreLimits {
  // Plans made and not yet applied. schedule() beyond it is the caller's error and stops the program.
  std::uint32_t max_outstanding_plans = 2;
  std::uint32_t max_fork_family = 256;  // open requests that descend by forks from one, itself among them
  std::uint32_t max_open_transfers = 4096;
  std::uint32_t max_loras = 0;  // adapters in one step; 0: no limit

  friend bool operator==(const CoreLimits&, const CoreLimits&) = default;
};

// What only the decisions of vLLM 0.32.0 know (DecisionProfile); all off: as without them.
struct NewerOptions {
  std::uint32_t max_num_active_seqs = 0;  // fewer may run than max_num_seqs, which is what a batch has rows for; 0: as many
  // An admission leaves so many blocks free, if somebody runs; asked also where it takes none.
  std::uint32_t num_watermark_blocks = 0;
  // long_prefill_token_threshold does not bind below an even share of so many tokens among all that run or wait; 0: it does.
  std::uint32_t shared_prefill_tokens = 0;
  // Freed blocks go back when the newest step that may write to them is over: a load that begins before is not ordered against it.
  bool defer_block_free = false;
  // What is in flight for a request that is preempted is dropped: it has blocks to hand over at its end, and they must hold all of it.
  bool drop_undelivered = false;

  friend bool operator==(const NewerOptions&, const NewerOptions&) = default;
};

// What the core tells of itself.
struct ReportOptions {
  bool log_stats = true;
  bool enable_kv_events = false;
  double kv_metrics_sample = 0.0;  // share of blocks whose residency is measured; 0: off
  bool include_finished_set = false;
  bool count_common_prefix = true;  // for cascade attention; costs a look at every block of the first running request in each step

  friend bool operator==(const ReportOptions&, const ReportOptions&) = default;
};

// Every default that EngineOptions writes as 0 must be resolved: max_model_len and num_blocks are positive here.
struct QUIRE_API CoreConfig {
  DecisionProfile decisions = DecisionProfile::vllm_0_19;  // the newer one has no encoders, states, forks or swap
  SchedulerOptions scheduler;
  KvCacheConfig kv;                    // number of blocks (with the null block) and cache groups
  std::uint32_t block_size = 16;       // tokens of a hashed block: vLLM's scheduler block size (with context parallelism multiplied in)
  std::uint32_t cache_block_size = 0;  // vLLM's cache_config.block_size (mamba_align splits by it); 0: block_size
  bool mamba_align = false;            // mamba_cache_mode == "align"
  KvLoadFailurePolicy kv_load_failure = KvLoadFailurePolicy::fail;

  PrefixCacheOptions prefix_cache;
  SpeculationOptions speculation;
  EncoderOptions encoder;
  ParallelOptions parallel;
  ContinuumOptions continuum;
  CureOptions cures;
  PressureOptions pressure;
  SwapOptions swap;
  NewerOptions newer;
  CoreLimits limits;
  ReportOptions report;

  // Errors name the field; one of the groups after `kv` as in "speculation.num_spec_tokens".
  [[nodiscard]] Result<void> validate() const;

  friend bool operator==(const CoreConfig&, const CoreConfig&) = default;
};

}  // namespace quire
