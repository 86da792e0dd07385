#pragma once
// What the parts of the core's scheduler share. Private to this folder; the facade is quire/core.h.
//
// States of a request, and who moves it (vLLM's RequestStatus):
//   waiting, preempted       in `waiting`, or in `skipped_waiting` after it was passed over       add, preempt, promote, sessions
//   waiting_for_*            in `skipped_waiting`                                                add, waiting.cpp, sessions.cpp
//   running                  in `running`, with a slot and blocks                                waiting.cpp: enter
//   finished_*, known        in no queue; a transfer still reads or fills its blocks             finish.cpp
//   finished_*, not known    blocks are free; outstanding plans name it (num_in_flight > 0)      finish.cpp: free_blocks
// and then it is destroyed. A slot is free or a running request's; it becomes free when its request leaves `running`, is named in the
// next plan's `released`, and may be given out again in that same plan.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/kv/encoder_cache.h"
#include "core/kv/event_sink.h"
#include "core/kv/kv_cache_manager.h"
#include "core/schedule/output_side.h"
#include "core/schedule/plan_arena.h"
#include "core/schedule/request.h"
#include "core/schedule/request_queue.h"
#include "core/schedule/request_table.h"
#include "quire/core.h"

namespace quire {

// What _try_schedule_encoder_inputs decides. The two lists are State's scratch, valid until the next call.
struct EncoderGrant {
  std::int32_t num_new_tokens = 0;
  std::int64_t compute_budget = 0;            // what is left
  std::span<const std::uint32_t> to_compute;  // inputs whose encoder runs in this step
  std::span<const std::uint32_t> to_load;     // inputs whose output comes from elsewhere
};

struct Core::State {
  State(const CoreConfig& config, const CoreSeams& seams);

  // running.cpp: the running loop
  void schedule_running(PlanArena& arena);
  bool schedule_one_running(Request& request, PlanArena& arena);
  [[nodiscard]] bool surely_reached_max_tokens(const Request& request) const;
  bool make_room(Request& request, const SlotDemand& demand, PlanArena& arena);
  void take_drafts(Request& request, std::int32_t num_new_tokens, PlanArena& arena);

  // preemption.cpp
  Request& take_victim(PlanArena& arena);
  void roll_back(Request& victim, PlanArena& arena);
  void preempt(Request& victim);

  // waiting.cpp: the waiting loop
  void schedule_waiting(PlanArena& arena);
  enum class Admission : std::uint8_t { admitted, skipped, blocked };
  Admission try_admit(Request& request, RequestQueue& queue, PlanArena& arena);
  RequestQueue& queue_to_take_from();
  void skip(RequestQueue& queue);
  void enter(Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens, PlanArena& arena);

  // remote_kv.cpp: the look-up side of the connector, and the way out of blocked states
  bool try_promote(Request& request);
  void take_received(Request& request);

  // encoder_inputs.cpp
  EncoderGrant schedule_encoder_inputs(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens);
  void allocate_encoder_inputs(const Request& request, const EncoderGrant& grant);
  void free_encoder_inputs(Request& request);

  // after_schedule.cpp: what a plan tells besides tokens and blocks, and the counters it advances
  void complete(PlanArena& arena);
  void advance(PlanArena& arena);

  // core.cpp; requests.cpp
  void enqueue(Request& request);                                          // _enqueue_waiting_request
  void append_tokens(Request& request, std::span<const TokenId> tokens);   // and the names of the blocks that become full
  void record(Request& request, RequestEventKind kind, double timestamp);  // with log_stats
  void release_slot(Request& request);                                     // when it leaves `running`
  [[nodiscard]] KvRequest kv_request(Request& request) const;
  [[nodiscard]] RequestView view(const Request& request) const;
  [[nodiscard]] GroupBlocks group_blocks(const Request& request);  // valid until the next call
  [[nodiscard]] EncoderInputs encoder_inputs(const Request& request) const { return {request.id, request.features}; }
  [[nodiscard]] static bool blocked(const Request& request) {
    return request.status == RequestStatus::waiting_for_grammar || request.status == RequestStatus::waiting_for_remote_kv ||
           request.status == RequestStatus::waiting_for_input;
  }

  // --- output side (apply.cpp, finish.cpp, sessions.cpp, transfers.cpp, drafts.cpp, stats.cpp) ---

  // --- end of output side ---

  const CoreConfig config;
  const CoreSeams seams;
  std::unique_ptr<BlockHasher> hasher;  // null without prefix caching
  KvCacheManager kv;
  EncoderCache encoder_cache;
  RequestTable table;
  PlanRing plans;

  std::vector<Request*> running;  // in order of admission
  RequestQueue waiting, skipped_waiting, step_skipped;
  std::uint32_t num_waiting_for_input = 0;  // streaming sessions between two inputs; they are in skipped_waiting
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
};

}  // namespace quire
