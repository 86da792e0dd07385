#pragma once
// The step loop: plan, run, apply, deliver. Belongs to one thread, the engine thread; tests call step() directly. The loop waits only for
// the worker. Commands of clients are taken between two steps (Inbox), and sinks must return immediately.
//
// With asynchronous scheduling, the worker always has a step while there is work. Plan N+1 is made when step N is nearly done, before its
// result is known. Step N+1 then runs while result N is applied and delivered. Without asynchronous scheduling, a step is finished before
// the next step is planned.
//
// If no request waits and a pin is due, an empty step lets the pin expire. While only the end of a transfer can change the next plan, no
// step runs; the next step follows at the time that the worker names, or after a short interval. The same applies after several consecutive
// steps that plan nothing.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "engine/adapters/live_adapters.h"
#include "engine/loop/step_time.h"
#include "engine/publish/kv_event_publisher.h"
#include "engine/requests/grammars.h"
#include "engine/requests/inbox.h"
#include "engine/requests/live_failures.h"
#include "engine/requests/live_forks.h"
#include "engine/requests/live_images.h"
#include "engine/requests/live_requests.h"
#include "engine/requests/live_searches.h"
#include "engine/requests/live_sessions.h"
#include "engine/requests/prompt_logprobs.h"
#include "engine/requests/routed_experts.h"
#include "engine/requests/tool_names.h"
#include "engine/stats/rate.h"
#include "engine/trace/event_fan_out.h"
#include "engine/trace/tracer.h"
#include "quire/base/clock.h"
#include "quire/core.h"
#include "quire/engine_builder.h"
#include "quire/lab/curve.h"
#include "quire/lab/explain.h"
#include "quire/watch.h"
#include "runtime/worker/worker.h"

namespace quire {

class CoreJournal;

// Data for Engine::cache_curve(): the sampler of block reuse, and the constant parts of the answer.
struct HitRateSampling {
  std::shared_ptr<CurveSampler> sampler = {};  // follows the core; null: no curve is available
  CurveCosts costs = {};
  Error refusal = {};  // the reason why `sampler` is null
};

class StepLoop {
 public:
  struct Options {
    std::vector<TokenId> eos_ids;
    std::uint64_t seed = 0;                     // seed for requests that set none
    std::uint32_t max_num_seqs = 0;             // rows of the core's batch
    double step_time_target_s = 0.0;            // EngineOptions::step_time_target_ms; 0: none
    bool async_scheduling = false;              // equals the core's setting
    bool counts_common_prefix = false;          // equals the core's setting
    bool drains_for_forks = false;              // forks wait for the step in flight, which would overwrite states that they start from
    std::shared_ptr<Explainer> explainer = {};  // follows the core; null: no explanations
    HitRateSampling curve = {};
    std::shared_ptr<Tracer> tracer = {};                               // follows the core; null: no trace
    std::shared_ptr<CoreJournal> journal = {};                         // wraps the core's seams; null: no journal
    std::shared_ptr<ToolNames> tools = std::make_shared<ToolNames>();  // also the core's ToolNamer
    EngineSeams seams = {.clock = std::make_shared<SteadyClock>()};    // the clock is never null
    std::shared_ptr<EventFanOut> fan = {};                             // the core's sink if there are several sinks; else null
    std::shared_ptr<KvEventPublisher> kv_events = {};                  // null: KV events are not published
    std::shared_ptr<Grammars> grammars = {};                           // also the core's Grammar; null: no structured output
    std::shared_ptr<LiveAdapters> adapters = {};                       // the worker looks up adapters here; null: no adapters are served
    std::shared_ptr<LiveEncoderInputs> encoder_inputs = {};            // the worker looks up encoder inputs here; null: there is no encoder
    std::uint32_t num_encoder_positions = 0;                           // positions of one audio input
    bool supports_images = false;                                      // the model supports images and caches their encoder outputs
    // Returns the KV transfer parameters for the client of an ended request. Empty function: no tier keeps blocks for other servers.
    std::function<std::shared_ptr<const KvTransferParams>(RequestId)> take_transfer_params = {};
  };
  StepLoop(std::unique_ptr<Core> core, std::unique_ptr<WorkerBase> worker, Options options);

  // Adds an accepted request to the core. The other requests of the submission are forked from it when its prompt is planned.
  void add(Submission submission);
  // Forks children from a request. A child's first output contains the parent's outputs so far. If the fork fails, the child gets only one
  // output, which contains the error.
  void fork(const Fork& fork);
  // Appends tokens to a session's prompt. Ignored if the session has ended.
  void append(SessionTokens input);
  // Sends the last output of each request of a submission that was cancelled before it was added.
  void cancel(const Submission& submission, FinishReason reason);
  // Ends a request. Ignored if the id is unknown or the request has ended.
  void finish(RequestId id, FinishReason reason);
  // Ends all open requests. Returns their number.
  std::uint32_t abort_all();

  // Returns whether a request is open or a step is in flight.
  [[nodiscard]] bool has_work() const { return core_->has_work() || running_.has_value() || !pictures_.is_empty(); }
  // Returns whether a transfer is in flight, or still holds blocks of requests that wait for it or have ended.
  [[nodiscard]] bool awaits_transfers() const {
    const CoreCounters counters = core_->counters();
    return counters.num_awaiting_transfers > 0 || counters.num_open_transfers > 0;
  }
  // Sets the callback for ended transfers and compiled grammars. Call it before the first step. `notify` is called on any thread, and
  // note_change() must be called after each of its calls.
  void set_notify(const std::function<void()>& notify);
  // Records a change that the step in flight may not include. Another step then follows, even if the step in flight planned nothing.
  void note_change() {
    next_step_s_.reset();
    changed_since_start_ = true;
  }
  // Returns whether blocks are pinned for the next turn of a job.
  [[nodiscard]] bool has_pins() const { return core_->next_deadline().has_value(); }
  void end_pins() { core_->end_pins(); }
  // Returns whether step() has something to do. Returns false while everything is paused, and while only transfers could change the plan
  // and no step is due.
  [[nodiscard]] bool can_step() const { return wait_s() == 0.0; }
  // Returns how many seconds the loop may sleep unless a command comes; nullopt: it may sleep until a command comes.
  [[nodiscard]] std::optional<double> wait_s() const;
  // Computes together with the worker until the next step is due. Commands that come meanwhile are part of the next plan.
  void assist() { worker_->assist(); }
  void step();

  void set_pause_state(PauseState state);
  // Forgets all cached prefixes. Returns whether the cache was reset.
  Result<bool> reset_prefix_cache(const CacheResetOptions& options);
  // Clears the cache of encoder outputs. Returns false if the model caches none.
  bool reset_encoder_cache();

  // Delivers the outputs since the last call, in one call per sink. A sink may be destroyed after its request's last output.
  void deliver() { live_.deliver(); }

  // Return the requests that were first admitted, got their first token, or ended, since the last clear_changes().
  [[nodiscard]] std::span<const RequestId> admitted() const { return live_.admitted(); }
  [[nodiscard]] std::span<const RequestId> prefilled() const { return live_.prefilled(); }
  [[nodiscard]] std::span<const RequestId> ended() const { return live_.ended(); }
  void clear_changes() { live_.clear_changes(); }

  // Returns an explanation of each request with this name.
  [[nodiscard]] Result<std::vector<RequestExplanation>> explain(std::string_view name) const;
  // Fills `frame` with the current state. If watch() is not called for 10 s, the core stops counting block uses.
  void watch(WatchFrame& frame);
  // Returns which tokens of a request are in the caches, and how long the request would take, without adding it. `load_s` stays empty.
  [[nodiscard]] Result<EngineProbe> probe(const Submission& submission) const;
  [[nodiscard]] Result<EngineHitRateCurve> cache_curve(const std::optional<std::string>& tenant) const;

  [[nodiscard]] CoreCounters counters() const { return core_->counters(); }
  // Returns the number of batch rows that remain if each open request has a row.
  [[nodiscard]] std::uint32_t num_free_rows() const {
    const auto num_open = static_cast<std::uint32_t>(std::max(core_->counters().num_unfinished, 0));
    return options_.max_num_seqs - std::min(num_open, options_.max_num_seqs);
  }
  void set_swap_costs(const SwapCosts& costs) { core_->set_swap_costs(costs); }
  // Returns the recently measured prefill speed in tokens per second; 0: not known yet.
  [[nodiscard]] double compute_tokens_per_s() const { return compute_rate_.per_second(); }
  // Returns the current statistics. The reference is valid until the next call of any member function.
  [[nodiscard]] const EngineStats& stats();
  // Stops the program if a block is still held or a request is not retired. While requests wait for transfers, checks only the core's
  // invariants.
  void check_all_free() const;

 private:
  // A step that the worker has started.
  struct Running {
    double planned_s = 0.0;
    double started_s = 0.0;
    double plan_time_s = 0.0;
    std::uint32_t num_tokens = 0;
    StepWork work = {};  // only with EngineOptions::step_time_target_ms
    double predicted_s = 0.0;
    bool is_empty = false;  // the plan schedules no tokens
    bool is_idle = false;   // empty, and planned with no step in flight: the next plan is also empty unless something changes
  };
  // A plan that the worker has not started.
  struct Planned {
    const StepPlan* plan;
    Running running;
  };

  [[nodiscard]] Result<void> limit_to_tenant(const Submission& submission, CacheProbe& found) const;
  // Returns whether a pin has expired.
  [[nodiscard]] bool is_due(double now_s) const { return core_->next_deadline().value_or(now_s + 1.0) <= now_s; }
  void add_ready(LiveImages::Waiting ready);
  void add_request(Submission& submission);
  [[nodiscard]] Planned plan();
  [[nodiscard]] static StepWork work_of(const StepPlan& plan);
  // Waits for the step in flight and applies its result.
  void settle();
  void start(Planned planned);
  void apply(const Running& step, const WorkerResult& result, double ran_s);
  void wait_for_transfers(const Running& step, const StepResult& result);
  [[nodiscard]] StepResult to_step_result(const WorkerResult& result);
  void take_drafts(const StepOutcome& outcome, const WorkerResult& result);
  void provide_masks();
  void take_updates(const StepOutcome& outcome, const WorkerResult& result, double now_s);
  void take_admissions(const StepOutcome& outcome, double now_s);
  void count_transfers(const TransferTotals& totals);

  Options options_;
  std::unique_ptr<Core> core_;
  std::shared_ptr<const Clock> clock_;
  LiveRequests live_;
  LiveSessions sessions_;
  LiveForks forks_;
  LiveSearches searches_;
  PromptLogprobs prompts_;
  RoutedExperts experts_;
  LiveFailures failures_;
  std::unique_ptr<WorkerBase> worker_;  // reads the requests' data while it computes
  LiveImages pictures_;
  std::optional<Running> running_;
  const StepPlan* unmasked_ = nullptr;   // a started plan whose masks depend on tokens in flight; null: none
  std::optional<double> next_step_s_;    // time of the next step while only transfers can change the plan
  std::uint32_t num_idle_steps_ = 0;     // consecutive steps that planned nothing
  std::optional<double> watched_s_;      // time of the last watch(), while block uses are counted
  bool has_unpublished_events_ = false;  // events since the last step wait to be published with another step
  bool changed_since_start_ = false;     // note_change() was called after the last step started
  std::vector<SampledToken> sampled_;    // samples of the step that is applied
  std::vector<RequestId> pooled_;        // pooling requests of the step that is applied
  std::vector<Draft> drafts_;            // draft tokens for the next plan
  Rate compute_rate_;
  std::optional<StepTimePredictor> step_time_;  // nullopt: steps have no target
  Random random_;                               // random numbers for the core, which samples the blocks whose residency is measured
};

}  // namespace quire
