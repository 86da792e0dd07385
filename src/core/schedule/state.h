#pragma once
// What the parts of the core's scheduler share. Private to this folder; the facade is quire/core.h.
//
// States of a request, and who moves it (vLLM's RequestStatus):
//   waiting, preempted       in `waiting`, or in `skipped_waiting` after it was passed over       add, fork, preempt, promote, sessions
//   waiting_for_*            in `skipped_waiting`                                                add, waiting.cpp, sessions.cpp
//   running                  in `running`, with a slot and blocks                                waiting.cpp: admit
//   finished_*, known        in no queue; a transfer or a pin keeps its blocks (holds.h)         finish.cpp
//   finished_*, not known    blocks are free; until apply(), or while a plan names it (gone)     finish.cpp: free_blocks
// and then it is destroyed. A slot is free or a running request's; it becomes free when its request stops running, is named in the
// next plan's `released`, and may be given out again in that same plan.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/check.h"
#include "core/agent/agent.h"
#include "core/kv/encoder_cache.h"
#include "core/kv/hash_function.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/event_stamp.h"
#include "core/schedule/holds.h"
#include "core/schedule/open_transfers.h"
#include "core/schedule/output_side.h"
#include "core/schedule/plan_arena.h"
#include "core/schedule/request.h"
#include "core/schedule/request_queue.h"
#include "core/schedule/request_table.h"
#include "core/schedule/stop_check.h"
#include "quire/core.h"
#include "quire/events.h"

namespace quire {

inline constexpr TokenId kDraftPlaceholder = -1;

// What _try_schedule_encoder_inputs decides. The two lists are State's scratch, valid until the next call.
struct EncoderGrant {
  std::int32_t num_new_tokens = 0;
  std::int64_t compute_budget = 0;            // embeds: what is left
  std::span<const std::uint32_t> to_compute;  // inputs whose encoder runs in this step
  std::span<const std::uint32_t> to_load;     // inputs whose output comes from elsewhere
};

// The decision on one request's inputs, on its way.
struct EncoderStep {
  std::int32_t num_computed_tokens = 0;
  std::int32_t num_new_tokens = 0;
  std::int32_t shift = 0;  // a drafting model looks one token further
  std::int64_t compute_budget = 0;
  std::int64_t num_planned_embeds = 0;
};

// What a waiting request has before it runs.
struct Computed {
  KvHit hit;
  std::uint32_t num_external = 0;
  std::uint32_t num_connector_queries = 0;  // tokens asked of the connector; 0: it was not asked
  bool load_async = false;
  std::int32_t num_tokens = 0;  // in all
};

struct Core::State {
  State(const CoreConfig& config, const CoreSeams& seams, std::unique_ptr<HashFunction> hash);

  // running.cpp: the running loop
  void schedule_running(PlanArena& arena);
  bool schedule_one_running(Request& request, PlanArena& arena);
  [[nodiscard]] bool surely_reached_max_tokens(const Request& request) const;
  [[nodiscard]] std::int32_t num_wanted_tokens(const Request& request) const;
  bool make_room(Request& request, std::int32_t num_new_tokens, PlanArena& arena);
  void take_drafts(Request& request, std::int32_t num_new_tokens, PlanArena& arena);
  void commit(Request& request, std::int32_t num_new_tokens, ScheduledKind kind, PlanArena& arena);
  void send_new_tokens(const Request& request, PlanArena& arena);
  [[nodiscard]] std::int32_t align_for_mamba(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) const;

  // policy.cpp: what a policy decides. Those of jobs and pins are for CONTINUUM, which has an agent.
  void before_step();
  std::vector<Request*>::iterator find_victim();
  std::optional<double> on_finish(const Request& request);
  void join_job(Request& request, double time);
  void leave_job(Request& request);
  void note_entry(Request& request, QueueName queue, double time);
  void pin(Request& request, double expiry);
  void unpin(const Pin& pin, EventCause cause);
  bool end_oldest_pin();  // false: there is none, or pins do not give way
  void end_pins();

  // preemption.cpp
  Request& take_victim(PlanArena& arena);
  void roll_back(Request& victim, PlanArena& arena);
  void forget_unwritten_blocks(const Request& victim);
  void preempt(Request& victim);

  // waiting.cpp: the waiting loop
  enum class Admission : std::uint8_t { admitted, skipped, blocked };
  void schedule_waiting(PlanArena& arena);
  RequestQueue& queue_to_take_from();
  Admission try_admit(Request& request, RequestQueue& queue, PlanArena& arena);
  bool take_back_loaded(const Request& beneficiary);
  [[nodiscard]] bool exceeds_max_loras(const Request& request) const;
  [[nodiscard]] std::int32_t num_tokens_to_admit(const Request& request, std::int32_t num_computed_tokens) const;
  std::uint32_t take_blocks(Request& request, const Computed& computed, std::int32_t num_new_tokens, const EncoderGrant& encoder);
  void admit(Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens, PlanArena& arena);

  // remote_kv.cpp: the look-up side of the connector, and the way out of blocked states
  std::optional<Computed> look_up(Request& request);
  void count_look_up(const Request& request, const KvHit& hit);
  void notify_connector(const Request& request, const Computed& computed);
  bool try_promote(Request& request);
  void take_received(Request& request);

  // encoder_inputs.cpp
  EncoderGrant schedule_encoder_inputs(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens);
  bool take_encoder_input(const Request& request, std::uint32_t input, EncoderStep& step);
  void allocate_encoder_inputs(const Request& request, const EncoderGrant& grant, PlanArena& arena);
  void free_encoder_inputs(const Request& request);

  // after_schedule.cpp: what a plan says besides tokens and blocks, and the counters it advances
  void complete(PlanArena& arena);
  void advance(PlanArena& arena, StepPlan& plan);

  // core.cpp
  void begin_call(const StepInput& input);  // the time and the random numbers of what follows

  // requests.cpp
  Request& create_request(const NewRequest& given);
  void enqueue(Request& request, double time);         // _enqueue_waiting_request
  void append_token(Request& request, TokenId token);  // an output
  void name_blocks(Request& request);                  // update_block_hashes: those that have become full
  void reserve_memory(Request& request) { reserve_memory(request, request.tokens.size()); }
  void reserve_memory(Request& request, std::size_t num_known_tokens);     // for all it can ever have
  void record(Request& request, RequestEventKind kind, double timestamp);  // with log_stats
  void release_slot(Request& request);                                     // when it stops running
  [[nodiscard]] KvRequest kv_request(Request& request);                    // valid until the next call
  // Names are needed by the prefix cache, and by a connector of its own accord.
  [[nodiscard]] bool names_blocks() const { return config.prefix_cache.enable_prefix_caching || seams.connector != nullptr; }
  [[nodiscard]] RequestContent content(const Request& request) const;
  [[nodiscard]] RequestView view(const Request& request) const;
  [[nodiscard]] GroupBlocks group_blocks(const Request& request);  // valid until the next call
  [[nodiscard]] std::uint32_t num_blocks(const Request& request) const;
  void snapshot_encoder_cache(CoreSnapshot& to) const;  // snapshot.cpp
  [[nodiscard]] EncoderInputs encoder_inputs(const Request& request) const { return {request.id, request.features}; }
  // A transfer fills its blocks.
  [[nodiscard]] static bool is_loading(const Request& request) {
    return request.status == RequestStatus::waiting_for_remote_kv && !request.finished_receiving;
  }
  [[nodiscard]] static bool blocked(const Request& request) {
    return request.status == RequestStatus::waiting_for_grammar || request.status == RequestStatus::waiting_for_remote_kv ||
           request.status == RequestStatus::waiting_for_input;
  }

  // check_result.cpp: the output side begins here
  [[nodiscard]] Result<void> check_result(const StepResult& result) const;
  [[nodiscard]] Result<void> check_tokens(const PlanArena& arena, const StepResult& result) const;
  [[nodiscard]] Result<void> check_transfers(const StepResult& result) const;

  // forks.cpp
  [[nodiscard]] Result<void> check_room_for_fork(const Request& parent) const;
  Request& create_fork(const Request& parent, const ForkRequest& given);
  void share_blocks(Request& parent, Request& child);
  void join_family(Request& parent, Request& child);
  void leave_family(Request& request);
  void leave_sharing(const Request& request);
  // That of the one forked last, but not the beneficiary's; false: there is none.
  bool give_up_share(EventCause cause, const Request* beneficiary = nullptr);
  void plan_copies(const Request& request, ScheduledKind kind, PlanArena& arena);

  // apply.cpp
  void take(const StepResult& result);
  void take_results(const PlanArena& arena, const StepResult& result);
  void take_result(const PlanArena& arena, std::uint32_t index, std::span<const TokenId> tokens, bool pooled);
  void take_back_rejected(const PlanArena& arena, std::uint32_t index, std::uint32_t num_sampled);
  std::optional<Stop> take_tokens(Request& request, std::span<const TokenId>& tokens);  // cuts `tokens` behind the one that stops it
  bool handle_stopped(Request& request, const Stop& stop);                              // false: a session that goes on
  void remove_stopped();
  RequestUpdate& report(Request& request, std::uint32_t result_index, std::span<const TokenId> tokens);
  void report_outcome(const PlanArena& arena);

  // finish.cpp
  void finish(std::span<Request* const> requests, RequestStatus status);  // none finished; each once
  void end(Request& request);                                             // _free_request; its status is a finished one
  void free_blocks(Request& request);
  void let_go(Request& request, Holder holder);  // frees the blocks if it was the last one
  void destroy_gone();

  // sessions.cpp
  bool continue_stopped_session(Request& session, RequestStatus before);  // false: no more input will come
  void take_input(Request& session, const SessionUpdate& input);

  // transfers.cpp
  void find_failed_loads(const PlanArena& arena, std::span<const BlockId> invalid);
  bool cut_at_invalid_block(Request& request, std::int32_t num_scheduled, bool evict);
  void add_to_evict(BlockId block);
  void evict_invalid();
  void fail_loads();
  void finish_failed_loads();
  void take_transfers(const StepResult& result);

  // planned_transfers.cpp: a connector's
  void plan_transfers(PlanArena& arena);
  void find_fences(PlanArena& arena, TransferId first_new);
  [[nodiscard]] Result<void> check_completions(const StepResult& result) const;
  [[nodiscard]] StepResult take_completions(const StepResult& result);
  void end_transfer(const TransferCompletion& completion);

  // drafts.cpp
  [[nodiscard]] bool grammar_advances(const Request& request) const;
  // The leading ones that the request's grammar takes.
  [[nodiscard]] std::span<const TokenId> fitting(const Request& request, std::span<const TokenId> drafts) const;

  // stats.cpp
  void count_drafts(std::uint32_t num_drafts, std::uint32_t num_accepted);
  const SchedulerStats* collect_stats();
  void collect_finished_sets();

  const CoreConfig config;
  const CoreSeams seams;
  const std::uint32_t num_groups;
  const bool zero_new_blocks;          // needs_kv_cache_zeroing
  std::unique_ptr<HashFunction> hash;  // null where the seams hand one in
  EventStamp events;
  KvCacheManager kv;
  EncoderCache encoder_cache;
  RequestTable table;
  std::optional<Agent> agent;  // under CONTINUUM
  [[nodiscard]] Agent& the_agent() {
    QUIRE_CHECK(agent.has_value(), "only CONTINUUM has jobs");
    return *agent;
  }
  PlanRing plans;

  std::vector<Request*> running;  // in order of admission
  RequestQueue waiting, skipped_waiting, step_skipped;
  std::uint32_t num_waiting_for_input = 0;                    // streaming sessions between two inputs; they are in skipped_waiting
  std::uint32_t num_loading = 0;                              // requests for which is_loading() holds; they are in skipped_waiting
  HoldLedger hold_ledger;                                     // of finished requests that are known
  std::vector<Request*> sharing;                              // forked, and still waiting with blocks; in that order
  std::unordered_map<std::uint64_t, std::uint32_t> families;  // how many of each are open
  std::uint64_t last_family = 0;
  OpenTransfers open_transfers;
  PauseState pause = PauseState::unpaused;
  std::vector<RequestId> finished;  // finished_req_ids: ended since the last plan, each once
  bool forget_last_plan = false;    // prev_step_scheduled_req_ids was cleared

  std::vector<Slot> free_slots;  // last in, first out
  std::vector<Slot> released;    // since the last plan

  // Of the step being planned.
  double now = 0.0;
  std::int32_t token_budget = 0;
  std::int64_t encoder_budget = 0;  // embeds
  std::vector<std::int64_t> loras;  // of running requests scheduled in this step, each once
  std::size_t cursor = 0;           // vLLM's req_index

  CoreCounters totals;               // the growing ones
  PrefixCacheStats connector_stats;  // with a connector and log_stats
  OutputSide out;

  std::vector<std::uint32_t> encoder_to_compute, encoder_to_load, cached_inputs;
  std::vector<std::string_view> encoder_identifiers;
  std::vector<std::span<const BlockId>> group_views;
  RequestContent kv_content;
};

}  // namespace quire
