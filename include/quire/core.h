#pragma once
// The core decides which tokens of which requests run in each step, and which blocks hold their keys and values.
//
// A deterministic state machine, single-threaded, without I/O, clock or random source: equal calls give equal plans. In its default mode it
// decides exactly as vLLM V1 (v0.19.0): the same requests in the same order, with the same token counts and blocks.
//
//   schedule() -> plan N -> the worker runs it -> apply(result N)
//
// Each plan must be applied, in order. At most CoreLimits::max_outstanding_plans plans may be outstanding (made and not yet applied): 1 is
// synchronous; 2 with SchedulerOptions::async_scheduling, where placeholders stand for the tokens in flight; with a pipeline, one per
// stage.
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

// paused_new: running requests continue, no waiting request is admitted. paused_all: schedule() plans nothing. Requests may be added in
// every state.
enum class PauseState : std::uint8_t { unpaused, paused_new, paused_all };

class CallSink;
class EventSink;
class HashFunction;
struct PseudonymKey;
struct WatchFrame;

// Interfaces that the core calls. All are optional, and all must outlive the core.
struct CoreSeams {
  Connector* connector = nullptr;
  // Called when an input's encoder would run: its output may be stored outside.
  EncoderConnector* encoder_connector = nullptr;
  // Without a grammar, requests with structured output are rejected.
  Grammar* grammar = nullptr;
  // Called when a request of a job ends and its tags name no tool (SchedulingPolicy::continuum).
  ToolNamer* tools = nullptr;
  EventSink* events = nullptr;   // receives each decision and its cause when it is made
  HashFunction* hash = nullptr;  // computes block hashes instead of PrefixCacheOptions::hash
  CallSink* calls = nullptr;     // receives each call to the core and its answer (quire/core_call.h)
};

// Time and random seed of one call.
struct StepInput {
  double now = 0.0;          // seconds, monotonic
  std::uint64_t random = 0;  // seeds the random draws of this call
};

enum class RequestEventKind : std::uint8_t { queued = 1, scheduled = 2, preempted = 3 };  // vLLM's EngineCoreEventType
// One event in a request's life. `timestamp` is the StepInput::now of the call in which it happened, in seconds.
struct RequestEvent {
  RequestEventKind kind;
  double timestamp = 0.0;
};

// Describes what apply() or finish() did to one request (vLLM's EngineCoreOutput). A request to which nothing happened has no update.
struct RequestUpdate {
  RequestId id;
  std::uint32_t client_index = 0;
  std::uint32_t result_index = 0;                 // index into the plan's `scheduled`; UINT32_MAX: not caused by a result (failed KV load)
  std::span<const TokenId> tokens;                // appended by this step
  bool finished = false;                          // the request ended, or a streaming session reached the end of its input
  RequestStatus status = RequestStatus::running;  // when finished: how
  FinishReason reason = FinishReason::stop;       // when finished: why
  std::optional<TokenId> stop_token;              // the stop id that ended it (no EOS id); also the last of `tokens`
  bool session_waits = false;                     // the input of a streaming session ended, not the request
  std::int64_t num_cached_tokens = 0;             // prompt tokens found in a cache at first admission
  std::int64_t num_external_computed_tokens = 0;
  std::uint32_t num_hashed_tokens = 0;   // in its first update: leading tokens in the prefix cache
  std::span<const RequestEvent> events;  // events since the last update, with log_stats
};

// A request left the waiting queue for the first time. It is not reported again when it resumes after a preemption.
struct FirstAdmission {
  RequestId id;
  std::uint32_t num_cached_tokens = 0;
};

// Counts of draft tokens since the previous stats. One draft is what one request verified in one step; its tokens are counted one by one.
struct SpecDecodingStats {
  std::uint32_t num_spec_tokens = 0;
  std::uint64_t num_drafts = 0, num_draft_tokens = 0, num_accepted_tokens = 0;
  // Has num_spec_tokens entries. [i]: how often the (i+1)-th token of a draft was accepted; never increases with i.
  std::vector<std::uint64_t> num_accepted_per_position;
  std::vector<std::uint64_t> num_drafted_per_position;  // [i]: how often a draft had an (i+1)-th token
};

// vLLM's SchedulerStats. Counters cover the time since the previous stats.
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

// Ids of one client's requests that ended since the last outcome, with ReportOptions::include_finished_set. Front ends that share a core
// each read the set with their client_index.
struct FinishedSet {
  std::uint32_t client_index = 0;
  std::span<const RequestId> ids;
};

// The result of apply(). A view, valid until the next apply().
struct StepOutcome {
  StepId step;
  std::span<const RequestUpdate> updates;            // in the plan's order
  std::span<const FirstAdmission> first_admissions;  // made by this step's plan
  std::span<const RequestId> preempted;              // when this step's plan was made
  // Requests with blocks that could not be loaded: the plan's results for these requests were not taken.
  std::span<const RequestId> failed_loads;
  std::span<const RequestId> retired;  // the core no longer refers to these: their `sampling` may be freed
  std::span<const KvEvent> kv_events;  // events of the prefix cache since the last outcome
  std::span<const FinishedSet> finished_sets;
  const SchedulerStats* stats = nullptr;  // with log_stats
};

// The effect of finish() on a request.
enum class FinishEffect : std::uint8_t {
  unknown,   // no such request, or it had ended before: nothing happened
  retired,   // removed; `sampling` may be freed
  in_flight  // finished, but an outstanding plan or a transfer names it: StepOutcome::retired reports it later
};

// State and totals of a core. Totals count from its creation.
struct CoreCounters {
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;  // includes skipped and preempted requests
  // vLLM's get_num_unfinished_requests: depends on the pause state. With vLLM 0.32.0's rules it can be negative: a session that was stopped
  // late is in no queue, but counts as waiting for input.
  std::int32_t num_unfinished = 0;
  // Requests with blocks that a transfer fills, and finished requests with blocks that a transfer keeps.
  std::uint32_t num_awaiting_transfers = 0;
  std::uint32_t num_open_transfers = 0;
  std::uint32_t num_pinned = 0;         // finished requests that keep their blocks for the next turn of their job
  std::uint32_t num_blocks = 0;         // without the null block
  std::uint32_t num_free_blocks = 0;    // includes cached blocks without a reference
  std::uint32_t num_cached_blocks = 0;  // with a block hash, referenced or not
  std::uint64_t num_steps = 0;
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_evicted_blocks = 0;
  std::uint64_t num_scheduled_tokens = 0;
  std::uint64_t num_forks = 0;
  std::uint64_t num_copied_blocks = 0;  // copied for forks
  bool is_admission_stopped = false;    // `PressureOptions::pressure_high`
  std::uint64_t num_admission_stops = 0;
  std::uint64_t num_pressure_preemptions = 0;  // `PressureOptions::pressure_preempts`
  // SwapOptions: requests that were swapped out and swapped in, and swapped-out requests that are computed again.
  std::uint32_t num_used_swap_slots = 0;
  std::uint64_t num_swapped_out = 0, num_swapped_out_blocks = 0;
  std::uint64_t num_swapped_in = 0, num_swapped_in_blocks = 0, num_swapped_in_tokens = 0;
  std::uint64_t num_swaps_lost = 0;     // a transfer failed, or other requests needed the blocks that it had kept
  std::uint64_t num_swaps_no_slot = 0;  // not swapped out: no free slot
  std::uint64_t num_swaps_no_gain = 0;  // not swapped out: computing is as fast (SwapChoice::measured)
  // Look-ups of requests that were never preempted, and of requests that resume after a preemption. Each retry of an admission counts
  // again, except under PrefillLimits.
  std::uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  std::uint64_t preempted_prefix_query_tokens = 0, preempted_prefix_hit_tokens = 0;
  // Tokens that the connector was asked for, of requests that were admitted or began to load, and the tokens to be loaded as a result.
  std::uint64_t external_query_tokens = 0, external_hit_tokens = 0;
};

// Draft tokens of one request, proposed after a step.
struct Draft {
  RequestId id;
  std::span<const TokenId> tokens;
};

// Measured speeds of moving and computing. 0: not known; SwapChoice::measured then swaps nothing.
struct SwapCosts {
  double out_bytes_per_s = 0.0, in_bytes_per_s = 0.0;
  double disk_out_bytes_per_s = 0.0, disk_in_bytes_per_s = 0.0;  // `SwapOptions::num_slow_slots`
  double prefill_tokens_per_s = 0.0;

  friend bool operator==(const SwapCosts&, const SwapCosts&) = default;
};

// The most prompt tokens that a step computes; 0: as many as max_num_batched_tokens allows. Tenants share them (with
// SchedulerOptions::tenant_turns), then up to four requests of each tenant, running ones first. The first running prompt gets a chunk in
// each step, so that it ends. A host sets the limits from the time that steps take: a long prompt then delays other requests little. They
// do not apply without chunked prefill, nor to requests with encoder inputs. vLLM has no such limits.
struct PrefillLimits {
  std::uint32_t beside_decodes = 0;   // in steps in which a request decodes, or may begin to
  std::uint32_t without_decodes = 0;  // in other steps

  friend bool operator==(const PrefillLimits&, const PrefillLimits&) = default;
};

struct CoreSnapshot;

// Whether a checkpoint contains the tokens of requests.
enum class CheckpointTokens : std::uint8_t { kept, left_out };

// The queue in which visit() finds a request.
enum class QueueKind : std::uint8_t { running, waiting, skipped_waiting, pinned };

// The scheduler and KV-cache manager of one model. All calls come from one thread.
class QUIRE_API Core {
 public:
  // Creates a core and copies the config. Errors: the errors of CoreConfig::validate(); `root_hash`; `prefix_caching_hash_algo`: this build
  // does not have the hash algorithm.
  static Result<std::unique_ptr<Core>> create(const CoreConfig& config, const CoreSeams& seams = {});
  // Creates a core that continues from a checkpoint(), taken by any core: from its first call on it decides as the original. Both need the
  // same configuration and seams that answer alike. The caller restores the state of the seams (a connector's tiers, grammars, a worker); a
  // connector is bound to the new core. Plans that were outstanding are outstanding again (outstanding_plan()). The last outcome is not
  // restored, and `sampling` is null in everything restored. Errors: the errors of create(); `checkpoint` (`invalid_argument`): the bytes
  // are damaged, of another version or inconsistent, with the byte or the rule; `config`: the configuration differs from the original's.
  // Safe for any bytes: it reads no memory beyond them, and allocates only what they or the configuration justify. But consistent values
  // are trusted like a configuration: a forged checkpoint can make the new core decide badly, or stop at a broken invariant.
  static Result<std::unique_ptr<Core>> restore(const CoreConfig& config, const CoreSeams& seams, std::span<const std::uint8_t> bytes);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Puts the request into the waiting queue. Errors name the field: `invalid_argument` (for instance: the id is in use; the prompt does not
  // fit the model or the cache, unless SchedulerOptions::admit_oversized), `overloaded` (max_num_waiting). max_tokens is cut to what
  // max_model_len allows (unless admit_oversized).
  Result<void> add(const NewRequest& request, const StepInput& input = {});
  // Appends the next input of a session and copies it; nullptr: no more input will come. An input that arrives while the session still runs
  // is queued. Errors: `id`: unknown, or not a session; `tokens`: the input is empty or does not fit after the computed tokens;
  // `multimodal`: items are out of order or exceed the input.
  Result<void> continue_session(RequestId id, const SessionInput* input, const StepInput& now = {});

  // Adds a request that begins with the parent's tokens and reuses their blocks. It computes only the last of these tokens again, when it
  // needs one to sample after. Both requests hold the same blocks. A partial block is copied in the plan in which the first holder writes
  // to it; the last holder writes in place.
  // The child waits in front of the others (or by priority). Where a running request needs blocks, or nothing else can run, the child gives
  // up the shared blocks and is computed like any other request. Blocks that a connector has filled are shared, too. Nothing is shared
  // while the parent's blocks are being loaded; the child is then looked up when its turn comes. In a model with states, blocks are shared
  // only up to the end of a block, or up to the parent's current state if all its tokens in flight are known.
  // Errors name the field: `not_found` (the parent), `invalid_argument` (an id in use, a parent that has ended, counts out of range),
  // `overloaded` (max_num_waiting, max_fork_family), `unsupported` (pooling, an encoder-decoder model, a grammar that cannot go back to the
  // child's first token, the decisions of vLLM 0.32.0).
  Result<void> fork(RequestId parent, const ForkRequest& child, const StepInput& input = {});

  // Decides a step and returns its plan, which is valid until its apply(). A plan that schedules nothing must be applied, too.
  const StepPlan& schedule(const StepInput& input = {});

  // Takes the result of the oldest outstanding plan and returns the outcome. Errors, after which nothing has changed: the result does not
  // match the plan, a transfer belongs to an unknown request, or a block is out of range.
  Result<const StepOutcome*> apply(const StepResult& result, const StepInput& input = {});
  // Called before apply(), with FixOptions::unloaded_begin_anew. Returns the requests that ran on blocks that were not loaded, as the
  // result says. apply() will not take their results.
  [[nodiscard]] std::vector<RequestId> requests_invalidated_by(const StepResult& result) const;

  // Sets draft tokens for the next plan (vLLM: update_draft_token_ids). Drafts of unknown or finished requests are ignored.
  void set_drafts(std::span<const Draft> drafts);
  // Replaces the placeholders in the newest outstanding plan by draft tokens (update_draft_token_ids_in_output).
  void set_drafts_in_plan(std::span<const Draft> drafts);

  // Ends a request in any state. `status` is a finished status. An unknown or finished id has no effect. Blocks are freed immediately
  // unless a connector keeps them.
  FinishEffect finish(RequestId id, RequestStatus status, const StepInput& input = {});
  // Ends requests in the order of `ids`, and appends the ids that this call ended to `finished`.
  void finish(std::span<const RequestId> ids, RequestStatus status, std::vector<RequestId>& finished, const StepInput& input = {});

  // Call this when the request's blocks contain NaN or Inf. Removes their block hashes from the prefix cache, whichever requests hold them,
  // and notifies the connector. An unknown id has no effect.
  void forget_blocks(RequestId id);

  // Forgets all cached prefixes and returns true. Returns false, and keeps them, while a request holds blocks or is swapped out; also false
  // if the connector refuses its reset (`reset_connector`). `preempt_running` preempts all running requests first. Error: blocks are still
  // held then, by transfers.
  Result<bool> reset_prefix_cache(bool preempt_running = false, bool reset_connector = false, const StepInput& input = {});
  // Ends all pins immediately, for a shutdown.
  void end_pins();
  [[nodiscard]] bool has_connector() const;
  // Asks the connector to forget its blocks. Returns false if the connector keeps its blocks. Without a connector returns false, or true
  // with vLLM 0.32.0's rules.
  bool reset_connector_cache();
  // Forgets all encoder outputs, also outputs that requests refer to, after the weights have changed. No plan reports them as freed: the
  // caller must make the worker forget its copies.
  void reset_encoder_cache();

  // Sets the costs that later decisions use.
  void set_swap_costs(const SwapCosts& costs);

  // Limits the prompt tokens of later steps.
  void set_prefill_limits(const PrefillLimits& limits);

  [[nodiscard]] PauseState pause_state() const;
  // Takes effect with the next schedule(). Plans in flight are applied as usual.
  void set_pause_state(PauseState state);

  // Returns and resets the stats that the next outcome would carry (vLLM's make_stats()); null without log_stats. Valid until the next
  // call.
  const SchedulerStats* make_stats();

  [[nodiscard]] bool has_work() const;               // a request is running or waiting
  [[nodiscard]] bool has_finished_requests() const;  // a request ended since the last plan: the worker does not know yet
  // Returns the time at which schedule() has work although no request waits: a pin expires, or retired ids must be reported (then -inf).
  [[nodiscard]] std::optional<double> next_deadline() const;
  [[nodiscard]] std::uint32_t num_outstanding_plans() const;
  // Returns a plan; the oldest has index 0. It equals what schedule() returned, except for the tokens of a session that has continued
  // since, and the blocks of transfers that are over.
  [[nodiscard]] const StepPlan& outstanding_plan(std::uint32_t index) const;
  [[nodiscard]] CoreCounters counters() const;
  [[nodiscard]] bool all_blocks_free() const;
  [[nodiscard]] std::optional<RequestView> view(RequestId id) const;
  // Returns how much of this request's prompt the prefix cache and the connector hold. The request is not added, no block is taken, counted
  // or marked as used, and no decision changes. Needs memory for the prompt's block hashes; prompt_storage is not moved from. Errors: the
  // errors of add() about the request itself.
  [[nodiscard]] Result<CacheProbe> probe(const NewRequest& request) const;
  // Returns the blocks of a request in one cache group.
  [[nodiscard]] std::span<const BlockId> blocks(RequestId id, std::uint32_t group) const;
  // Overwrites the vectors with the running and waiting requests, each in the order in which they would be scheduled.
  void queues(std::vector<RequestId>& running, std::vector<RequestId>& waiting, std::vector<RequestId>& skipped_waiting) const;
  // Calls `visit` for each running, waiting and pinned request, in the order of the queues.
  void visit(const std::function<void(QueueKind, const RequestView&)>& visit) const;
  // Returns the number of references to a block; and its block hash with the group id (empty: none).
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const;
  [[nodiscard]] std::vector<std::uint8_t> block_key(BlockId block) const;

  // Returns the whole state as bytes, for restore(). May be called between any two calls, also while plans are outstanding. Equal states
  // give equal bytes. Size: about 4 bytes per token of all requests, 36 per block of theirs, 8 per block of the pool, and 48 per block with
  // a hash (bench/scheduler.md).
  // With CheckpointTokens::left_out all tokens have the same meaningless id, and with `key` block hashes are replaced. A core restored
  // from that decides alike if it receives the answers that depend on tokens (quire/journal.h).
  [[nodiscard]] std::vector<std::uint8_t> checkpoint(CheckpointTokens tokens = CheckpointTokens::kept,
                                                     const PseudonymKey* key = nullptr) const;
  // Fills `frame` with what a dashboard shows (quire/watch.h), except `waits_for`. The first call starts the bookkeeping, and end_watch()
  // ends it: 12 bytes per block, and a write per block that is taken, hit, cached or freed. Changes no decision.
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

// A copy of everything that decisions depend on, for comparison: two cores that received the same calls have equal snapshots. Lists have
// the core's order where that order affects decisions, and are otherwise sorted by id.
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
  struct Residency {  // block with sampled residency; times in ns
    BlockId block;
    std::int64_t birth = 0, last_access = 0;
    std::vector<std::int64_t> accesses;  // the most recent ones, oldest first
  };
  std::vector<RequestId> running, waiting, skipped_waiting;  // in the order in which they would be scheduled
  std::vector<Request> requests;                             // by id
  std::vector<BlockId> free_blocks;                          // the next block to be allocated comes first
  std::vector<Block> blocks;                                 // by block id
  std::vector<BlockId> cached_blocks;                        // blocks with a key; blocks of equal key in the order in which they got it
  std::vector<Residency> residency;
  std::vector<EncoderEntry> encoder_cached, encoder_freeable;
  std::vector<std::string> encoder_freed;      // reported by the next plan; encoder-decoder: allocated since the last plan
  std::vector<std::string> encoder_to_report;  // encoder-decoder: reported by the next plan
  std::uint32_t encoder_free_slots = 0, encoder_freeable_slots = 0;
  std::vector<RequestId> finished, finished_receiving, failed_receiving;
  std::vector<std::pair<RequestId, std::vector<std::uint64_t>>> swapped;  // swapped-out requests and the slots of their blocks, by id
  std::vector<std::pair<RequestId, double>> pinned;  // with the expiry in seconds; in the order in which they were pinned
};

}  // namespace quire
