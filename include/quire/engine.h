#pragma once
// The engine: a model, its KV cache and its scheduler. One separate thread (the engine thread) runs the steps. Front ends submit requests
// from any thread and receive outputs on the engine thread. The engine owns the model, the cache and its threads. The caller owns its
// sinks, which must outlive their requests. Other requests affect the timing of a request, but not its output.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/image.h"
#include "quire/base/kv_layout.h"
#include "quire/base/kv_transfer_params.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "quire/base/request.h"
#include "quire/base/sampling.h"
#include "quire/base/structured_output.h"
#include "quire/cache_probe.h"
#include "quire/lab/curve.h"
#include "quire/lab/explain.h"
#include "quire/saved_journal.h"

namespace quire {

// The output of one step for one request.
struct RequestOutput {
  RequestId id;
  std::vector<TokenId> tokens;             // tokens since the last output
  std::vector<PositionLogprobs> logprobs;  // one entry per new token, if requested
  bool finished = false;
  bool input_ended = false;                  // a session's answer to its input is complete; the session continues
  FinishReason reason = FinishReason::stop;  // when `finished` or `input_ended`
  TokenId stop_token = -1;                   // the id that stopped the request, if any; also the last of `tokens`
  std::string error;                         // FinishReason::error: the reason as text
  // The error, if the request caused it and the engine found it only after submit(): for example, the grammar does not compile, no token is
  // left to sample, or a fork is not possible any more. Otherwise empty.
  std::optional<Error> refusal{};
  std::uint32_t num_cached_tokens = 0;  // prompt tokens found in the prefix cache at first admission
  double waited_s = 0.0;                // seconds from submit() to first admission
  // Log probabilities of each prompt token but the first, if requested. Sent with the first token. The n requests of
  // one EngineRequest share the vector.
  std::shared_ptr<const std::vector<PositionLogprobs>> prompt_logprobs{};
  // The experts of each computed token, if requested, as [token][layer][expert]. Each of the `num_layers` layers has
  // ModelInfo::experts_per_token entries, the most probable expert first; they are zeros in a layer without experts. `prompt_experts` comes
  // with the first token, covers the whole prompt, and is shared like `prompt_logprobs`. `routed_experts` follows for the output tokens.
  // The experts of an output token arrive with the next token, so the last output token has none.
  std::shared_ptr<const std::vector<std::uint16_t>> prompt_experts{};
  std::vector<std::uint16_t> routed_experts{};
  std::vector<float> pooled{};  // result of a pooling request, sent with its end
  // The place where the blocks of a request with do_remote_decode are kept. Sent with its end. Null: the blocks are not kept.
  std::shared_ptr<const KvTransferParams> kv_transfer{};
};

// Receives outputs on the engine thread, once per step. deliver() must pass the outputs on and return. It must not block or call
// Engine::stop().
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void deliver(std::vector<RequestOutput> outputs) = 0;
};

// Returns the tool that the output of a finished request calls; empty: the output calls no tool. Called on the engine thread; must be
// callable until the request's last output.
using ToolNameFunction = std::function<std::string(std::span<const TokenId> outputs)>;

// Options of beam search, which finds the most probable answers instead of sampling tokens, as vLLM's server does (docs/beam_search.md).
struct BeamSearchOptions {
  // The score of a hypothesis is the log probability of its outputs, divided by its length (prompt and outputs) to this power.
  double length_penalty = 1.0;  // [-10, 10]
};

// A hold on the weights of a LoRA adapter. The weights stay in memory while a lease exists.
struct AdapterLease;

// A request for the engine: prompt, sampling parameters and options.
struct EngineRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::string cache_salt{};   // requests with different salts never share blocks
  std::int64_t priority = 0;  // a smaller value is scheduled first; must be 0 unless SchedulingPolicy::priority
  RequestTags tags{};
  // Number of requests with this prompt. Their ids are consecutive. If there is a seed, the i-th request has seed + i. All but the first
  // are forked from the first when its prompt is planned, and compute only the last prompt token again.
  std::uint32_t n = 1;
  ToolNameFunction tool_name_function{};  // used under SchedulingPolicy::continuum if the tags name no tool
  // Enables beam search. `n` is then the beam width, at most 10. All answers arrive together at the end, the best first. Finishing one of
  // the `n` requests ends the search. Sampling parameters (temperature, top_k, ...) have no effect.
  std::optional<BeamSearchOptions> beam_search{};
  // A pooling request samples no tokens and ends with RequestOutput::pooled. sampling.pooling selects the result:
  // - one vector of ModelInfo::hidden_size numbers;
  // - one such vector for each prompt token (at most kMaxPooledValues numbers in total);
  // - the logits of the tokens in PoolingParams::logits_of.
  bool pooling = false;
  // A streaming session. At the end of an answer (EOS, a stop id, max_tokens) the request does not end but waits for append(). The next
  // answer continues after all output, including the token that stopped the answer, and reuses the KV cache. max_tokens and min_tokens
  // apply to each answer. A waiting session keeps its blocks until other requests need them.
  bool session = false;
  // The grammar of the answer. A separate thread compiles it while the request waits. A grammar that does not compile ends the request
  // (RequestOutput::refusal).
  std::optional<StructuredOutput> structured_output{};
  // The client's name for the request; may be empty. The trace contains it, and explain() finds requests and their forks by it.
  std::string name{};
  // Makes probe() count only blocks that a request of the same tenant has computed or found before.
  bool probes_tenant_blocks = false;
  // With KvPeerOptions: keeps the request's blocks for another server, or loads them from one. `n` must be 1.
  std::optional<KvTransferParams> kv_transfer{};
  std::string adapter{};  // name of a LoRA adapter (EngineOptions::adapters, Engine::load_adapter); empty: the base model
  // A lease of the adapter from Engine::lease_adapter. Null: submit() takes a lease itself, which may read files.
  std::shared_ptr<const AdapterLease> adapter_lease{};
  // The images of the prompt's placeholder tokens, in order, for models that support images (`ModelInfo::pictures`). For a session: the
  // images of its first input. The image encoder runs before the request is planned, in parallel with steps of other requests.
  std::vector<PromptImage> pictures{};
  // Input of the encoder. Encoder-decoder models (ModelInfo::encoder) require it. The engine keeps it until the request has ended.
  std::shared_ptr<const EncoderInput> encoder_input{};
};

// Options of fork(): new requests that continue after the current token of an open request. The first output of each contains all output of
// the parent so far. All other parameters are the parent's. The child of a session is a session too: it continues the same answer, or
// starts after it (its first output then has `input_ended`). It does not inherit inputs that the parent has not begun to answer.
struct EngineFork {
  std::uint32_t n = 1;
  std::optional<std::uint64_t> seed{};        // the i-th request has this value + i; nullopt: separate seeds
  std::optional<std::uint32_t> max_tokens{};  // including the parent's outputs; nullopt: the parent's value
  std::string name{};                         // `EngineRequest::name`
};

// The effect of a pause on running and waiting requests (vLLM's PauseMode). New requests wait in every mode until resume().
enum class PauseMode : std::uint8_t {
  abort,  // requests end immediately, running or waiting
  wait,   // running requests continue to their end
  keep    // requests keep their state and continue after resume()
};

struct PauseOptions {
  PauseMode mode = PauseMode::abort;
  bool clear_cache = true;  // forget cached prefixes when no request runs any more; kept requests are then recomputed
};

// Options of reset_prefix_cache().
struct CacheResetOptions {
  bool preempt_running = false;  // preempt running requests and recompute them; otherwise running requests prevent the reset
  bool external = false;         // also reset the connector's cache
};

// Receives the answer of a control call. Called once: on the engine thread between two steps, or immediately on the caller's thread if the
// engine is shutting down (`shutting_down`). Must pass the answer on and return, like OutputSink::deliver().
using ControlCallback = std::function<void(Result<bool>)>;
// Receives the explanations of all requests with one name, the oldest first. Empty: no such request is known, or all of them ended long
// ago. Called like ControlCallback.
using ExplainCallback = std::function<void(Result<std::vector<RequestExplanation>>)>;
// Estimated hit rates for other sizes of the KV cache, with the costs that convert them to bytes and seconds.
struct EngineHitRateCurve {
  HitRateCurve curve;
  CurveCosts costs;
};
using CurveCallback = std::function<void(Result<EngineHitRateCurve>)>;

// The part of a request's prompt that is in the cache, and the predicted parts of its TTFT in seconds; nullopt: not measured yet. wait_s:
// computing the prompts before this one, as if all requests fitted into the cache together. load_s: loading blocks. compute_s: computing
// the other tokens of the prompt.
struct EngineProbe {
  CacheProbe cache;
  std::optional<double> wait_s, load_s, compute_s;
};
using ProbeCallback = std::function<void(Result<EngineProbe>)>;

struct WatchFrame;
// Receives the frame that was passed to watch(), filled. Called like ControlCallback.
using WatchCallback = std::function<void(Result<std::shared_ptr<WatchFrame>>)>;

// A LoRA adapter that requests may name.
struct AdapterInfo {
  std::string name, path;
  std::string digest;  // SHA-256 of its files when last loaded, in hex
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;   // size of the adapter's weights in memory
  bool is_resident = false;  // false: the next request for the adapter reads the files
};

// Counts of LoRA adapters, if EngineOptions::adapters are served.
struct AdapterStats {
  std::uint32_t max_loras = 0;  // `AdapterOptions::max_loras`
  std::uint32_t num_known = 0;
  std::uint32_t num_resident = 0;  // adapters with weights in memory, including weights that only running requests still use
  std::uint64_t bytes = 0;         // size of the weights that a new request would find in memory
  std::uint64_t num_loads = 0, num_evictions = 0, num_failed_loads = 0;
};

// A histogram with cumulative counts, as in Prometheus. Values are seconds if the name ends with `_s`. `counts` has one more entry (+Inf)
// than `bounds`.
struct HistogramSnapshot {
  std::vector<double> bounds;
  std::vector<std::uint64_t> counts;
  double sum = 0.0;
};

// Statistics of a tier below the KV cache: host memory (KvDramOptions), disk (KvDiskOptions), a remote store or other servers. A tier
// consists of slots, which hold one block each.
struct KvTierStats {
  std::string name;  // "dram", "disk", "peer_cache", "remote", "peer", or a connector's name
  std::uint64_t budget_bytes = 0, place_bytes = 0;
  std::uint32_t num_places = 0, num_used_slots = 0;
  std::uint64_t capacity_tokens = 0;      // tokens that fit into the tier; 0: the tier holds no blocks itself
  std::uint32_t num_unread_slots = 0;     // slots of earlier processes that have not been read yet
  std::uint64_t num_restored_blocks = 0;  // blocks from earlier processes
  std::uint64_t num_stored_blocks = 0, num_loaded_blocks = 0, bytes_stored = 0, bytes_loaded = 0, tokens_loaded = 0;
  // num_without_slot: blocks not stored because no slot was free or evictable (the request alone fills the tier, or blocks are in transfer
  // or unread); each block counts once.
  // num_corrupted_blocks: blocks not loaded because the checksum failed.
  // num_failed_blocks: blocks not moved because the disk failed or was late.
  std::uint64_t num_without_slot = 0, num_corrupted_blocks = 0, num_failed_blocks = 0;
  std::uint64_t num_deferred_by_limit = 0;                    // store delayed: a quarter of the cache was in transfer
  std::uint64_t num_stored_when_idle = 0;                     // delayed blocks that were stored later, when the engine was idle
  std::uint64_t num_filtered_blocks = 0;                      // blocks not stored because the tier is too small for its reuse distance
  std::uint64_t num_computed_tokens = 0;                      // tokens not loaded because computing them is faster
  double load_bytes_per_s = 0.0, compute_tokens_per_s = 0.0;  // measured; 0: not yet
  std::uint64_t num_demoted_blocks = 0;                       // stored blocks that came from the tier above when it was about to evict them
  std::uint64_t num_dropped_blocks = 0;                       // evicted before they were stored in the tier below
  // True while the tier loads nothing, or stores nothing, because it fails, hangs or is gone. Ends when a trial succeeds.
  bool loads_left_out = false, stores_left_out = false;
  std::uint64_t num_times_disabled = 0;
  // For a remote store or other servers (KvPeerCacheOptions): block hashes that were looked up, looked-up hashes that the store had,
  // lookups that were not answered in time, and found blocks that the store no longer had when they were loaded.
  std::uint64_t num_queried_blocks = 0, num_found_blocks = 0, num_query_timeouts = 0, num_vanished_blocks = 0;
  // For a producer (KvPeerOptions): requests whose blocks are kept for a consumer now, the total number of such requests, and leases that
  // expired before the blocks were fetched.
  std::uint32_t num_open_leases = 0;
  std::uint64_t num_leases = 0, num_expired_leases = 0;
  std::string problem = {};  // the last problem, in the words of the store or the system; untrusted text
};

// Statistics of swapping out the blocks of preempted requests (KvSwapOptions). Rates are measured; 0: not measured yet.
struct KvSwapStats {
  std::uint32_t num_places = 0, num_slow_slots = 0, num_used_slots = 0;  // total, in files (slow), in use; a slot holds one block
  std::uint64_t place_bytes = 0;
  std::uint64_t num_out = 0, num_out_blocks = 0;                   // requests swapped out, and their stored blocks
  std::uint64_t num_in = 0, num_in_blocks = 0, num_in_tokens = 0;  // requests swapped in, and the tokens not recomputed
  std::uint64_t num_lost = 0;  // swapped-out requests that were recomputed: a transfer failed, or other requests needed the blocks
  std::uint64_t num_skipped_no_slot = 0, num_skipped_no_gain = 0;  // not swapped out: no slot was free; computing is as fast
  std::uint64_t num_corrupted_blocks = 0;                          // swapped-out blocks that failed their checksum
  double out_bytes_per_s = 0.0, in_bytes_per_s = 0.0;
  double disk_out_bytes_per_s = 0.0, disk_in_bytes_per_s = 0.0;
};

// Totals of speculative decoding (NgramOptions).
struct SpeculationStats {
  std::uint64_t num_drafts = 0;           // steps of requests with draft tokens
  std::uint64_t num_draft_tokens = 0;     // verified draft tokens
  std::uint64_t num_accepted_tokens = 0;  // accepted draft tokens
  std::vector<std::uint64_t> num_accepted_per_position{};
};

// Residency times of blocks in the KV cache (CacheOptions::kv_cache_metrics). A sampled block is counted when it is evicted. A reset of the
// cache drops samples without counting them, as in vLLM.
struct KvResidencyStats {
  HistogramSnapshot lifetime_s;           // from allocation to eviction
  HistogramSnapshot idle_before_evict_s;  // from the last use to eviction
  HistogramSnapshot reuse_gap_s;          // between the block's last four uses
};

// A consistent copy of the engine's state and totals. The engine thread makes a copy after each step. Any thread reads it through
// Engine::stats(), which copies it under a lock. Totals count from the engine's start.
struct EngineStats {
  std::uint64_t num_steps = 0;
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;        // includes preempted and held-back requests
  std::uint64_t num_queued_tokens = 0;  // prompt tokens of requests without a first token
  std::uint32_t num_blocks = 0;         // without the null block
  std::uint32_t num_free_blocks = 0;
  std::uint32_t num_cached_blocks = 0;       // in the prefix cache, referenced or not
  std::uint32_t num_retained_blocks = 0;     // free blocks that RequestTags::retention_s keeps
  std::uint32_t num_pinned = 0;              // ended requests that keep their blocks for the next turn of their job
  std::uint32_t num_awaiting_transfers = 0;  // requests, including ended requests, whose blocks a transfer holds
  // Transfers of the engine's connector: open now; ended since the start (loads and stores); failed. num_stray_transfers: reports for
  // transfers that are not open, an error of the transport that the engine ignores.
  std::uint32_t num_open_transfers = 0;
  std::uint64_t num_loads = 0, num_stores = 0, bytes_loaded = 0, bytes_stored = 0;
  std::uint64_t num_failed_transfers = 0, num_stray_transfers = 0;
  std::vector<KvTierStats> kv_tiers{};  // the nearest first
  std::optional<KvSwapStats> kv_swap{};
  std::optional<KvResidencyStats> kv_residency{};
  // Histogram of the number of leading blocks that all running requests share (summed over the cache groups), in each step with two or more
  // running requests. Present with CacheOptions::count_common_prefix, after the first such step.
  std::optional<HistogramSnapshot> common_prefix_blocks{};
  std::optional<SpeculationStats> speculation{};
  std::optional<AdapterStats> adapters{};
  ExpertReads expert_reads{};
  std::vector<std::string> running_adapters{}, waiting_adapters{};  // of running requests; of requests not admitted yet
  bool is_admission_stopped = false;                                // `PressureOptions::pressure_high`
  std::uint64_t num_admission_stops = 0;
  std::uint64_t num_pressure_preemptions = 0;  // `PressureOptions::pressure_preempts`
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_evicted_blocks = 0;
  std::uint64_t num_forks = 0;
  std::uint64_t num_copied_blocks = 0;     // copied for forks
  std::uint64_t prompt_tokens = 0;         // tokens in the prompts of requests that have their first token
  std::uint64_t prompt_tokens_cached = 0;  // prompt tokens of the same requests that were found in the prefix cache
  std::uint64_t generation_tokens = 0;
  std::uint64_t prefix_cache_queries = 0;  // tokens
  std::uint64_t prefix_cache_hits = 0;     // tokens
  // Queries and hits of tiers and connectors, in tokens after the hit in the prefix cache.
  std::uint64_t external_prefix_cache_queries = 0, external_prefix_cache_hits = 0;
  std::uint64_t finished_stop = 0, finished_length = 0, finished_abort = 0, finished_error = 0, finished_repetition = 0;
  ExplainTotals explained{};                               // totals by cause; zeros if EngineOptions::explained_requests is 0
  std::uint64_t trace_steps = 0, trace_steps_dropped = 0;  // steps written; steps dropped because the disk was too slow or failed
  std::uint64_t kv_event_batches = 0;                      // sent to subscribers
  std::uint64_t kv_event_batches_without_subscriber = 0;   // batches while there was no subscriber
  std::uint64_t kv_event_batches_dropped = 0;              // batches dropped because the publisher was too slow
  std::uint64_t journal_bytes = 0;                         // written
  std::string_view journal_ended{};        // why writing ended: "budget", "disk", "too_slow"; empty: not ended, or no journal
  std::uint64_t journal_memory_bytes = 0;  // used for the last minutes (`JournalOptions::memory_bytes`)
  bool is_paused = false;
  bool is_stopping = false;  // `Engine::stop` was called: new requests are rejected
  HistogramSnapshot time_to_first_token_s, inter_token_latency_s, e2e_latency_s, queue_time_s, step_time_s, scheduler_time_s;
  // With EngineOptions::step_time_target_ms: predicted and measured total time of the steps that were predicted, and the number of prompt
  // tokens without a context that fit into the next step with decodes.
  double predicted_steps_s = 0.0, measured_steps_s = 0.0;
  std::uint32_t prefill_limit = 0;
  // Times of the forward pass and of sampling in each step that computes.
  HistogramSnapshot forward_time_s, sample_time_s;
};

// Serves requests with one model. EngineBuilder (engine_builder.h) creates it.
class QUIRE_API Engine {
 public:
  virtual ~Engine() = default;

  // Submits a request and returns its id; with EngineRequest::n, the first of the consecutive ids. Thread-safe. Outputs go to `sink`, which
  // must outlive the request. An accepted request is not rejected later. submit() computes the prompt's block hashes on the caller's thread
  // and, without a lease, may read the adapter's files there. Errors: `invalid_argument` (a field is out of range; the prompt is empty, or
  // longer than max_model_len or the KV cache), `unsupported` (the model or the worker does not support a field), `overloaded` (the waiting
  // queue is full, or max_ttft_ms), `unavailable` (max_num_queued_reqs, max_num_queued_tokens), `shutting_down`, and the errors of
  // lease_adapter().
  virtual Result<RequestId> submit(EngineRequest request, OutputSink& sink) = 0;

  // Submits a request, waits for its end and returns the whole output: all tokens, with their log probabilities and experts if requested.
  // Thread-safe; must not be called on the engine thread. A request that fails after submit() is an error: RequestOutput::refusal, or `io`
  // with RequestOutput::error. Other errors: `invalid_argument` (`n` is not 1, or the request is a session, which does not end), and the
  // errors of submit().
  Result<RequestOutput> generate(EngineRequest request);

  // Forks a request and returns the first of `n` consecutive ids. Thread-safe. Errors: `invalid_argument` (n), `not_found` (the parent has
  // ended), `overloaded` (also while the engine thread does not know the parent yet), `unavailable`, `unsupported` (an encoder-decoder
  // model), `shutting_down`. If the fork fails later (the parent has ended meanwhile, max_tokens is reached, or
  // CoreLimits::max_fork_family), each child ends with FinishReason::error.
  virtual Result<RequestId> fork(RequestId parent, const EngineFork& fork, OutputSink& sink) = 0;

  // Appends input to a session. Thread-safe. Inputs are answered in order. Empty `tokens`: no more input will come, and the session ends
  // with its last answer. Errors: `not_found` (the session has ended), `invalid_argument` (not a session, the session's end was appended
  // before, a token is not in the vocabulary, or all inputs together exceed max_model_len). Input that does not fit after the answers ends
  // the session (RequestOutput::refusal). Input that is appended while the session's last output is being delivered may be accepted and
  // dropped.
  virtual Result<void> append(RequestId session, std::vector<TokenId> tokens) = 0;

  // Ends the request. Thread-safe and idempotent. The request's last output has `reason`, and its blocks are free at the next step. Use
  // `stop` for a stop string found by the caller, and `abort` for a client that disconnected.
  virtual void finish(RequestId id, FinishReason reason) = 0;

  // Control calls, down to cache_curve(), are thread-safe and do not wait.
  // Forgets all cached prefixes. The answer is false, and nothing is forgotten, while requests hold blocks, unless
  // CacheResetOptions::preempt_running is set.
  virtual void reset_prefix_cache(const CacheResetOptions& options, ControlCallback answer) = 0;
  // Clears the cache of image encoder outputs, so that each image is encoded again for the next request that contains it. The answer is
  // false if the model does not support images.
  virtual void reset_encoder_cache(ControlCallback answer) = 0;
  // Pauses the engine. The answer comes when no request runs any more: true, or false if resume() came first. If pause() is called several
  // times, the mode of the last call counts.
  virtual void pause(const PauseOptions& options, ControlCallback answer) = 0;
  // Ends the pause, however often pause() was called. The answer is true.
  virtual void resume(ControlCallback answer) = 0;
  // Explains why requests of this name waited, missed the cache and were preempted. Error: `unsupported` (EngineOptions::explained_requests
  // is 0).
  virtual void explain(std::string name, ExplainCallback answer) = 0;
  // Fills `frame` (quire/watch.h) with the state of the KV cache and of the requests. The caller must not use `frame` until the answer. The
  // engine thread copies the state between two steps, in 0.2 ms for 100,000 blocks. After 10 s without a call, the counts of block uses
  // restart.
  virtual void watch(std::shared_ptr<WatchFrame> frame, WatchCallback answer) = 0;
  // Finds out which tokens of this request the cache and the tiers hold now. The request is not submitted, and nothing changes.
  // TierMatch::tier is an index into EngineStats::kv_tiers. Errors: the errors of submit() about the request itself.
  virtual void probe(EngineRequest request, ProbeCallback answer) = 0;
  // Writes the last minutes of the journal to a file. `answer` is called on the journal's thread when the file is written; an error may be
  // reported immediately on the caller's thread. Errors: the errors of CoreJournal::save().
  virtual void save_journal(JournalSaveCallback answer) = 0;
  // Computes the hit rate of the prefix cache by size: over all requests and for each tenant, or only for one tenant. Error: `unsupported`
  // (EngineOptions::curve_blocks is 0; prefix caching is off; or CacheOptions::lifo_free_blocks, because the order of eviction then depends
  // on the size).
  virtual void cache_curve(std::optional<std::string> tenant, CurveCallback answer) = 0;

  // The next four calls handle LoRA adapters. They are thread-safe, and read files on the caller's thread. All except adapters() return
  // `invalid_argument` if the engine serves no adapters (EngineOptions::adapters).
  // Reads the folder `path`. From then on requests may name the adapter. `replace` allows a name that is in use; running requests keep the
  // old weights. Errors: `invalid_argument` (the name is empty or in use; the adapter is for another model), `not_found` (no such folder),
  // `unsupported`, `corrupt`, `overloaded` (max_cpu_loras are in use).
  virtual Result<AdapterInfo> load_adapter(const std::string& name, const std::string& path, bool replace = false) = 0;
  // Removes the adapter, so that new requests cannot use it. Error: `not_found`.
  virtual Result<void> unload_adapter(const std::string& name) = 0;
  // Returns the registered adapters, sorted by name; empty if the engine serves no adapters.
  [[nodiscard]] virtual std::vector<AdapterInfo> adapters() const = 0;
  // Returns a lease of the adapter. If the weights are not in memory, reads the adapter's files with `may_read`, and returns null without
  // it. Errors: `not_found`, and the errors of load_adapter().
  virtual Result<std::shared_ptr<const AdapterLease>> lease_adapter(const std::string& name, bool may_read) = 0;

  // Returns the copy that the engine thread made after its last step or command, and the current counts of adapters. Thread-safe.
  [[nodiscard]] virtual EngineStats stats() const = 0;
  // Return values that never change after creation.
  [[nodiscard]] virtual const ModelInfo& model() const = 0;
  [[nodiscard]] virtual const EngineOptions& options() const = 0;  // with a value in place of each 0 that stands for a default

  // Stops the engine. Rejects new requests, waits up to `timeout_s` seconds for running requests and transfers, and aborts the rest. Then
  // joins the engine thread and checks that every block was freed. Transfers that are still open are abandoned;
  // stats().num_awaiting_transfers counts their requests. Returns the number of aborted requests.
  virtual std::uint32_t stop(double timeout_s) = 0;
};

// The features of this machine, of its processor and its operating system, that this build can use.
struct HostFeatures {
  KernelIsa isa = KernelIsa::reference;  // instruction set of the kernels that an engine uses by default
  bool has_io_uring = false;             // false: the disk tier uses threads
};
QUIRE_API HostFeatures host_features();

// Returns the properties of a model from the headers of its files, without reading the weights. `mmproj`: see EngineOptions::mmproj.
// Errors: `not_found` (no such file or folder), `corrupt`, `unsupported` (an unknown architecture or weight type).
QUIRE_API Result<ModelInfo> inspect_model(const std::string& path, const std::string& mmproj = {});

// Returns the memory layout of this model's KV cache, with the cache groups and sizes that vLLM's get_kv_cache_configs would plan. Errors
// name the option: the memory holds no block, or holds no request of max_model_len tokens (not checked if max_model_len is 0).
QUIRE_API Result<KvLayout> plan_kv_layout(const ModelInfo& model, const EngineOptions& options);

// Returns the maximum number of blocks that one request of `num_tokens` tokens holds at one time, over all groups.
QUIRE_API std::uint64_t kv_blocks_per_request(const KvLayout& layout, std::uint32_t num_tokens, std::uint32_t max_num_batched_tokens);

}  // namespace quire
