#pragma once
// The step: plan, run, apply, deliver. Belongs to one thread; tests step it by hand.
//
// With asynchronous scheduling the worker is never without a step while there is work: plan N+1 is made when step N is nearly done, before
// its result is known, and step N+1 runs while result N is applied and delivered. Without, a step is over before the next is planned.
//
// While nobody waits but a pin is to expire, a step that plans nothing lets it. While the end of a transfer is all that can change the next
// plan, no step runs; at the time that the worker names, or soon, one looks.
//
// States of a request here, and who moves it:
//   live      known to the core                                add
//   ended     its last output is made, a plan still names it   end
//   gone      forgotten                                        the core's `retired`
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/requests/grammars.h"
#include "engine/requests/inbox.h"
#include "engine/requests/searches.h"
#include "engine/requests/tool_names.h"
#include "engine/stats/rate.h"
#include "engine/trace/event_fan.h"
#include "engine/trace/tracer.h"
#include "quire/clock.h"
#include "quire/core.h"
#include "quire/engine_builder.h"
#include "runtime/worker/worker.h"

namespace quire {

class StepLoop {
 public:
  struct Options {
    std::vector<TokenId> eos_ids;
    std::uint64_t seed = 0;                                            // for requests without one of their own
    bool async_scheduling = false;                                     // as the core was built
    std::shared_ptr<Tracer> tracer = {};                               // the one that follows the core; null: no trace
    std::shared_ptr<ToolNames> tools = std::make_shared<ToolNames>();  // the one that the core asks
    EngineSeams seams = {.clock = std::make_shared<SteadyClock>()};    // the clock is never null
    std::shared_ptr<EventFan> fan = {};                                // the core's, where there are two sinks
    std::shared_ptr<Grammars> grammars = {};                           // the one that the core asks; null: no structured output
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
  [[nodiscard]] bool has_work() const { return core_->has_work() || running_.has_value(); }
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
  void deliver();

  // Since the last clear_news(): requests that were admitted for the first time, and that ended.
  [[nodiscard]] std::span<const RequestId> admitted() const { return admitted_; }
  [[nodiscard]] std::span<const RequestId> ended() const { return ended_; }
  void clear_news();

  [[nodiscard]] CoreCounters counters() const { return core_->counters(); }
  void set_swap_costs(const SwapCosts& costs) { core_->set_swap_costs(costs); }
  // How fast prompts were computed lately; 0: not known yet.
  [[nodiscard]] double compute_tokens_per_s() const { return compute_rate_.per_second(); }
  // As of now; valid until the next call of any member.
  [[nodiscard]] const EngineStats& stats();
  // Stops the program if a block is still held, except by transfers: stats() counts those.
  void check_all_free() const;

 private:
  struct Session {
    std::deque<std::vector<TokenId>> inputs{};  // not taken yet; the last is empty if no more will come
    std::size_t num_tokens = 0;                 // that it has, as its client knows them
    bool waits = false;                         // for the next of them; what comes of it now is of a step that was begun too early
    std::uint64_t waits_until = 0;              // results: then no step is under way that it takes part in
  };
  struct Live {
    SamplingParams sampling;
    OutputSink* sink = nullptr;
    std::uint32_t num_prompt_tokens = 0;
    std::uint32_t num_cached_tokens = 0;
    bool ended = false;
    bool pooling = false;
    bool is_admitted = false;           // of a search, its first
    std::vector<RequestId> siblings{};  // to be forked from it
    std::optional<RequestId> elder{};   // it is to be forked from this one: the core does not know it yet
    std::optional<RequestId> search{};  // it is one of this one's answers: the core knows the beams instead
    // If asked for and not given out yet: a place for each token of the prompt but the first. With those who are forked from it.
    std::shared_ptr<std::vector<PositionLogprobs>> prompt_logprobs{};
    std::shared_ptr<const StructuredOutput> structured_output{};  // may be null
    std::unique_ptr<Session> session{};                           // null: it is none
    double arrival_s = 0.0;
    double last_token_s = -1.0;  // negative: none yet
  };
  struct Outgoing {
    OutputSink* sink = nullptr;
    RequestOutput output;
    std::size_t place = 0;  // among all: those of a request stay in order
  };
  // A step that the worker has begun.
  struct Running {
    double planned_s = 0.0;
    double started_s = 0.0;
    double plan_time_s = 0.0;
    std::uint32_t num_tokens = 0;
    bool is_empty = false;  // nothing to compute
    bool is_idle = false;   // and nothing was in flight when it was planned: the next plan is empty as well unless something comes
  };
  struct Planned {
    const StepPlan* plan;
    Running running;
  };

  [[nodiscard]] bool is_due(double now_s) const { return core_->next_deadline().value_or(now_s + 1.0) <= now_s; }
  Live& make_live(RequestId id, const Submission& submission, std::uint32_t number);
  void expect_siblings(const Submission& submission);
  void fork_siblings(const StepPlan& plan);
  Result<void> fork_one(const Fork& fork, std::uint32_t number, Live& child);
  void fork_sibling(RequestId elder, RequestId id);
  void part_from_siblings(RequestId elder, Live& live);
  void add_alone(RequestId id, Live& live, const RequestView& elder);
  void add_session(Live& live, Submission& submission);
  void rest(RequestId id, Session& session);
  void advance_sessions();
  void advance_session(RequestId id, Live& live);
  Result<void> take_input(RequestId id, Live& live);
  void add_search(Submission submission);
  void admit_search(RequestId search, const FirstAdmission& admission, double now_s);
  void advance_searches(double now_s);
  void take_offer(const RequestUpdate& update, const PositionLogprobs& sampled);
  void answer(RequestId id, BeamSearch::Hypothesis found);
  void end_search(RequestId search, FinishReason reason, const std::string& error);
  [[nodiscard]] NewRequest request_of(RequestId id, const Live& live) const;
  [[nodiscard]] Planned plan();
  void start(Planned planned);
  void apply(const Running& step, const WorkerResult& result, double ran_s);
  void wait_for_transfers(const Running& step, const StepResult& result);
  [[nodiscard]] StepResult for_core(const WorkerResult& result);
  void take_drafts(const WorkerResult& result);
  static void make_prompt_room(Live& live);
  void take_prompt_logprobs(const WorkerResult& result);
  void fail_prompt(RequestId id);
  void end_failed(const WorkerResult& result);
  void end_refused(std::vector<Grammars::Failure> failures);
  void provide_masks();
  void send(OutputSink* sink, RequestOutput output) { outgoing_.push_back({sink, std::move(output), outgoing_.size()}); }
  void end_unloaded(std::span<const RequestId> failed);
  void take_updates(const StepOutcome& outcome, const WorkerResult& result, double now_s);
  void take_admissions(const StepOutcome& outcome, double now_s);
  void count_transfers(const TransferTotals& totals);
  void count_drafts(std::uint32_t num_verified, std::uint32_t num_accepted);
  void token_times(Live& live, std::size_t num_tokens, double now_s);
  void end(RequestId id, Live& live, FinishReason reason, std::string error);
  void count_end(RequestId id, Live& live, FinishReason reason);

  std::unique_ptr<Core> core_;
  Searches searches_;
  std::unique_ptr<WorkerBase> worker_;
  Options options_;
  std::optional<Running> running_;
  const StepPlan* unmasked_ = nullptr;  // begun, and its masks wait for tokens in flight
  std::optional<double> next_step_s_;   // when to look for transfers, while only they can change anything
  bool told_since_start_ = false;       // of what the step under way may have been too early for
  std::shared_ptr<const Clock> clock_;
  std::unordered_map<RequestId, Live> requests_;
  std::vector<RequestId> resting_;     // sessions that wait for input
  std::uint64_t num_applied_ = 0;      // results
  std::vector<RequestId> elders_;      // have siblings that are not forked yet
  std::vector<SampledToken> sampled_;  // of the step that is applied
  std::vector<RequestId> pooled_;      // the same
  std::vector<Draft> drafts_;          // the same, for the next plan
  std::vector<Outgoing> outgoing_;
  std::vector<RequestId> admitted_, ended_;
  Rate compute_rate_;
  EngineStats stats_;
};

}  // namespace quire
