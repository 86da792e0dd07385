#pragma once
// The step: plan, run, apply, deliver. Belongs to one thread; tests step it by hand.
// It waits for the worker and for nobody else: clients are heard between two steps (Inbox), sinks must return at once.
//
// With asynchronous scheduling the worker is never without a step while there is work: plan N+1 is made when step N is nearly done, before
// its result is known, and step N+1 runs while result N is applied and delivered. Without, a step is over before the next is planned.
//
// While nobody waits but a pin is to expire, a step that plans nothing lets it. While the end of a transfer is all that can change the next
// plan, no step runs; at the time that the worker names, or soon, one looks. So it is, too, where nothing has been planned for some steps.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "engine/adapters/live_adapters.h"
#include "engine/publish/kv_event_publisher.h"
#include "engine/requests/grammars.h"
#include "engine/requests/inbox.h"
#include "engine/requests/live_failures.h"
#include "engine/requests/live_forks.h"
#include "engine/requests/live_pictures.h"
#include "engine/requests/live_requests.h"
#include "engine/requests/live_searches.h"
#include "engine/requests/live_sessions.h"
#include "engine/requests/prompt_logprobs.h"
#include "engine/requests/routed_experts.h"
#include "engine/requests/tool_names.h"
#include "engine/stats/rate.h"
#include "engine/trace/event_fan.h"
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

// Who follows which blocks are used again, for Engine::cache_curve(), and what does not change of its answer.
struct FollowedReuse {
  std::shared_ptr<CurveSampler> sampler = {};  // follows the core; null: nobody is to ask
  CurveCosts costs = {};
  Error refusal = {};  // why there is none
};

class StepLoop {
 public:
  struct Options {
    std::vector<TokenId> eos_ids;
    std::uint64_t seed = 0;                     // for requests without one of their own
    bool async_scheduling = false;              // as the core was built
    bool counts_common_prefix = false;          // the same
    bool settles_for_forks = false;             // a step in flight would write over what a child begins with: layers have states
    std::shared_ptr<Explainer> explainer = {};  // follows the core; null: nobody is to ask
    FollowedReuse curve = {};
    std::shared_ptr<Tracer> tracer = {};                               // the one that follows the core; null: no trace
    std::shared_ptr<CoreJournal> journal = {};                         // stands before the core's seams; null: none
    std::shared_ptr<ToolNames> tools = std::make_shared<ToolNames>();  // the one that the core asks
    EngineSeams seams = {.clock = std::make_shared<SteadyClock>()};    // the clock is never null
    std::shared_ptr<EventFan> fan = {};                                // the core's, where there are two sinks
    std::shared_ptr<KvEventPublisher> kv_events = {};                  // null: nobody is told of them
    std::shared_ptr<Grammars> grammars = {};                           // the one that the core asks; null: no structured output
    std::shared_ptr<LiveAdapters> adapters = {};                       // where the worker finds them; null: there are none
    std::shared_ptr<LiveEncoderInputs> encoder_inputs = {};            // the same
    std::uint32_t num_encoder_positions = 0;                           // of a sound
    // What the client of a request that has ended is told of its blocks; null: there is nobody who keeps any.
    std::function<std::shared_ptr<const KvTransferParams>(RequestId)> transfer_answer = {};
  };
  StepLoop(std::unique_ptr<Core> core, std::unique_ptr<WorkerBase> worker, Options options);

  // The request is accepted: the core takes it, and forks its siblings from it when its prompt is planned.
  void add(Submission submission);
  // Each child's first output is what the parent has put out; where there is none to fork, it is its last.
  void fork(const Fork& fork);
  // More of a session's prompt; nothing to one that has ended.
  void append(SessionTokens input);
  // Its last output, without having been added.
  void cancel(const Submission& submission, FinishReason reason);
  // Unknown or ended requests are ignored.
  void finish(RequestId id, FinishReason reason);
  // Returns how many.
  std::uint32_t abort_all();

  // A request is known that has not ended, or a step is under way.
  [[nodiscard]] bool has_work() const { return core_->has_work() || running_.has_value() || !pictures_.is_empty(); }
  // A transfer is under way, or holds blocks of requests that wait for it or have ended.
  [[nodiscard]] bool awaits_transfers() const {
    const CoreCounters counters = core_->counters();
    return counters.num_awaiting_transfers > 0 || counters.num_open_transfers > 0;
  }
  // Before the first step: called after each end of a transfer, and when grammars have been compiled, from any thread. look_for_news() is
  // to follow.
  void notify_with(const std::function<void()>& notify);
  // Something may have changed that the step under way could not know: another one is due even if that one finds nothing to do.
  void look_for_news() {
    next_step_s_.reset();
    told_since_start_ = true;
  }
  // Blocks stay for the next turn of their job.
  [[nodiscard]] bool has_pins() const { return core_->next_deadline().has_value(); }
  void end_pins() { core_->end_pins(); }
  // step() would do something: not while everything is paused, nor while only transfers could change anything and none is due.
  [[nodiscard]] bool can_step() const { return wait_s() == 0.0; }
  // How long there is nothing to do unless a command comes; nullopt: until one comes.
  [[nodiscard]] std::optional<double> wait_s() const;
  // Computes with the worker until it is time to step; what comes in meanwhile still gets into the next plan.
  void assist() { worker_->assist(); }
  void step();

  void set_pause_state(PauseState state);
  // Whether it was reset.
  Result<bool> reset_prefix_cache(const CacheResetOptions& options);

  // Hands each sink what has come up since the last call, in one call per sink. A sink may be gone after its request's last output.
  void deliver() { live_.deliver(); }

  // Since the last clear_news(): requests that were admitted for the first time, and that ended.
  [[nodiscard]] std::span<const RequestId> admitted() const { return live_.admitted(); }
  [[nodiscard]] std::span<const RequestId> ended() const { return live_.ended(); }
  void clear_news() { live_.clear_news(); }

  // Of the requests of a name.
  [[nodiscard]] Result<std::vector<RequestExplanation>> explain(std::string_view name) const;
  // As of now. Where nobody looks for 10 s, uses of blocks are counted no more.
  void watch(WatchFrame& frame);
  // What a request would find that is not added, and how long it would take; load_s is not said here.
  [[nodiscard]] Result<EngineProbe> probe(const Submission& submission) const;
  [[nodiscard]] Result<EngineCurve> cache_curve(const std::optional<std::string>& tenant) const;

  [[nodiscard]] CoreCounters counters() const { return core_->counters(); }
  void set_swap_costs(const SwapCosts& costs) { core_->set_swap_costs(costs); }
  // How fast prompts were computed lately; 0: not known yet.
  [[nodiscard]] double compute_tokens_per_s() const { return compute_rate_.per_second(); }
  // As of now; valid until the next call of any member.
  [[nodiscard]] const EngineStats& stats();
  // Stops the program if a block is still held, except by transfers: stats() counts those.
  void check_all_free() const;

 private:
  // A step that the worker has begun.
  struct Running {
    double planned_s = 0.0;
    double started_s = 0.0;
    double plan_time_s = 0.0;
    std::uint32_t num_tokens = 0;
    bool is_empty = false;  // nothing to compute
    bool is_idle = false;   // and nothing was in flight when it was planned: the next plan is empty as well unless something comes
  };
  // A plan that has not been handed to the worker yet.
  struct Planned {
    const StepPlan* plan;
    Running running;
  };

  // A pin has expired.
  [[nodiscard]] bool is_due(double now_s) const { return core_->next_deadline().value_or(now_s + 1.0) <= now_s; }
  void add_ready(LivePictures::Waiting ready);
  void add_request(Submission& submission);
  [[nodiscard]] Planned plan();
  // Until nothing is in flight.
  void settle();
  void start(Planned planned);
  void apply(const Running& step, const WorkerResult& result, double ran_s);
  void wait_for_transfers(const Running& step, const StepResult& result);
  [[nodiscard]] StepResult for_core(const WorkerResult& result);
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
  std::unique_ptr<WorkerBase> worker_;  // while it computes it reads what the requests ask for
  LivePictures pictures_;
  std::optional<Running> running_;
  const StepPlan* unmasked_ = nullptr;  // begun, and its masks wait for tokens in flight
  std::optional<double> next_step_s_;   // when to look for transfers, while only they can change anything
  std::uint32_t num_idle_steps_ = 0;    // in a row
  std::optional<double> watched_s_;     // when somebody looked last, while uses of blocks are counted
  bool told_since_start_ = false;       // of what the step under way may have been too early for
  std::vector<SampledToken> sampled_;   // of the step that is applied
  std::vector<RequestId> pooled_;       // the same
  std::vector<Draft> drafts_;           // the same, for the next plan
  Rate compute_rate_;
  Random random_;  // for the core's draws: which blocks are followed
};

}  // namespace quire
