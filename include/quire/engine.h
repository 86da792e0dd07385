#pragma once
// The engine: a model, its KV cache and its scheduler, stepped by one thread of its own.
// What a front end uses: it submits requests from any thread and receives their outputs on the engine's. The engine owns the model, the
// cache and its threads; a caller owns its sinks, which must outlive their requests. What a request gets does not depend on others, but for
// time.
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
#include "quire/base/kv_layout.h"
#include "quire/base/kv_transfer_params.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "quire/base/picture.h"
#include "quire/base/request.h"
#include "quire/base/sampling.h"
#include "quire/base/structured_output.h"
#include "quire/cache_probe.h"
#include "quire/lab/curve.h"
#include "quire/lab/explain.h"
#include "quire/saved_journal.h"

namespace quire {

// What a step produced for one request.
struct RequestOutput {
  RequestId id;
  std::vector<TokenId> tokens;             // new since the last output
  std::vector<PositionLogprobs> logprobs;  // one per new token, if asked for
  bool finished = false;
  bool input_ended = false;                  // of a session, which goes on: its answer to what it was given is over
  FinishReason reason = FinishReason::stop;  // when finished, or input_ended
  TokenId stop_token = -1;                   // the id that stopped it, if one did; it is also the last of `tokens`
  std::string error;                         // FinishReason::error: what happened, in words
  // The same, where the request was at fault, which showed after submit(): a grammar that cannot be compiled or costs too much.
  std::optional<Error> refusal{};
  std::uint32_t num_cached_tokens = 0;  // prompt tokens found in the prefix cache at first admission
  double waited_s = 0.0;                // from submit() to that
  // With the first token, if asked for: of each token of the prompt but the first. Requests of one prompt (EngineRequest::n) share them.
  std::shared_ptr<const std::vector<PositionLogprobs>> prompt_logprobs{};
  // If asked for, the experts of each token that was computed, [token][layer][expert]: ModelInfo::experts_per_token of each of the
  // num_layers layers, the likeliest first, zeros where a layer has none. Of all tokens of the prompt with the first one of the answer, and
  // shared as those above. Behind that, of the tokens before these, as many as were put out since: of the very last one there are none.
  std::shared_ptr<const std::vector<std::uint16_t>> prompt_experts{};
  std::vector<std::uint16_t> routed_experts{};
  std::vector<float> pooled{};  // of a pooling request, with its end
  // With its end, of one that asked for do_remote_decode: where its blocks are kept. Null: they are not.
  std::shared_ptr<const KvTransferParams> kv_transfer{};
};

// Receives outputs on the engine thread, once per step: hand them on and return; never block, never call the engine's stop().
class OutputSink {
 public:
  virtual ~OutputSink() = default;
  virtual void deliver(std::vector<RequestOutput> outputs) = 0;
};

// Which tool the output of a finished request calls; empty: none. Called on the engine thread; must be valid until the request's last
// output.
using NameTool = std::function<std::string(std::span<const TokenId> outputs)>;

// Instead of drawing tokens, the likeliest answers are searched for, as vLLM's server does (docs/beam_search.md).
struct BeamSearchOptions {
  // A hypothesis is judged by the log probability of its outputs over the number of its tokens, prompt and outputs, to this power.
  double length_penalty = 1.0;  // [-10, 10]
};

// Of an adapter's weights: they stay in memory while somebody holds one.
struct AdapterLease;

struct EngineRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::string cache_salt{};   // requests with different salts never share blocks
  std::int64_t priority = 0;  // smaller goes first; 0 unless SchedulingPolicy::priority
  RequestTags tags{};
  // So many requests with this prompt, with ids that follow each other; the i-th has the seed + i, if there is one. All but the first are
  // forked from it when its prompt is planned, and compute only the last token of the prompt again.
  std::uint32_t n = 1;
  NameTool name_tool{};  // under SchedulingPolicy::continuum, where the tags name no tool
  // Then `n` is the width of the search, at most 10, and its answers come at once when it is over, best first. It ends with the first of
  // them that is finished. What says how tokens are drawn (temperature, top_k, ...) does not matter to it.
  std::optional<BeamSearchOptions> beam_search{};
  // No tokens are drawn: the request ends with one vector, of the kind that sampling.pooling says: as many numbers as the model is wide
  // (ModelInfo::hidden_size), so many for each token of the prompt (at most kMaxPooledNumbers), or one for each of the tokens whose logits
  // it asks for.
  bool pooling = false;
  // A streaming session: where others end (EOS, a stop id, max_tokens) it waits for append(), and goes on behind all that it has put out,
  // whatever stopped it included, while its KV stays. max_tokens and min_tokens are of each answer. One that waits holds its blocks.
  bool session = false;
  // Compiled while the request waits, on a thread of its own; what it refuses ends the request (RequestOutput::refusal).
  std::optional<StructuredOutput> structured_output{};
  // What its client calls it: the trace tells it, and explain() finds by it all that were submitted or forked under it. May be empty.
  std::string name{};
  // Where KvPeerOptions are given: its blocks are kept for another server, or come from one. Such a request is one of its own (`n` is 1).
  std::optional<KvTransferParams> kv_transfer{};
  std::string adapter{};  // the name of one (EngineOptions::adapters, Engine::load_adapter); empty: the model alone
  // That adapter, where it was taken before (Engine::lease_adapter). Null: submit() does, which may read files.
  std::shared_ptr<const AdapterLease> adapter_lease{};
  // Of a model that sees (ModelInfo::pictures): what stands behind tokens of the prompt, in their order; of a session,
  // of its first part. Their encoder runs beside the steps of others before the request is planned.
  std::vector<PromptPicture> pictures{};
  // What the encoder of a model that has one reads (ModelInfo::encoder); such a model takes no request without. It is kept until the
  // request has ended.
  std::shared_ptr<const EncoderInput> encoder_input{};
};

// Requests that go on from where an open one is. Their first output is what it has put out so far; all else they have from it. The child of
// a session is one, too: in the midst of the same answer, or behind it (then its first output has input_ended); of what its parent was
// given and has not begun to answer it has nothing.
struct EngineFork {
  std::uint32_t n = 1;
  std::optional<std::uint64_t> seed{};        // the i-th has this + i; nullopt: each has its own
  std::optional<std::uint32_t> max_tokens{};  // in all; nullopt: as many as the parent
  std::string name{};                         // EngineRequest::name
};

// What becomes of the requests at hand when the engine pauses (vLLM's PauseMode). New ones wait in every mode.
enum class PauseMode : std::uint8_t {
  abort,  // they end at once, running or waiting
  wait,   // running ones go on to their end
  keep    // they stay as they are and go on after resume()
};

struct PauseOptions {
  PauseMode mode = PauseMode::abort;
  bool clear_cache = true;  // forget cached prefixes once nothing runs; kept requests are then computed again
};

struct CacheResetOptions {
  bool preempt_running = false;  // put running requests back, to be computed again; else they stand in the way
  bool external = false;         // what a connector keeps, too
};

// Called once, on the engine thread between two steps, or at once on the caller's if the engine is shutting down (`shutting_down`): hand it
// on and return, as from a sink.
using ControlAnswer = std::function<void(Result<bool>)>;
// The same, with what is known of the requests of a name, the oldest first; none: not known, or ended long ago.
using ExplainAnswer = std::function<void(Result<std::vector<RequestExplanation>>)>;
// What other sizes of the KV cache would have found, and what it takes to say that in bytes and seconds.
struct EngineCurve {
  CacheCurve curve;
  CurveCosts costs;
};
using CurveAnswer = std::function<void(Result<EngineCurve>)>;

// What a request would find, and until its first token, s: behind the prompts that came before it, as if there were room for all at once;
// for what is loaded; for what is computed. nullopt: not measured yet.
struct EngineProbe {
  CacheProbe cache;
  std::optional<double> wait_s, load_s, compute_s;
};
using ProbeAnswer = std::function<void(Result<EngineProbe>)>;

struct WatchFrame;
// The same, with the frame that was handed in, filled.
using WatchAnswer = std::function<void(Result<std::shared_ptr<WatchFrame>>)>;

// A LoRA adapter that requests may name.
struct AdapterInfo {
  std::string name, path;
  std::string digest;  // of its files as they were loaded last: SHA-256, hex
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;   // of its weights, in memory
  bool is_resident = false;  // else the next request that names it reads its files
};

// Where EngineOptions::adapters are served.
struct AdapterStats {
  std::uint32_t max_loras = 0;  // AdapterOptions
  std::uint32_t num_known = 0;
  std::uint32_t num_resident = 0;  // sets of weights, those included that only requests under way still have
  std::uint64_t bytes = 0;         // of those that the next request would find
  std::uint64_t num_loads = 0, num_evictions = 0, num_failed_loads = 0;
};

// Cumulative upper-bound buckets in seconds, as Prometheus has them; counts has one more entry than bounds (+Inf).
struct HistogramSnapshot {
  std::vector<double> bounds;
  std::vector<std::uint64_t> counts;
  double sum = 0.0;
};

// Of a tier below the KV cache, in host memory (KvDramOptions) or on disk (KvDiskOptions). What it holds has places there, a block of the
// KV cache in each.
struct KvTierStats {
  std::string name;  // "dram", "disk", "peer_cache", "remote" or "peer"
  std::uint64_t budget_bytes = 0, place_bytes = 0;
  std::uint32_t num_places = 0, num_used_places = 0;
  std::uint32_t num_unread_places = 0;    // what earlier processes left there is not known yet
  std::uint64_t num_restored_blocks = 0;  // that they left
  std::uint64_t num_stored_blocks = 0, num_loaded_blocks = 0, bytes_stored = 0, bytes_loaded = 0, tokens_loaded = 0;
  // Not stored: every place was in use by transfers, or unread. Not loaded: the bytes are others than were stored. And what the disk did
  // not do, or not in time.
  std::uint64_t num_without_room = 0, num_refused_blocks = 0, num_failed_blocks = 0;
  std::uint64_t num_held_back = 0;                            // not stored yet, so that a slow disk does not keep the cache's blocks
  std::uint64_t num_stored_at_end = 0;                        // of which so many were when the machine was idle thereafter
  std::uint64_t num_computed_tokens = 0;                      // not loaded, because computing them is faster
  double load_bytes_per_s = 0.0, compute_tokens_per_s = 0.0;  // measured; 0: not yet
  std::uint64_t num_taken_blocks = 0;    // of the stored ones, those that came from the tier above as they cooled there
  std::uint64_t num_dropped_blocks = 0;  // evicted before they were in the tier below, where blocks move down
  // It fails, hangs or is gone: nothing is loaded, or stored, until a trial succeeds.
  bool loads_left_out = false, stores_left_out = false;
  std::uint64_t num_times_left_out = 0;
  // Of a store that must be asked what it holds, or of other servers (KvPeerCacheOptions): names that it was asked for and has, questions
  // that were not answered in time, and blocks that it has forgotten.
  std::uint64_t num_asked_blocks = 0, num_found_blocks = 0, num_late_answers = 0, num_absent_blocks = 0;
  // Of a server that keeps blocks for others (KvPeerOptions): requests whose blocks it keeps; that it has kept; and of these, those that
  // nobody had fetched in time.
  std::uint32_t num_open_leases = 0;
  std::uint64_t num_leases = 0, num_expired_leases = 0;
  std::string problem = {};  // what went wrong last, in the store's words or the system's; not to be believed
};

// Of preempted requests whose blocks lie outside of the KV cache (KvSwapOptions). The rates are measured; 0: not yet.
struct KvSwapStats {
  std::uint32_t num_places = 0, num_far_places = 0, num_used_places = 0;  // blocks; far: in files
  std::uint64_t place_bytes = 0;
  std::uint64_t num_out = 0, num_out_blocks = 0;                   // requests, and the blocks that were stored for them
  std::uint64_t num_in = 0, num_in_blocks = 0, num_in_tokens = 0;  // that came back, and what they did not compute again
  std::uint64_t num_lost = 0;                       // computed again all the same: a transfer failed, or others lacked blocks
  std::uint64_t num_no_place = 0, num_no_gain = 0;  // not swapped: no room; or computing again is as fast
  std::uint64_t num_refused_blocks = 0;             // the bytes are others than were stored
  double out_bytes_per_s = 0.0, in_bytes_per_s = 0.0;
  double far_out_bytes_per_s = 0.0, far_in_bytes_per_s = 0.0;
};

// Of drafts (NgramOptions).
struct SpeculationStats {
  std::uint64_t num_drafts = 0;           // steps of requests that had any
  std::uint64_t num_draft_tokens = 0;     // of these, computed
  std::uint64_t num_accepted_tokens = 0;  // and right
  std::vector<std::uint64_t> num_accepted_per_position{};
};

// Lives of blocks in the KV cache, with CacheOptions::kv_cache_metrics: of the share that is followed, counted when a block is taken for
// other content or forgotten. A reset of the cache ends them uncounted, as in vLLM.
struct KvResidencyStats {
  HistogramSnapshot lifetime_s;           // since it was taken
  HistogramSnapshot idle_before_evict_s;  // since it was used last
  HistogramSnapshot reuse_gap_s;          // between its last four uses
};

// // Read by any thread through Engine::stats(), which copies it under a lock that is held for the copy alone.
// A consistent copy made by the engine thread after each step. Counters grow from the start of the engine.
struct EngineStats {
  std::uint64_t num_steps = 0;
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;  // preempted and held back ones included
  std::uint32_t num_blocks = 0;   // without the null block
  std::uint32_t num_free_blocks = 0;
  std::uint32_t num_named_blocks = 0;        // in the prefix cache, referenced or not
  std::uint32_t num_pinned = 0;              // ended requests whose blocks stay for the next turn of their job
  std::uint32_t num_awaiting_transfers = 0;  // requests, also ended ones, whose blocks a transfer holds
  // Transfers of a connector of the engine's own: under way; over since the start; and ends that nothing had begun, which are the
  // transport's error and passed over.
  std::uint32_t num_open_transfers = 0;
  std::uint64_t num_loads = 0, num_stores = 0, bytes_loaded = 0, bytes_stored = 0;
  std::uint64_t num_failed_transfers = 0, num_stray_transfers = 0;
  std::vector<KvTierStats> kv_tiers{};  // the nearest first
  std::optional<KvSwapStats> kv_swap{};
  std::optional<KvResidencyStats> kv_residency{};
  // Blocks, summed over the cache groups, that every request in the cache began with, in each step of two or more; with
  // CacheOptions::count_common_prefix, after the first such step.
  std::optional<HistogramSnapshot> common_prefix_blocks{};
  std::optional<SpeculationStats> speculation{};
  std::optional<AdapterStats> adapters{};
  ExpertReads expert_reads{};
  std::vector<std::string> running_adapters{}, waiting_adapters{};  // that requests name which run, or have not been admitted yet
  bool is_admission_stopped = false;                                // PressureOptions::pressure_high
  std::uint64_t num_admission_stops = 0;
  std::uint64_t num_pressure_preemptions = 0;  // PressureOptions::pressure_preempts
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_evicted_blocks = 0;
  std::uint64_t num_forks = 0;
  std::uint64_t num_copied_blocks = 0;     // for forks
  std::uint64_t prompt_tokens = 0;         // of requests that have their first token
  std::uint64_t prompt_tokens_cached = 0;  // of these, found in the prefix cache
  std::uint64_t generation_tokens = 0;
  std::uint64_t prefix_cache_queries = 0;  // tokens
  std::uint64_t prefix_cache_hits = 0;     // tokens
  // The same, of tiers and connectors, behind what the cache has.
  std::uint64_t external_prefix_cache_queries = 0, external_prefix_cache_hits = 0;
  std::uint64_t finished_stop = 0, finished_length = 0, finished_abort = 0, finished_error = 0;
  ExplainTotals explained{};                               // causes, over all requests; zeros where EngineOptions::explained_requests is 0
  std::uint64_t trace_steps = 0, trace_steps_dropped = 0;  // written; not written because the disk did not keep up, or failed
  std::uint64_t kv_event_batches = 0;                      // published
  std::uint64_t kv_event_batches_dropped = 0;              // the publisher did not keep up
  std::uint64_t journal_bytes = 0;                         // written
  std::string_view journal_ended{};        // why no more will be: "budget", "disk", "too_slow"; empty: it goes on, or there is none
  std::uint64_t journal_memory_bytes = 0;  // of the last minutes (JournalOptions::memory_bytes)
  bool is_paused = false;
  bool is_stopping = false;  // Engine::stop was called: it takes no requests any more
  HistogramSnapshot time_to_first_token_s, inter_token_latency_s, e2e_latency_s, queue_time_s, step_time_s, scheduler_time_s;
  // The worker's part of steps that compute.
  HistogramSnapshot forward_time_s, sample_time_s;
};

// Made by an EngineBuilder (engine_builder.h).
class QUIRE_API Engine {
 public:
  virtual ~Engine() = default;

  // Thread-safe. Outputs go to `sink`, which must outlive the request. Errors: `invalid_argument` (a field is out of range, the prompt is
  // empty, longer than max_model_len or than the KV cache), `overloaded` (waiting queue full), `shutting_down`, those of lease_adapter().
  // Reads the files of an adapter that is not in memory, unless the request comes with its lease, and names the blocks of the
  // prompt, so it takes the caller's time; what it accepts is not refused later. Answers the id, of several (EngineRequest::n) the first.
  virtual Result<RequestId> submit(EngineRequest request, OutputSink& sink) = 0;

  // Thread-safe. The first of `n` ids that follow each other. Errors: `invalid_argument` (n), `not_found` (the parent has ended),
  // `overloaded` (also while the parent is so new that the engine thread does not know it), `shutting_down`. What cannot be forked when it
  // comes to it (it has ended by then; max_tokens are there already; CoreLimits::max_fork_family) ends each with FinishReason::error.
  virtual Result<RequestId> fork(RequestId parent, const EngineFork& fork, OutputSink& sink) = 0;

  // Thread-safe. More of a session's prompt, to be answered when what came before is; empty: no more will come, and the session ends with
  // the answer to the last. Errors: `not_found` (it has ended), `invalid_argument` (it is no session, has been told its end, a token is not
  // in the vocabulary, or all inputs together are longer than max_model_len). What does not fit behind the answers so far ends the session
  // (RequestOutput::refusal).
  virtual Result<void> append(RequestId session, std::vector<TokenId> tokens) = 0;

  // Thread-safe and idempotent: the request's blocks are free at the next step; its last output says `reason`.
  // `stop` is for a stop string found by the caller, `abort` for a client that went away.
  virtual void finish(RequestId id, FinishReason reason) = 0;

  // What an operator may ask; thread-safe, and none of them waits.
  // Forgets all cached prefixes. Answers whether it did: not while requests hold blocks.
  virtual void reset_prefix_cache(const CacheResetOptions& options, ControlAnswer answer) = 0;
  // Answers when nothing runs any more: true, or false if resume() came first. Of several pauses the last mode counts.
  virtual void pause(const PauseOptions& options, ControlAnswer answer) = 0;
  // Answers true.
  virtual void resume(ControlAnswer answer) = 0;
  // Why requests of that name waited, missed the cache and were preempted. Errors: `unsupported` (EngineOptions::explained_requests is 0).
  virtual void explain(std::string name, ExplainAnswer answer) = 0;
  // What the KV cache holds and who waits for what, as of now, into `frame` (quire/watch.h), which is nobody else's until the answer. The
  // engine thread copies it between two steps, 0.2 ms for 100,000 blocks. Who looks less often than every 10 s finds uses of blocks
  // counted anew.
  virtual void watch(std::shared_ptr<WatchFrame> frame, WatchAnswer answer) = 0;
  // What this request would find in the cache and below it, if it came now; it is not submitted, and nothing is changed by the question.
  // TierMatch::tier is an index of EngineStats::kv_tiers. Errors: those of submit() that are about the request itself.
  virtual void probe(EngineRequest request, ProbeAnswer answer) = 0;
  // Writes the last minutes of the journal to a file. Answers when it is written, on a thread of the journal's own; what is refused at once
  // on the caller's. Errors: those of CoreJournal::save().
  virtual void save_journal(JournalSaveAnswer answer) = 0;
  // The hit rate of the prefix cache by its size, of all requests and of each tenant's; or of one tenant's alone. Errors: `unsupported`
  // (EngineOptions::curve_blocks is 0, prefix caching is off, or CacheOptions::lifo_free_blocks: then the order of eviction depends on the
  // size).
  virtual void cache_curve(std::optional<std::string> tenant, CurveAnswer answer) = 0;

  // LoRA adapters; thread-safe, and what reads files takes the caller's time. Errors of all: `invalid_argument` (EngineOptions::adapters
  // serve none).
  // Reads the folder, and requests may name the adapter from then on. `replace`: also where one of that name is known; requests under way
  // go on with what they have. Errors: `invalid_argument` (an empty name, one that is known; it is made for another model), `not_found` (no
  // such folder), `unsupported`, `corrupt`, `overloaded` (max_cpu_loras are in use).
  virtual Result<AdapterInfo> load_adapter(const std::string& name, const std::string& path, bool replace = false) = 0;
  // It is refused to new requests. Errors: `not_found`.
  virtual Result<void> unload_adapter(const std::string& name) = 0;
  // By name; none where none are served.
  [[nodiscard]] virtual std::vector<AdapterInfo> adapters() const = 0;
  // Of an adapter whose weights are in memory; null where they are not, unless `may_read`: then its files are read. Errors: `not_found`,
  // and those of load_adapter().
  virtual Result<std::shared_ptr<const AdapterLease>> lease_adapter(const std::string& name, bool may_read) = 0;

  // Thread-safe.
  [[nodiscard]] virtual EngineStats stats() const = 0;
  // Immutable after create.
  [[nodiscard]] virtual const ModelInfo& model() const = 0;
  [[nodiscard]] virtual const EngineOptions& options() const = 0;  // with every 0 default resolved

  // No new requests; waits up to `timeout_s` for the running ones and for transfers, aborts the rest, joins the engine thread, and checks
  // that every block came back. Transfers that are not over by then are left: stats().num_awaiting_transfers counts them. Returns the
  // number of requests aborted.
  virtual std::uint32_t stop(double timeout_s) = 0;
};

// Errors: `not_found` (no such file or folder), `corrupt`, `unsupported` (an architecture or weight type that is not known).
// Reads the header of a model, not its weights.
// `mmproj`: EngineOptions::mmproj.
QUIRE_API Result<ModelInfo> inspect_model(const std::string& path, const std::string& mmproj = {});

// How the KV cache of this model lies in memory: cache groups and sizes as vLLM's get_kv_cache_configs plans them. Errors name the option:
// the memory holds no block, or no request of max_model_len tokens (0: none is asked for).
QUIRE_API Result<KvLayout> plan_kv_layout(const ModelInfo& model, const EngineOptions& options);

// The most blocks that one request of so many tokens holds at once, over all groups.
QUIRE_API std::uint64_t kv_blocks_per_request(const KvLayout& layout, std::uint32_t num_tokens, std::uint32_t max_num_batched_tokens);

}  // namespace quire
