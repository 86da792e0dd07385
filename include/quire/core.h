#pragma once
// The core: which tokens of which requests run in each step, and in which blocks their keys and values live.
//
// A deterministic state machine: no I/O, clock, thread or random number of its own; equal calls give equal plans. Single-threaded.
// In its default mode it decides exactly as vLLM V1 (v0.19.0): the same requests in the same order with the same token counts and blocks.
//
//   schedule() -> plan N -> the worker runs it -> apply(result N)
//
// Each plan must be applied, in order. At most CoreLimits::max_outstanding_plans may be made and not yet applied: 1 is synchronous; 2 with
// SchedulerOptions::async_scheduling, where placeholders stand for the tokens in flight; as many as stages with a pipeline.
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

// paused_new: requests that run go on, no waiting one is admitted. paused_all: nothing is planned at all. Requests may be added in each
// state.
enum class PauseState : std::uint8_t { unpaused, paused_new, paused_all };

class CallSink;
class EventSink;
class HashFunction;
struct NameKey;
struct WatchFrame;

// The seams; all optional, all must outlive the core.
struct CoreSeams {
  Connector* connector = nullptr;
  // Who keeps encoder outputs elsewhere; asked when an input's encoder would run.
  EncoderConnector* encoder_connector = nullptr;
  // Without one, requests with structured output are refused.
  Grammar* grammar = nullptr;
  // Asked when a request of a job ends whose tags name no tool (SchedulingPolicy::continuum).
  ToolNamer* tools = nullptr;
  EventSink* events = nullptr;   // receives decisions and their causes where they are made
  HashFunction* hash = nullptr;  // names blocks instead of PrefixCacheOptions::hash
  CallSink* calls = nullptr;     // is told what the core is asked and what it answers (quire/journal.h)
};

// Handed in once per call.
struct StepInput {
  double now = 0.0;          // s, monotonic
  std::uint64_t random = 0;  // seeds the draws of this call
};

enum class RequestEventKind : std::uint8_t { queued = 1, scheduled = 2, preempted = 3 };  // vLLM's EngineCoreEventType
// One moment in a request's life. The timestamp is the StepInput::now of the call in which it happened, s.
struct RequestEvent {
  RequestEventKind kind;
  double timestamp = 0.0;
};

// What apply() or finish() did to one request; vLLM's EngineCoreOutput. There is none for a request to which nothing happened.
struct RequestUpdate {
  RequestId id;
  std::uint32_t client_index = 0;
  std::uint32_t result_index = 0;   // the request's place in the plan's `scheduled`; UINT32_MAX: not by a result (failed KV load)
  std::span<const TokenId> tokens;  // appended by this step
  bool finished = false;            // gone, or a streaming session at the end of its input
  RequestStatus status = RequestStatus::running;  // as finished
  FinishReason reason = FinishReason::stop;       // when finished
  std::optional<TokenId> stop_token;              // the stop id that did it (no EOS id); also the last of `tokens`
  bool session_waits = false;                     // finished an input of a streaming session, not the request
  std::int64_t num_cached_tokens = 0;             // prompt tokens found in a cache at first admission
  std::int64_t num_external_computed_tokens = 0;
  std::uint32_t num_named_tokens = 0;    // in its first update: that others could find in the prefix cache by then
  std::span<const RequestEvent> events;  // since the last update, with log_stats
};

// A request left the queue for the first time. One that comes back from a preemption has been told of before.
struct FirstAdmission {
  RequestId id;
  std::uint32_t num_cached_tokens = 0;
};

// Of drafts, counted since the stats before. A draft here is what one request had computed in one step; its tokens are counted singly.
struct SpecDecodingStats {
  std::uint32_t num_spec_tokens = 0;
  std::uint64_t num_drafts = 0, num_draft_tokens = 0, num_accepted_tokens = 0;
  // As long as num_spec_tokens. [i]: how often the (i+1)-th token of a draft was right; never grows with i.
  std::vector<std::uint64_t> num_accepted_per_position;
  std::vector<std::uint64_t> num_drafted_per_position;  // [i]: how often there was one
};

// Counted since the stats before (vLLM's SchedulerStats).
struct SchedulerStats {
  std::uint32_t num_running = 0, num_waiting = 0;
  std::uint32_t num_deferred = 0;  // of those that wait: passed over, or blocked (DecisionRules::holders_first)
  // Shares, 0 to 1, of the referenced blocks and of the encoder cache's embeds.
  double kv_cache_usage = 0.0, encoder_cache_usage = 0.0;
  PrefixCacheStats prefix_cache;
  std::optional<PrefixCacheStats> connector_prefix_cache;
  std::optional<SpecDecodingStats> spec_decoding;
  std::span<const KvEvictionEvent> evictions;
};

// For front ends that share one core: each reads the set of its own client_index.
// Ids of requests that ended since the last outcome, per client; with ReportOptions::include_finished_set.
struct FinishedSet {
  std::uint32_t client_index = 0;
  std::span<const RequestId> ids;
};

// A view, valid until the next apply().
struct StepOutcome {
  StepId step;
  std::span<const RequestUpdate> updates;            // in the plan's order
  std::span<const FirstAdmission> first_admissions;  // of this step's plan
  std::span<const RequestId> preempted;              // when this step's plan was made
  std::span<const RequestId> failed_loads;           // blocks of theirs could not be loaded: the plan's results of these were not taken
  std::span<const RequestId> retired;                // the core refers to these no more: their `sampling` may go
  std::span<const KvEvent> kv_events;                // of the cache, since the last outcome
  std::span<const FinishedSet> finished_sets;
  const SchedulerStats* stats = nullptr;  // with log_stats
};

enum class FinishEffect : std::uint8_t {
  unknown,   // no such request, or finished before: nothing happened
  retired,   // gone; `sampling` may go too
  in_flight  // finished, but an outstanding plan or a transfer names it: its id comes in StepOutcome::retired
};

// Totals grow from the start.
struct CoreCounters {
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;  // skipped and preempted ones included
  // vLLM's get_num_unfinished_requests: depends on the pause state. 0.32.0's can be negative: it leaves a session that was stopped late in
  // no queue, and counts it among those that wait for an input.
  std::int32_t num_unfinished = 0;
  // Requests whose blocks a transfer fills, and finished ones whose blocks it keeps.
  std::uint32_t num_awaiting_transfers = 0;
  std::uint32_t num_open_transfers = 0;
  std::uint32_t num_pinned = 0;         // finished requests whose blocks stay for the next turn of their job
  std::uint32_t num_blocks = 0;         // without the null block
  std::uint32_t num_free_blocks = 0;    // cached but unreferenced ones included
  std::uint32_t num_cached_blocks = 0;  // with a name, referenced or not
  std::uint64_t num_steps = 0;
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_evicted_blocks = 0;
  std::uint64_t num_scheduled_tokens = 0;
  std::uint64_t num_forks = 0;
  std::uint64_t num_copied_blocks = 0;  // for forks
  bool is_admission_stopped = false;    // PressureOptions::pressure_high
  std::uint64_t num_admission_stops = 0;
  std::uint64_t num_pressure_preemptions = 0;  // PressureOptions::pressure_preempts
  // SwapOptions. Of requests that were swapped out: those that came back, and those that are computed again after all.
  std::uint32_t num_used_swap_places = 0;
  std::uint64_t num_swapped_out = 0, num_swapped_out_blocks = 0;
  std::uint64_t num_swapped_in = 0, num_swapped_in_blocks = 0, num_swapped_in_tokens = 0;
  std::uint64_t num_swaps_lost = 0;      // a transfer failed, or others needed the blocks that it had kept
  std::uint64_t num_swaps_no_place = 0;  // not swapped out
  std::uint64_t num_swaps_no_gain = 0;   // not swapped out: SwapChoice::measured
  // Look-ups of requests never preempted, and of preempted ones that came back. Both count each retry of an admission.
  std::uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  std::uint64_t preempted_prefix_query_tokens = 0, preempted_prefix_hit_tokens = 0;
  // Asked of the connector for requests that were admitted or began to load, and what it then was to load.
  std::uint64_t external_query_tokens = 0, external_hit_tokens = 0;
};

// Draft tokens proposed after a step, per request.
struct Draft {
  RequestId id;
  std::span<const TokenId> tokens;
};

// What moving and computing cost here, as measured; 0: not known, and then SwapChoice::measured swaps nothing.
struct SwapCosts {
  double out_bytes_per_s = 0.0, in_bytes_per_s = 0.0;
  double far_out_bytes_per_s = 0.0, far_in_bytes_per_s = 0.0;  // SwapOptions::num_far_places
  double prefill_tokens_per_s = 0.0;

  friend bool operator==(const SwapCosts&, const SwapCosts&) = default;
};

class Core;

// Told of each call that may change a core: of its arguments, before anything has changed, and then of its answer. On the core's thread; it
// may call const members alone. What one call brings about as another one would is told of once, and set_swap_costs() where they change.
class CallSink {
 public:
  virtual ~CallSink() = default;
  // Once, before the first call: the core that it is told of.
  virtual void bind(const Core& /*core*/) {}
  virtual void add(const NewRequest& request, const StepInput& input) = 0;
  virtual void continue_session(RequestId id, const SessionInput* input, const StepInput& now) = 0;
  virtual void fork(RequestId parent, const ForkRequest& child, const StepInput& input) = 0;
  virtual void schedule(const StepInput& input) = 0;
  virtual void apply(const StepResult& result, const StepInput& input) = 0;
  virtual void set_drafts(std::span<const Draft> drafts) = 0;
  virtual void set_drafts_in_plan(std::span<const Draft> drafts) = 0;
  virtual void finish(RequestId id, RequestStatus status, const StepInput& input) = 0;
  virtual void finish(std::span<const RequestId> ids, RequestStatus status, const StepInput& input) = 0;
  virtual void forget_blocks(RequestId id) = 0;
  virtual void reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) = 0;
  virtual void end_pins() = 0;
  virtual void reset_connector_cache() = 0;
  virtual void reset_encoder_cache() = 0;
  virtual void set_swap_costs(const SwapCosts& costs) = 0;
  virtual void set_pause_state(PauseState state) = 0;
  virtual void make_stats() = 0;

  // What schedule() answers, and apply() (null: the result was refused).
  virtual void planned(const StepPlan& plan) = 0;
  virtual void applied(const StepOutcome* outcome) = 0;
  // Of all others: a number that differs where the answer does, an error's included.
  virtual void answered(std::uint64_t answer) = 0;
};

struct CoreSnapshot;

enum class CheckpointTokens : std::uint8_t { kept, left_out };

enum class QueueKind : std::uint8_t { running, waiting, skipped_waiting, pinned };

class QUIRE_API Core {
 public:
  // The config is copied. Errors are those of CoreConfig::validate(), `root_hash`, and `prefix_caching_hash_algo`: a hash that this build
  // has not.
  static Result<std::unique_ptr<Core>> create(const CoreConfig& config, const CoreSeams& seams = {});
  // A core that decides from its first call on as the one that checkpoint() was called on, wherever that was. Both must have the same
  // configuration, and seams that answer alike: what seams hold (a connector's tiers, grammars, a worker) is theirs to bring back, and a
  // connector is bound to the new core. Plans that were outstanding are (outstanding_plan()); the outcome told last is not here, nor is
  // `sampling`, which is null in all that was known before. Errors: those of create(); `checkpoint`, `invalid_argument`: bytes of another
  // version, damaged ones, and such as are no state or one that does not agree with itself, with the byte or the rule; `config`: not the
  // one that they were made under. Any bytes may come: no memory is read that is not there, and none taken that neither they nor the
  // configuration bear out. But numbers that only fit each other are believed, as those of a configuration are: who forges a checkpoint
  // can make the core that comes of it decide badly, or stop at a broken invariant.
  static Result<std::unique_ptr<Core>> restore(const CoreConfig& config, const CoreSeams& seams, std::span<const std::uint8_t> bytes);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Puts the request into the waiting queue. Errors name the field: `invalid_argument` (among them an id that is known already, a prompt
  // or max_tokens that the model or the cache cannot hold unless SchedulerOptions::admit_oversized), `overloaded` (max_num_waiting).
  // max_tokens is cut to what max_model_len allows (unless admit_oversized).
  Result<void> add(const NewRequest& request, const StepInput& input = {});
  // The next input of a session; nullptr: no more will come. Errors: the id is unknown or not a session.
  // The input is copied. One that comes while the session still runs waits for its turn. Errors besides: `tokens`, an input that is empty
  // or does not fit behind what the session has computed; `multimodal`, items out of order.
  Result<void> continue_session(RequestId id, const SessionInput* input, const StepInput& now = {});

  // A request that begins with the parent's tokens and computes none again that the parent has, but for the last one where it must, to
  // sample after it. Both hold the same blocks; one that is not full is copied in the plan in which the first of them writes to it, and the
  // last one writes in place. The child waits in front of the others (or by priority) with its share, and gives it up, to be computed like
  // any other request, where a running request lacks blocks or nothing else can run. It shares whoever filled a block, a connector too; of
  // a parent whose blocks are being loaded it shares nothing, and is looked up in its turn; so it is where layers have states, unless it
  // begins where the parent's are now (nothing of it is in flight, or all that is is known), or where a block ends. Errors name the field:
  // `not_found` (the parent), `invalid_argument` (an id in use, a parent that has ended, counts out of range), `overloaded`
  // (max_num_waiting, max_fork_family), `unsupported` (pooling, a grammar that cannot go back to where the child begins, states of an
  // encoder).
  Result<void> fork(RequestId parent, const ForkRequest& child, const StepInput& input = {});

  // Decides a step. The plan may schedule nothing and must be applied all the same. Valid until its apply().
  const StepPlan& schedule(const StepInput& input = {});

  // Takes the oldest outstanding plan's result. Errors (nothing has changed then): a result that does not match the plan, transfers of
  // requests that are not known, blocks out of range.
  Result<const StepOutcome*> apply(const StepResult& result, const StepInput& input = {});
  // With CureOptions::unloaded_begin_anew, before apply(): of whom the result says that they ran on blocks which were not loaded, so that
  // it will not be taken of these.
  [[nodiscard]] std::vector<RequestId> spoiled_by(const StepResult& result) const;

  // Drafts for the next plan (vLLM: update_draft_token_ids); those of unknown or finished requests are ignored.
  void set_drafts(std::span<const Draft> drafts);
  // Drafts into the newest outstanding plan, in place of its placeholders (update_draft_token_ids_in_output).
  void set_drafts_in_plan(std::span<const Draft> drafts);

  // Ends requests from outside, in any state and in this order. `status` is a finished one. Unknown and finished ids are skipped.
  // Blocks are free at once unless a connector keeps them.
  FinishEffect finish(RequestId id, RequestStatus status, const StepInput& input = {});
  // Appends to `finished` those that were finished by this call, in the order of `ids`.
  void finish(std::span<const RequestId> ids, RequestStatus status, std::vector<RequestId>& finished, const StepInput& input = {});

  // The blocks of this request hold what nobody may read (numbers that are none): the cache forgets their names, whoever else holds them,
  // and the connector is told. For an id that is not known nothing happens.
  void forget_blocks(RequestId id);

  // Forgets all cached prefixes. False, and nothing happens, while a request holds blocks; with `preempt_running` all running requests are
  // preempted first. An error when blocks are still held then (transfers), or the connector refuses.
  Result<bool> reset_prefix_cache(bool preempt_running = false, bool reset_connector = false, const StepInput& input = {});
  // Pins end now, for a shutdown.
  void end_pins();
  [[nodiscard]] bool has_connector() const;
  // Asks the connector to forget what it holds; false: it does not, or there is none.
  bool reset_connector_cache();
  // Forgets all outputs, also those that requests refer to, since the weights have changed. No plan names them as freed: whoever calls this
  // tells the worker to forget its own.
  void reset_encoder_cache();

  // From now on.
  void set_swap_costs(const SwapCosts& costs);

  [[nodiscard]] PauseState pause_state() const;
  // Takes effect with the next schedule(). Plans that are under way are applied as usual.
  void set_pause_state(PauseState state);

  // Drains what an outcome would have carried (vLLM's make_stats()); null without log_stats. Valid until the next call.
  const SchedulerStats* make_stats();

  [[nodiscard]] bool has_work() const;               // a request is running or waiting
  [[nodiscard]] bool has_finished_requests() const;  // ended since the last plan: the worker does not know yet
  // When schedule() has something to do although nobody waits: a pin expires, or retired ids are to be told of (then a time long past).
  [[nodiscard]] std::optional<double> next_deadline() const;
  [[nodiscard]] std::uint32_t num_outstanding_plans() const;
  // The oldest has index 0; as schedule() has given it, but for the tokens of a session that went on since, and the blocks of a transfer
  // that is over.
  [[nodiscard]] const StepPlan& outstanding_plan(std::uint32_t index) const;
  [[nodiscard]] CoreCounters counters() const;
  [[nodiscard]] bool all_blocks_free() const;
  [[nodiscard]] std::optional<RequestView> view(RequestId id) const;
  // What this request, which is not added, would find in the prefix cache and behind the connector. Nothing is taken, counted or kept
  // young, and no decision depends on it; it takes memory for the prompt's names. prompt_storage is left alone. Errors: those of add() that
  // are about the request itself.
  [[nodiscard]] Result<CacheProbe> probe(const NewRequest& request) const;
  // Blocks of a request in one cache group.
  [[nodiscard]] std::span<const BlockId> blocks(RequestId id, std::uint32_t group) const;
  // Who runs and who waits, in the order in which they would be taken. The vectors are overwritten.
  void queues(std::vector<RequestId>& running, std::vector<RequestId>& waiting, std::vector<RequestId>& skipped_waiting) const;
  // Each request that runs, waits, or has ended and is pinned, in the order of the queues.
  void visit(const std::function<void(QueueKind, const RequestView&)>& visit) const;
  // References to a block, and its name with the group id (empty: none).
  [[nodiscard]] std::uint32_t ref_count(BlockId block) const;
  [[nodiscard]] std::vector<std::uint8_t> block_key(BlockId block) const;

  // The whole state as bytes, for restore(): between any two calls, plans may be outstanding. Equal states give equal bytes. About 4 bytes
  // per token of the requests there are, 36 per block of theirs, 8 per block of the pool and 48 per block with a name; bench/README.md has
  // what it takes.
  // Without tokens all of them have a number that says nothing (CheckpointTokens::left_out), and with a key blocks have other names: a core
  // made of that decides the same where it is told what the tokens would have decided (quire/journal.h).
  [[nodiscard]] std::vector<std::uint8_t> checkpoint(CheckpointTokens tokens = CheckpointTokens::kept,
                                                     const NameKey* names = nullptr) const;
  // What a page shows (quire/watch.h), but for what requests wait for. From the first call on that is kept up to date, until
  // end_watch(): 12 bytes per block, and a write per block that is taken, found, named or given back. Decides nothing.
  void watch(WatchFrame& frame);
  void end_watch();
  // Everything, copied: for tests, dumps and comparisons.
  void snapshot(CoreSnapshot& out) const;
  // Recomputes what must hold from scratch and stops the program where it does not. Slow: for tests and shutdown.
  void check_invariants() const;

 private:
  struct QUIRE_HIDDEN State;
  explicit Core(std::unique_ptr<State> state);
  static Result<std::unique_ptr<Core>> make(const CoreConfig& config, const CoreSeams& seams);  // bound to no connector
  std::unique_ptr<State> state_;
};

// A copy of everything that decisions depend on. Made to be compared: two cores that were given the same calls have equal ones. Lists are
// in the order that the core has, where that order decides something, and else sorted by id.
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
    std::uint32_t num_embeds = 0;  // what eviction gives back, where it can be evicted
  };
  struct Residency {  // of a block that is sampled; ns
    BlockId block;
    std::int64_t birth = 0, last_access = 0;
    std::vector<std::int64_t> accesses;  // the last ones, oldest first
  };
  std::vector<RequestId> running, waiting, skipped_waiting;  // in the order in which they would be taken
  std::vector<Request> requests;                             // by id
  std::vector<BlockId> free_blocks;                          // from the next to be taken on
  std::vector<Block> blocks;                                 // by block id
  std::vector<BlockId> cached_blocks;                        // those with a key; blocks of equal key in the order in which they got it
  std::vector<Residency> residency;
  std::vector<EncoderEntry> encoder_cached, encoder_freeable;
  std::vector<std::string> encoder_freed;      // the next plan names them; encoder-decoder: allocated since the last plan
  std::vector<std::string> encoder_to_report;  // encoder-decoder: the next plan names them
  std::uint32_t encoder_free_slots = 0, encoder_freeable_slots = 0;
  std::vector<RequestId> finished, finished_receiving, failed_receiving;
  std::vector<std::pair<RequestId, std::vector<std::uint64_t>>> swapped;  // requests whose blocks lie in these places, by id
  std::vector<std::pair<RequestId, double>> pinned;                       // with the expiry, s; in the order in which they were pinned
};

}  // namespace quire
