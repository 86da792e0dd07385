#pragma once
// The scheduler: which tokens of which requests run in each step, and in which blocks their keys and values live.
//
// A deterministic state machine: no I/O, clock, thread or random number; equal calls give equal plans. Single-threaded. Decisions and
// their order follow vLLM V1 (v0.19): one token budget, running requests first, then waiting ones, first come first served, preemption
// by recomputation.
//
//   schedule() -> plan N -> the worker runs it -> apply(result N)
//
// Each plan must be applied, in order; at most kMaxOutstandingPlans may be made and not yet applied.
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/kv/event_sink.h"
#include "core/kv/extra_keys.h"
#include "quire/error.h"
#include "quire/ids.h"
#include "quire/options.h"
#include "quire/plan.h"
#include "quire/sampling.h"

namespace quire {

class BlockHasher;

inline constexpr std::uint32_t kMaxOutstandingPlans = 2;

// Every default that EngineOptions writes as 0 must be resolved: max_model_len and num_blocks are positive here.
struct SchedulerConfig {
  SchedulerOptions scheduler;
  std::uint32_t block_size = 16;  // tokens
  std::uint32_t num_blocks = 0;   // with the null block
  bool enable_prefix_caching = true;
  std::string hash_seed;  // replicas with equal seeds name equal blocks alike

  [[nodiscard]] Result<void> validate() const;
};

// Everything but `sampling` is copied by add().
struct NewRequest {
  RequestId id;
  std::span<const TokenId> prompt;
  std::uint32_t max_tokens = 16;
  std::uint32_t min_tokens = 0;
  std::span<const TokenId> eos_ids;
  std::span<const TokenId> stop_token_ids;
  bool ignore_eos = false;
  const SamplingParams* sampling = nullptr;  // handed through to the plans, never read; must live until the request is retired
  ExtraKeys extra_keys;
};

// What a step did to one request that was scheduled with samples == true and has not been finished from outside meanwhile.
struct RequestUpdate {
  RequestId id;
  std::span<const TokenId> tokens;  // appended by this step
  bool finished = false;
  FinishReason reason = FinishReason::stop;  // when finished
  TokenId stop_token = -1;                   // the EOS or stop id that finished it, also the last of `tokens`
  std::uint32_t num_cached_tokens = 0;       // prompt tokens found in the prefix cache at first admission
};

// A request's first entry into the batch.
struct FirstAdmission {
  RequestId id;
  std::uint32_t num_cached_tokens = 0;
};

// A view, valid until the next apply().
struct StepOutcome {
  StepId step;
  std::span<const RequestUpdate> updates;            // in the plan's order
  std::span<const FirstAdmission> first_admissions;  // of this step's plan
  std::span<const RequestId> preempted;              // when this step's plan was made
  std::span<const RequestId> retired;                // the core refers to these no more: their `sampling` may go
};

enum class FinishEffect : std::uint8_t {
  unknown,   // no such request, or finished before: nothing happened
  retired,   // gone; `sampling` may go too
  in_flight  // finished and its blocks are free, but an outstanding plan names it: its id comes in StepOutcome::retired
};

// Totals grow from the start.
struct SchedulerCounters {
  std::uint32_t num_running = 0;
  std::uint32_t num_waiting = 0;      // preempted ones included
  std::uint32_t num_blocks = 0;       // without the null block
  std::uint32_t num_free_blocks = 0;  // cached but unreferenced ones included
  std::uint64_t num_steps = 0;
  std::uint64_t num_preemptions = 0;
  std::uint64_t num_evicted_blocks = 0;
  std::uint64_t num_scheduled_tokens = 0;
  // Look-ups of requests never preempted, and of preempted ones that came back. Both count each retry of an admission.
  std::uint64_t prefix_query_tokens = 0, prefix_hit_tokens = 0;
  std::uint64_t preempted_prefix_query_tokens = 0, preempted_prefix_hit_tokens = 0;
};

class Scheduler {
 public:
  // `events` and `hasher` are optional and must outlive the scheduler; without a hasher blocks are named by SHA-256.
  static Result<std::unique_ptr<Scheduler>> create(const SchedulerConfig& config, EventSink* events = nullptr,
                                                   BlockHasher* hasher = nullptr);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Puts the request at the end of the waiting queue. Errors name the field: `invalid_argument` (among them a prompt or max_tokens that
  // the model or the cache cannot hold), `overloaded` (max_num_waiting reached). Adding an id twice is misuse and stops the program.
  // max_tokens is cut to what max_model_len leaves.
  Result<void> add(const NewRequest& request);

  // Decides a step. The plan may schedule nothing (nothing to do, or everything is in flight) and must be applied all the same.
  // Valid until its apply().
  const StepPlan& schedule();

  // Takes the oldest outstanding plan's result. A result that does not match the plan stops the program.
  const StepOutcome& apply(const StepResult& result);

  // Ends a request from outside, in any state: abort, or a stop string found by the caller. Its blocks are free at once, and no update
  // speaks of it any more.
  FinishEffect finish(RequestId id, FinishReason reason);

  // Forgets all cached prefixes. False, and nothing happens, while a request holds blocks.
  bool reset_prefix_cache();

  // A request is running or waiting.
  [[nodiscard]] bool has_work() const;
  [[nodiscard]] std::uint32_t num_outstanding_plans() const;
  [[nodiscard]] SchedulerCounters counters() const;
  [[nodiscard]] bool all_blocks_free() const;

  // Recomputes what must hold from scratch and stops the program where it does not. Slow: for tests and shutdown.
  void check_invariants() const;

 private:
  struct State;
  explicit Scheduler(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace quire
