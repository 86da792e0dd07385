#pragma once
// The core decides which tokens of which requests run in each step, and which blocks hold their keys and values.
//
// The core is a deterministic state machine: single-threaded, without I/O, clock or random source. Equal calls give equal plans. In its
// default mode its decisions equal the decisions of vLLM V1 (v0.19.0): the same requests in the same order, with the same token counts and
// blocks.
//
//   schedule() -> plan N -> the worker runs it -> apply(result N)
//
// Each plan must be applied, in order. At most CoreLimits::max_outstanding_plans plans may be outstanding (made and not yet applied): 1 for
// synchronous steps; 2 with SchedulerOptions::async_scheduling, where placeholders represent the tokens in flight; one per stage with a
// pipeline.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quire/base/api.h"
#include "quire/base/core_config.h"
#include "quire/base/error.h"
#include "quire/base/ids.h"
#include "quire/base/kv_events.h"
#include "quire/base/kv_stats.h"
#include "quire/base/plan.h"
#include "quire/base/request.h"
#include "quire/cache_probe.h"
#include "quire/connector.h"

namespace quire {

// How far scheduling is paused. paused_new: running requests continue, and no waiting request is admitted. paused_all: schedule() plans
// nothing. Requests may be added in every state.
enum class PauseState : std::uint8_t { unpaused, paused_new, paused_all };

class CallSink;
class EventSink;
class HashFunction;
struct PseudonymKey;
struct WatchFrame;

// Interfaces that the core calls. All are optional, and all of them must outlive the core.
struct CoreSeams {
  Connector* connector = nullptr;
  // Says whether an encoder output is stored outside of the worker. Called before the encoder would run.
  EncoderConnector* encoder_connector = nullptr;
  // Constrains structured output. Without it, requests with structured output are rejected.
  Grammar* grammar = nullptr;
  // Names the tool that a job calls when one of its requests ends without a tool in its tags (SchedulingPolicy::continuum).
  ToolNamer* tools = nullptr;
  EventSink* events = nullptr;   // receives each decision and its cause, at the time of the decision
  HashFunction* hash = nullptr;  // computes block hashes instead of PrefixCacheOptions::hash
  CallSink* calls = nullptr;     // receives each call to the core and its answer (quire/core_call.h)
};

// Time and random seed of one call.
struct StepInput {
  double now = 0.0;          // seconds, monotonic
  std::uint64_t random = 0;  // seeds the random draws of this call
};

enum class RequestEventKind : std::uint8_t { queued = 1, scheduled = 2, preempted = 3 };  // as in vLLM's EngineCoreEventType
// One event in a request's life. `timestamp` is the StepInput::now of the call in which it happened, in seconds.
struct RequestEvent {
  RequestEventKind kind;
  double timestamp = 0.0;
};

// Describes what apply() or finish() did to one request (vLLM's EngineCoreOutput). Requests without changes have no update.
struct RequestUpdate {
  RequestId id;
  std::uint32_t client_index = 0;
  std::uint32_t result_index = 0;                 // index into the plan's `scheduled`; UINT32_MAX: not caused by a result (failed KV load)
  std::span<const TokenId> tokens;                // tokens that this step appended
  bool finished = false;                          // the request ended, or a streaming session reached the end of its input
  RequestStatus status = RequestStatus::running;  // the finished status, if `finished`
  FinishReason reason = FinishReason::stop;       // why the request ended, if `finished`
  std::optional<TokenId> stop_token;              // the stop id that ended the request (not an EOS id); also the last of `tokens`
  bool session_waits = false;                     // the input of a streaming session ended, not the request
  std::int64_t num_cached_tokens = 0;             // prompt tokens found in a cache at first admission
  std::int64_t num_external_computed_tokens = 0;
  std::uint32_t num_hashed_tokens = 0;   // in the request's first update: leading tokens found in the prefix cache
  std::span<const RequestEvent> events;  // events since the last update, with log_stats
};

// Reports that a request left the waiting queue for the first time. A request that resumes after a preemption is not reported again.
struct FirstAdmission {
  RequestId id;
  std::uint32_t num_cached_tokens = 0;
};

// Counts of draft tokens since the previous stats. A draft is the set of draft tokens that one request verified in one step.
struct SpecDecodingStats {
  std::uint32_t num_spec_tokens = 0;
  std::uint64_t num_drafts = 0, num_draft_tokens = 0, num_accepted_tokens = 0;
  // Has num_spec_tokens entries. [i]: number of drafts whose (i+1)-th token was accepted; never increases with i.
  std::vector<std::uint64_t> num_accepted_per_position;
  std::vector<std::uint64_t> num_drafted_per_position;  // [i]: number of drafts that had an (i+1)-th token
};

// Statistics of the scheduler (vLLM's SchedulerStats). Counters cover the time since the previous stats.
struct SchedulerStats {
  std::uint32_t num_running = 0, num_waiting = 0;
  std::uint32_t num_deferred = 0;  // waiting requests that were passed over or are blocked (DecisionRules::block_holders_first)
  // Fractions from 0 to 1: referenced blocks of the KV cache, and used embeddings of the encoder cache.
  double kv_cache_usage = 0.0, encoder_cache_usage = 0.0;
  PrefixCacheStats prefix_cache;
  std::optional<PrefixCacheStats> connector_prefix_cache;
  std::optional<SpecDecodingStats> spec_decoding;
  std::span<const KvEvictionEvent> evictions;
};

// Ids of one client's requests that ended since the last outcome, if ReportOptions::include_finished_set is on. Front ends that share a
// core read the set with their client_index.
struct FinishedSet {
  std::uint32_t client_index = 0;
  std::span<const RequestId> ids;
};

// The result of apply(). A view, valid until the next apply().
struct StepOutcome {
  StepId step;
  std::span<const RequestUpdate> updates;            // in the plan's order
  std::span<const FirstAdmission> first_admissions;  // first admissions in this step's plan
  std::span<const RequestId> preempted;              // requests that this step's plan preempted
  // Requests whose blocks could not be loaded. The plan's results for these requests were dropped.
  std::span<const RequestId> failed_loads;
  std::span<const RequestId> retired;  // requests to which the core no longer refers: their `sampling` may be freed
  std::span<const KvEvent> kv_events;  // events of the prefix cache since the last outcome
  std::span<const FinishedSet> finished_sets;
  const SchedulerStats* stats = nullptr;  // with log_stats
};

// The effect of finish() on a request.
enum class FinishEffect : std::uint8_t {
  unknown,   // no such request, or it had ended before: the call had no effect
  retired,   // removed; `sampling` may be freed
  in_flight  // finished, but an outstanding plan or a transfer refers to it: StepOutcome::retired reports it later
};

// State and totals of a core. Totals count from the creation of the core.
struct CoreCounters {
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;  // includes skipped and preempted requests
  // vLLM's get_num_unfinished_requests, which depends on the pause state. With vLLM 0.32.0's rules it can be negative: a session that was
  // stopped late is in no queue, but counts as waiting for input.
  std::int32_t num_unfinished = 0;
  // Requests whose blocks a transfer fills, and finished requests whose blocks a transfer still needs.
  std::uint32_t num_awaiting_transfers = 0;
  std::uint32_t num_open_transfers = 0;
  std::uint32_t num_pinned = 0;           // finished requests that keep their blocks for the next turn of their job
  std::uint32_t num_blocks = 0;           // without the null block
  std::uint32_t num_free_blocks = 0;      // includes cached blocks without a reference
  std::uint32_t num_cached_blocks = 0;    // with a block hash, referenced or not
  std::uint32_t num_retained_blocks = 0;  // free blocks that RequestTags::retention_s keeps
  std::uint64_t num_steps = 0;
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_evicted_blocks = 0;
  std::uint64_t num_scheduled_tokens = 0;
  std::uint64_t num_forks = 0;
  std::uint64_t num_copied_blocks = 0;  // copied for forks
  bool is_admission_stopped = false;    // `PressureOptions::pressure_high`
  std::uint64_t num_admission_stops = 0;
  std::uint64_t num_pressure_preemptions = 0;  // `PressureOptions::pressure_preempts`
  // With SwapOptions: slots in use, requests and blocks that were swapped out and in, and swapped-out requests that are computed again.
  std::uint32_t num_used_swap_slots = 0;
  std::uint64_t num_swapped_out = 0, num_swapped_out_blocks = 0;
  std::uint64_t num_swapped_in = 0, num_swapped_in_blocks = 0, num_swapped_in_tokens = 0;
  std::uint64_t num_swaps_lost = 0;     // a transfer failed, or other requests needed the blocks that the request had kept
  std::uint64_t num_swaps_no_slot = 0;  // not swapped out, because no slot was free
  std::uint64_t num_swaps_no_gain = 0;  // not swapped out, because computing is as fast (SwapChoice::measured)
  // Prefix-cache look-ups of requests that were never preempted, and of requests that resume after a preemption. Each retry of an admission
  // counts again, except under PrefillLimits.
  std::uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  std::uint64_t preempted_prefix_query_tokens = 0, preempted_prefix_hit_tokens = 0;
  // For requests that were admitted or began to load: tokens for which the connector was queried, and tokens to be loaded as a result.
  std::uint64_t external_query_tokens = 0, external_hit_tokens = 0;
};

// Draft tokens of one request, proposed after a step.
struct Draft {
  RequestId id;
  std::span<const TokenId> tokens;
};

// Measured speeds of swapping and of prefill. 0: not known; SwapChoice::measured then swaps nothing.
struct SwapCosts {
  double out_bytes_per_s = 0.0, in_bytes_per_s = 0.0;
  double disk_out_bytes_per_s = 0.0, disk_in_bytes_per_s = 0.0;  // `SwapOptions::num_slow_slots`
  double prefill_tokens_per_s = 0.0;

  friend bool operator==(const SwapCosts&, const SwapCosts&) = default;
};

// Limits of the prompt tokens that one step computes; 0: only max_num_batched_tokens limits them. Tenants share these tokens (with
// SchedulerOptions::tenant_turns), then up to four requests of each tenant, running requests first. The first running prompt gets a chunk
// in each step, so that it ends. A host sets the limits from measured step times, so that a long prompt delays other requests little. The
// limits do not apply without chunked prefill, nor to requests with encoder inputs. vLLM has no such limits.
//
// Attention reads all tokens before a token, so a token counts as 1 + (number of tokens before it) / context_of_double_cost.
struct PrefillLimits {
  std::uint32_t beside_decodes = 0;          // in steps in which a request decodes, or may begin to decode
  std::uint32_t without_decodes = 0;         // in other steps
  std::uint32_t context_of_double_cost = 0;  // in tokens; 0: each token counts as one

  friend bool operator==(const PrefillLimits&, const PrefillLimits&) = default;
};

struct CoreSnapshot;

// Whether a checkpoint contains the token ids of requests.
enum class CheckpointTokens : std::uint8_t { kept, left_out };

// The queue in which visit() finds a request.
enum class QueueKind : std::uint8_t { running, waiting, skipped_waiting, pinned };

// The scheduler and KV-cache manager of one model. All calls must come from one thread.
class QUIRE_API Core {
 public:
  // Creates a core and copies the config. Errors: the errors of CoreConfig::validate(); `root_hash`; `prefix_caching_hash_algo`: this build
  // does not support the hash algorithm.
  static Result<std::unique_ptr<Core>> create(const CoreConfig& config, const CoreSeams& seams = {});
  // Creates a core that continues from a checkpoint() of any core: from its first call on, its decisions equal the decisions of the
  // original. Both cores need the same configuration, and seams that give the same answers. The caller restores the state of the seams (a
  // connector's tiers, grammars, a worker); the connector is bound to the new core. Plans that were outstanding are outstanding again
  // (outstanding_plan()). The last outcome is not restored, and `sampling` is null in all restored requests.
  // Errors: the errors of create(); `checkpoint` (`invalid_argument`): the bytes are damaged, of another version or inconsistent (the
  // message has the byte or the rule); `config`: the configuration differs from the original's.
  // Safe for any bytes: restore() reads no memory beyond them, and allocates only what the bytes or the configuration justify. However,
  // consistent values are trusted like a configuration: a forged checkpoint can make the new core decide badly, or stop at a broken
  // invariant.
  static Result<std::unique_ptr<Core>> restore(const CoreConfig& config, const CoreSeams& seams, std::span<const std::uint8_t> bytes);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Puts the request into the waiting queue. Errors name the field: `invalid_argument` (for instance: the id is in use; the prompt does not
  // fit the model or the cache, unless SchedulerOptions::admit_oversized), `overloaded` (max_num_waiting). max_tokens is reduced to what
  // max_model_len allows, unless admit_oversized.
  Result<void> add(const NewRequest& request, const StepInput& input = {});
  // Appends the next input of a session and copies it. nullptr: no more input will come. An input that arrives while the session still runs
  // is queued. Errors: `id`: unknown, or not a session; `tokens`: the input is empty or does not fit after the computed tokens;
  // `multimodal`: items are out of order or exceed the input.
  Result<void> continue_session(RequestId id, const SessionInput* input, const StepInput& now = {});

  // Adds a request that begins with the parent's tokens and shares the parent's blocks. The child computes again only the last of these
  // tokens, and only if it needs that token's result to sample. A shared partial block is copied in the plan in which the first holder
  // writes to it; the last holder writes in place.
  // The child waits at the front of the queue (or in the order of its priority). If a running request needs blocks, or nothing else can
  // run, the child releases the shared blocks and is computed like any other request. Blocks that a connector has filled are shared, too.
  // Nothing is shared while the parent's blocks are being loaded; the child is then looked up in the cache at its admission. In a model
  // with states, blocks are shared only up to the end of a block, or up to the parent's current state if all its tokens in flight are
  // known.
  // Errors name the field: `not_found` (the parent), `invalid_argument` (an id in use, a parent that has ended, counts out of range),
  // `overloaded` (max_num_waiting, max_fork_family), `unsupported` (pooling, an encoder-decoder model, a grammar that cannot go back to the
  // child's first token, the decisions of vLLM 0.32.0).
  Result<void> fork(RequestId parent, const ForkRequest& child, const StepInput& input = {});

  // Decides a step and returns its plan. The plan is valid until it is applied. A plan that schedules nothing must be applied, too.
  const StepPlan& schedule(const StepInput& input = {});

  // Takes the result of the oldest outstanding plan and returns the outcome. Errors, after which nothing has changed: the result does not
  // match the plan, a transfer belongs to an unknown request, or a block is out of range.
  Result<const StepOutcome*> apply(const StepResult& result, const StepInput& input = {});
  // Returns the requests that, according to the result, ran on blocks that were not loaded. apply() will drop their results. Call it before
  // apply(), with FixOptions::unloaded_begin_anew.
  [[nodiscard]] std::vector<RequestId> requests_invalidated_by(const StepResult& result) const;

  // Sets draft tokens for the next plan (vLLM: update_draft_token_ids). Drafts of unknown or finished requests are ignored.
  void set_drafts(std::span<const Draft> drafts);
  // Replaces the placeholders in the newest outstanding plan by draft tokens (vLLM: update_draft_token_ids_in_output).
  void set_drafts_in_plan(std::span<const Draft> drafts);

  // Ends a request in any state. `status` must be a finished status. An unknown or finished id has no effect. The blocks are freed
  // immediately unless a connector keeps them.
  FinishEffect finish(RequestId id, RequestStatus status, const StepInput& input = {});
  // Ends requests in the order of `ids`. Appends the ids of requests that this call ended to `finished`.
  void finish(std::span<const RequestId> ids, RequestStatus status, std::vector<RequestId>& finished, const StepInput& input = {});

  // Removes the request's block hashes from the prefix cache, whichever requests hold the blocks, and notifies the connector. Call it when
  // the request's blocks contain NaN or Inf. An unknown id has no effect.
  void forget_blocks(RequestId id);

  // Forgets all cached prefixes and returns true. Returns false, and keeps the prefixes, while a request holds blocks or is swapped out.
  // Also returns false if the connector refuses its reset (`reset_connector`). With `preempt_running`, all running requests are preempted
  // first. Error: transfers still hold blocks after that.
  Result<bool> reset_prefix_cache(bool preempt_running = false, bool reset_connector = false, const StepInput& input = {});
  // Ends all pins immediately. Call it before a shutdown.
  void end_pins();
  [[nodiscard]] bool has_connector() const;
  // Resets the connector's cache. Returns false if the connector keeps its blocks. Without a connector returns false, or true with vLLM
  // 0.32.0's rules.
  bool reset_connector_cache();
  // Forgets all encoder outputs, including outputs to which requests refer, after the weights have changed. No plan reports these outputs
  // as freed: the caller must make the worker forget its copies.
  void reset_encoder_cache();

  // Sets the measured costs of swapping on which later decisions are based.
  void set_swap_costs(const SwapCosts& costs);

  // Limits the prompt tokens of later steps.
  void set_prefill_limits(const PrefillLimits& limits);

  [[nodiscard]] PauseState pause_state() const;
  // Sets the pause state. It takes effect with the next schedule(). Plans in flight are applied as usual.
  void set_pause_state(PauseState state);

  // Returns and resets the stats that the next outcome would carry (vLLM's make_stats()); null without log_stats. Valid until the next
  // call.
  const SchedulerStats* make_stats();

  [[nodiscard]] bool has_work() const;               // a request is running or waiting
  [[nodiscard]] bool has_finished_requests() const;  // a request has ended since the last plan, and the worker has not been notified yet
  // Returns the time at which schedule() has work although no request waits: the time at which a pin expires, or -inf if retired ids must
  // be reported.
  [[nodiscard]] std::optional<double> next_deadline() const;
  [[nodiscard]] std::uint32_t num_outstanding_plans() const;
  // Returns an outstanding plan; the oldest has index 0. The plan equals what schedule() returned, except for the tokens of a session that
  // has continued since, and the blocks of transfers that are over.
  [[nodiscard]] const StepPlan& outstanding_plan(std::uint32_t index) const;
  [[nodiscard]] CoreCounters counters() const;
  [[nodiscard]] bool all_blocks_free() const;
  [[nodiscard]] std::optional<RequestView> view(RequestId id) const;
  // Returns how many tokens of this request's prompt the prefix cache and the connector hold. The request is not added, no block is
  // allocated, counted or marked as used, and no decision changes. Needs memory for the prompt's block hashes. prompt_storage is not moved
  // from. Errors: the errors of add() about the request itself.
  [[nodiscard]] Result<CacheProbe> probe(const NewRequest& request) const;
  // Returns the blocks of a request in one cache group.
  [[nodiscard]] std::span<const BlockId> blocks(RequestId id, std::uint32_t group) const;
  // Fills the vectors with the running and waiting requests, each in the order in which they would be scheduled. Previous contents are
  // removed.
  void queues(std::vector<RequestId>& running, std::vector<RequestId>& waiting, std::vector<RequestId>& skipped_waiting) const;
  // Calls `visit` for each running, waiting and pinned request, in the order of the queues.
  void visit(const std::function<void(QueueKind, const RequestView&)>& visit) const;
  // Return the number of references to a block, and its block hash followed by the group id (empty: the block has no hash).
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const;
  [[nodiscard]] std::vector<std::uint8_t> block_key(BlockId block) const;

  // Returns the whole state as bytes, for restore(). May be called between any two calls, also while plans are outstanding. Equal states
  // give equal bytes. Size: about 4 bytes per token of all requests, 36 per block of the requests, 8 per block of the pool, and 48 per
  // block with a hash (bench/scheduler.md).
  // With CheckpointTokens::left_out, all tokens have the same meaningless id, and with `key` block hashes are replaced. A core restored
  // from such a checkpoint makes the same decisions if it receives the recorded answers that depend on tokens (quire/journal.h).
  [[nodiscard]] std::vector<std::uint8_t> checkpoint(CheckpointTokens tokens = CheckpointTokens::kept,
                                                     const PseudonymKey* key = nullptr) const;
  // Fills `frame` with the state that a dashboard shows (quire/watch.h), except `waits_for`. The first call starts the bookkeeping, and
  // end_watch() ends it. Cost of the bookkeeping: 12 bytes per block, and a write for each block that is allocated, hit, cached or freed.
  // Changes no decision.
  void watch(WatchFrame& frame);
  void end_watch();
  // Copies the whole state, for tests, dumps and comparisons.
  void snapshot(CoreSnapshot& out) const;
  // Recomputes all invariants from scratch and stops the program if one is broken. Slow: for tests and shutdown.
  void check_invariants() const;

 private:
  struct QUIRE_HIDDEN State;
  explicit Core(std::unique_ptr<State> state);
  static Result<std::unique_ptr<Core>> make(const CoreConfig& config, const CoreSeams& seams);  // not bound to a connector
  std::unique_ptr<State> state_;
};

// A copy of everything that decisions depend on, for comparison: two cores that received the same calls have equal snapshots. A list is in
// the core's order if the order affects decisions, and is otherwise sorted by id.
struct CoreSnapshot {
  struct Request {
    RequestId id;
    RequestStatus status;
    std::uint32_t num_tokens, num_computed_tokens, num_preemptions;
    std::int32_t num_output_placeholders;
    std::int64_t num_cached_tokens, num_external_computed_tokens;
    bool is_prefill_chunk, discard_latest_async_tokens;
    std::int32_t num_tokens_in_flight, num_stale_tokens;
    bool drops_stale, deferred;
    std::vector<TokenId> tokens, draft_tokens;
    std::vector<std::vector<BlockId>> blocks;                     // per group
    std::vector<std::optional<std::uint32_t>> num_cached_blocks;  // per group
    std::vector<std::uint8_t> block_hashes;
  };
  struct Block {
    std::uint32_t ref_count = 0;
    std::vector<std::uint8_t> key;  // hash and group id; empty: none
  };
  struct EncoderEntry {
    std::string identifier;
    std::vector<RequestId> holders;
    std::uint32_t num_embeds = 0;  // embeddings that eviction frees, if the entry can be evicted
  };
  struct Residency {  // block with sampled residency (lifetime statistics); times in ns
    BlockId block;
    std::int64_t birth = 0, last_access = 0;
    std::vector<std::int64_t> accesses;  // the most recent ones, oldest first
  };
  std::vector<RequestId> running, waiting, skipped_waiting;  // in the order in which they would be scheduled
  std::vector<Request> requests;                             // by id
  std::vector<BlockId> free_blocks;                          // the next block to be allocated comes first
  std::vector<Block> blocks;                                 // by block id
  std::vector<BlockId> cached_blocks;                        // blocks with a key; equal keys are in the order of caching
  std::vector<Residency> residency;
  std::vector<EncoderEntry> encoder_cached, encoder_freeable;
  std::vector<std::string> encoder_freed;      // reported by the next plan; encoder-decoder: allocated since the last plan
  std::vector<std::string> encoder_to_report;  // encoder-decoder: reported by the next plan
  std::uint32_t encoder_free_slots = 0, encoder_freeable_slots = 0;
  std::vector<RequestId> finished, finished_receiving, failed_receiving;
  std::vector<std::pair<RequestId, std::vector<std::uint64_t>>> swapped;  // swapped-out requests and the slots of their blocks, by id
  std::vector<std::pair<RequestId, double>> pinned;  // ids and expiry in seconds, in the order in which the requests were pinned
};

}  // namespace quire
