// Implements one step of the engine, and the work between two steps. Called by EngineImpl::run() on the engine thread, and directly by
// tests. All of this work must be short compared with a step, because with asynchronous scheduling it runs while the worker computes the
// next step. If one request fails (live_failures.h), only that request ends.
#include "engine/loop/step_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "base/check.h"
#include "quire/journal.h"

namespace quire {
namespace {

// Interval between checks of transfers, if the worker does not name a time for the next check.
constexpr double kTransferPoll_s = 0.001;
// Maximum number of consecutive steps that plan nothing. A few such steps are normal, because one may make room for the next. After this
// number, the waiting requests depend on something else (a session that holds blocks, a connector without an answer), and steps are made as
// rarely as transfers are checked.
constexpr std::uint32_t kIdleSteps = 4;
// Minimum number of tokens of a step that measures the prefill speed. Smaller steps spend most of their time on reading the weights.
constexpr std::uint32_t kPromptStep = 64;
// With a target time for steps, a step with this many prompt tokens also measures the prefill speed, because there may be no larger steps.
constexpr std::uint32_t kLimitedPromptStep = 16;
constexpr double kComputeHorizon_s = 5.0;  // averaging horizon of the prefill speed, in seconds of steps that measure it
// Time after the last watch() at which the counting of block uses ends.
constexpr double kWatch_s = 10.0;

}  // namespace

StepLoop::StepLoop(std::unique_ptr<Core> core, std::unique_ptr<WorkerBase> worker, Options options)
    : options_(std::move(options)),
      core_(std::move(core)),
      clock_(options_.seams.clock),
      live_(*core_, {.eos_ids = options_.eos_ids,
                     .seed = options_.seed,
                     .clock = clock_,
                     .tools = options_.tools,
                     .grammars = options_.grammars,
                     .adapters = options_.adapters,
                     .encoder_inputs = options_.encoder_inputs}),
      sessions_(*core_, live_),
      forks_(*core_, live_, sessions_),
      searches_(*core_, live_),
      prompts_(live_, forks_),
      experts_(live_),
      failures_(*core_, live_, forks_, searches_),
      worker_(std::move(worker)),
      pictures_(*core_, *worker_),
      compute_rate_(kComputeHorizon_s),
      random_(options_.seed) {
  if (options_.step_time_target_s > 0.0) step_time_.emplace(options_.step_time_target_s);
}

void StepLoop::add(Submission submission) {
  note_change();
  if (auto& audio = submission.request.encoder_input; audio != nullptr) {
    // The identifier need not identify the audio: prefix caching is off, and encoder outputs live for only one step.
    const MultimodalFeature audio_features{fmt::format("{}", submission.id.value), {0, options_.num_encoder_positions}};
    submission.encoder_inputs =
        std::make_shared<const RequestInputs>(RequestInputs{.audio = std::move(audio), .audio_features = {audio_features}});
  }
  if (submission.request.pictures.empty() || !pictures_.take(submission)) add_ready({.submission = std::move(submission)});
}

void StepLoop::add_ready(LiveImages::Waiting ready) {
  Submission& submission = ready.submission;
  if (submission.request.beam_search.has_value())
    searches_.add(submission);
  else
    add_request(submission);
  for (const Fork& one : ready.forks) fork(one);
  for (SessionTokens& input : ready.inputs) append(std::move(input));
  for (const FinishCommand& ending : submission.ended) finish(ending.id, ending.reason);
}

void StepLoop::add_request(Submission& submission) {
  const RequestId id = submission.id;
  LiveRequest& live = live_.make(id, submission, 0);
  allocate_prompt_outputs(live);
  forks_.expect(submission);
  NewRequest request = live_.request_of(id, live);
  request.prompt = submission.request.prompt;
  request.prompt_storage = &submission.request.prompt;
  request.resumable = submission.request.session;
  request.block_hashes = submission.names();
  request.priority = submission.request.priority;
  request.cache_salt = submission.request.cache_salt;
  request.tags = &submission.request.tags;
  live_.add_to_core(request, live);
  if (submission.request.session) sessions_.begin(live, submission);
  options_.tools->put(id, std::move(submission.request.tool_name_function));
}

void StepLoop::fork(const Fork& fork) {
  note_change();
  if (pictures_.fork(fork)) return;
  if (options_.drains_for_forks) settle();
  forks_.fork(fork);
}

void StepLoop::settle() {
  if (!running_.has_value()) return;
  const Running finished = *running_;
  running_.reset();
  const WorkerResult result = worker_->finish();
  apply(finished, result, clock_->now_s());
}

void StepLoop::append(SessionTokens input) {
  if (!pictures_.append(input) && sessions_.append(std::move(input))) note_change();
}

void StepLoop::cancel(const Submission& submission, FinishReason reason) {
  for (std::uint32_t i = 0; i < submission.request.n; ++i) {
    LiveRequest live;
    live.sink = submission.sink;
    live.arrival_s = submission.arrival_s;
    live_.end(sibling(submission, i), live, reason);
  }
}

void StepLoop::finish(RequestId id, FinishReason reason) {
  LiveImages::Waiting waiting;
  if (const auto ended = pictures_.end(id, reason, waiting); ended != LiveImages::Ended::unknown) {
    if (ended == LiveImages::Ended::one) return;
    cancel(waiting.submission, reason);
    for (const Fork& fork : waiting.forks) forks_.cancel(fork, reason);
    return;
  }
  LiveRequest* live = live_.find_open(id);
  if (live == nullptr) return;
  note_change();
  if (live->search.has_value()) return searches_.end(*live->search, reason);
  if (live->leader.has_value()) return forks_.end_expected(id, reason);
  forks_.part(id);
  sessions_.forget(id);
  QUIRE_CHECK(live_.finish(id, *live, reason) != FinishEffect::unknown, "the core has every live request");
}

std::uint32_t StepLoop::abort_all() {
  std::vector<RequestId> ids = live_.open_ids();
  std::ranges::copy(pictures_.ids(), std::back_inserter(ids));
  std::ranges::for_each(ids, [this](RequestId id) { finish(id, FinishReason::abort); });  // ending one request may end others
  return static_cast<std::uint32_t>(ids.size());
}

void StepLoop::set_notify(const std::function<void()>& notify) {
  worker_->set_notify(notify);
  if (options_.grammars != nullptr) options_.grammars->set_notify(notify);
}

void StepLoop::step() {
  if (options_.grammars != nullptr) failures_.end_refused(options_.grammars->collect());
  for (LiveImages::Waiting& ready : pictures_.take_ready()) {
    note_change();
    add_ready(std::move(ready));
  }
  std::optional<Planned> next;
  const bool may_plan = core_->counters().num_unfinished > 0 || awaits_transfers() || has_unpublished_events_ || is_due(clock_->now_s());
  // A step that computes nothing does not overlap with another step.
  if (may_plan && !(running_.has_value() && running_->is_empty)) next = plan();
  if (next.has_value() && !options_.async_scheduling) {
    start(*next);
    next.reset();
  }
  const std::optional<Running> finished = std::exchange(running_, std::nullopt);
  // Waits for the worker. If the next plan is ready, the worker is idle until start(), so only the clock is read before that.
  const WorkerResult result = finished.has_value() ? worker_->finish() : WorkerResult{};
  const double ran_s = clock_->now_s();
  if (next.has_value()) start(*next);
  if (finished.has_value()) apply(*finished, result, ran_s);
  if (unmasked_ != nullptr) provide_masks();
  if (!running_.has_value() && !pictures_.is_empty()) worker_->encode();
}

StepLoop::Planned StepLoop::plan() {
  const double begin_s = clock_->now_s();
  if (watched_s_.has_value() && begin_s - *watched_s_ > kWatch_s) {
    core_->end_watch();
    watched_s_.reset();
  }
  has_unpublished_events_ = false;
  if (step_time_.has_value()) {
    const PrefillLimits limits = step_time_->limits();
    core_->set_prefill_limits(limits);
    live_.counts().stats().prefill_limit = limits.beside_decodes;
  }
  const StepPlan& plan = core_->schedule({.now = begin_s, .random = random_.next()});
  if (options_.tracer != nullptr) options_.tracer->planned(plan);
  forks_.planned(plan);
  if (options_.counts_common_prefix) live_.counts().common_prefix(plan.scheduled.size(), plan.num_common_prefix_blocks);
  const double end_s = clock_->now_s();
  const bool is_empty = plan.num_scheduled_tokens == 0;
  // Frees the blocks of beams that only wait for other beams, because the waiting requests may need these blocks. A connector may first
  // store the blocks by a transfer of the next plan, so the next plan is made even if nothing else changes.
  const bool has_given = is_empty && !running_.has_value() && searches_.release_waiting_beams(end_s);
  const StepWork work = step_time_.has_value() ? work_of(plan) : StepWork{};
  return {&plan,
          {.planned_s = end_s,
           .started_s = end_s,
           .plan_time_s = end_s - begin_s,
           .num_tokens = plan.num_scheduled_tokens,
           .work = work,
           .predicted_s = step_time_.has_value() ? step_time_->predict_s(work) : 0.0,
           .is_empty = is_empty,
           .is_idle = is_empty && !running_.has_value() && !has_given}};
}

StepWork StepLoop::work_of(const StepPlan& plan) {
  StepWork work;
  for (const ScheduledRequest& scheduled : plan.scheduled) {
    const bool is_decode = scheduled.num_tokens <= 1 + scheduled.drafts.size();
    work.num_decodes += is_decode ? 1 : 0;
    if (!is_decode) {
      work.num_prompt_tokens += scheduled.num_tokens;
      work.num_context_reads += scheduled.num_tokens * (scheduled.num_computed_tokens + 0.5 * scheduled.num_tokens);
    }
    work.has_encoder_inputs |= !scheduled.encoder_inputs.empty();
  }
  return work;
}

std::optional<double> StepLoop::wait_s() const {
  if (running_.has_value() || !pictures_.is_empty() || has_unpublished_events_) return 0.0;
  std::optional<double> until_s = core_->next_deadline();
  if (next_step_s_.has_value())
    until_s = std::min(*next_step_s_, until_s.value_or(*next_step_s_));
  else if (core_->counters().num_unfinished > 0 || awaits_transfers())
    return 0.0;
  if (!until_s.has_value() || *until_s == std::numeric_limits<double>::infinity()) return std::nullopt;
  return std::max(0.0, *until_s - clock_->now_s());
}

void StepLoop::set_pause_state(PauseState state) {
  core_->set_pause_state(state);
  note_change();
}

void StepLoop::wait_for_transfers(const Running& step, const StepResult& result) {
  next_step_s_.reset();
  const bool has_news = !result.finished_sending.empty() || !result.finished_receiving.empty() || !result.invalid_blocks.empty() ||
                        !result.completions.empty();
  const bool has_waiting = core_->counters().num_unfinished > 0 || awaits_transfers();
  if (!step.is_idle || has_news || changed_since_start_ || !has_waiting) {
    num_idle_steps_ = 0;
    return;
  }
  if (awaits_transfers())
    next_step_s_ = worker_->next_transfer_s().value_or(clock_->now_s() + kTransferPoll_s);
  else if (options_.grammars != nullptr && options_.grammars->is_compiling())
    next_step_s_ = std::numeric_limits<double>::infinity();
  else if (++num_idle_steps_ > kIdleSteps)
    next_step_s_ = clock_->now_s() + kTransferPoll_s;
}

void StepLoop::start(Planned planned) {
  planned.running.started_s = clock_->now_s();
  running_ = planned.running;
  changed_since_start_ = false;
  worker_->start(*planned.plan);
  if (!planned.plan->has_structured_output) return;
  unmasked_ = planned.plan;
  // Otherwise the masks depend on tokens that the step in flight samples, and are provided later.
  if (!planned.plan->pending_structured_output) provide_masks();
}

void StepLoop::provide_masks() {
  worker_->provide(options_.grammars->masks(*std::exchange(unmasked_, nullptr)));
  failures_.end_refused(options_.grammars->collect());
}

void StepLoop::apply(const Running& step, const WorkerResult& result, double ran_s) {
  const double begin_s = clock_->now_s();
  sessions_.begin_result(running_.has_value());
  prompts_.take(result);
  experts_.take(result);
  // Must run before the core gets the result (live_failures.h).
  failures_.end_failed(result);
  const auto applied = core_->apply(to_step_result(result), {.now = begin_s});
  QUIRE_CHECK(applied.has_value(), "the result of the worker matches its plan");
  const StepOutcome& outcome = **applied;
  if (options_.kv_events != nullptr) options_.kv_events->publish(outcome.kv_events);
  if (outcome.stats != nullptr) live_.counts().evictions(outcome.stats->evictions);
  take_drafts(outcome, result);
  count_transfers(result.transfers);
  live_.counts().stats().expert_reads = result.expert_reads;
  take_admissions(outcome, step.planned_s);
  take_updates(outcome, result, ran_s);
  for (const RequestId id : outcome.retired) BeamSearches::is_beam(id) ? searches_.retired(id) : live_.forget(id);
  searches_.advance(ran_s);
  if (sessions_.advance()) note_change();
  wait_for_transfers(step, result.step);
  EngineCounts& counts = live_.counts();
  counts.step({.plan_s = step.plan_time_s, .run_s = ran_s - step.started_s, .apply_s = clock_->now_s() - begin_s});
  if (step.is_empty) return;
  counts.forward_pass(result.timings.forward_s, result.timings.sample_s);
  if (step_time_.has_value()) {
    const double took_s = ran_s - step.started_s;
    if (step.predicted_s > 0.0) counts.predicted_step(step.predicted_s, took_s);
    step_time_->observe(step.work, took_s);
  }
  if (step.num_tokens >= kPromptStep || step.work.num_prompt_tokens >= kLimitedPromptStep)
    compute_rate_.add(step.num_tokens, result.timings.forward_s);
}

Result<bool> StepLoop::reset_prefix_cache(const CacheResetOptions& options) {
  if (options.external && !core_->has_connector()) {
    return fail(ErrorCode::unsupported, "reset_external", "no connector is attached, so nothing is cached outside of this engine",
                "leave it out");
  }
  note_change();
  if (options.preempt_running) searches_.release_waiting_beams(clock_->now_s());
  // Events are published with a step, and an idle engine makes no step without this flag.
  has_unpublished_events_ = options_.kv_events != nullptr;
  return core_->reset_prefix_cache(options.preempt_running, options.external, {.now = clock_->now_s()});
}

// Clears the cache of encoder outputs. Open requests keep the outputs that they use.
bool StepLoop::reset_encoder_cache() {
  if (!options_.supports_images) return false;
  note_change();
  core_->reset_encoder_cache();
  worker_->forget_images();
  return true;
}

StepResult StepLoop::to_step_result(const WorkerResult& result) {
  sampled_.clear();
  pooled_.clear();
  for (const RequestResult& request : result.requests) {
    for (const SampleOutcome& sample : request.samples) sampled_.push_back({request.id, sample.token});
    if (request.num_verified > 0) live_.counts().drafts(request.num_verified, static_cast<std::uint32_t>(request.samples.size() - 1));
    if (request.pooled != nullptr) pooled_.push_back(request.id);
  }
  StepResult step = result.step;
  step.sampled = sampled_;
  step.pooled = pooled_;
  return step;
}

// Passes draft tokens to the core or, with asynchronous scheduling, to the grammars: the worker then keeps the draft tokens, and the next
// plan contains placeholders for them.
void StepLoop::take_drafts(const StepOutcome& outcome, const WorkerResult& result) {
  drafts_.clear();
  for (const RequestResult& request : result.requests) {
    if (std::ranges::find(outcome.failed_loads, request.id) != outcome.failed_loads.end()) continue;
    if (options_.async_scheduling && options_.grammars != nullptr) options_.grammars->expect(request.id, request.drafts);
    if (!options_.async_scheduling && !request.drafts.empty()) drafts_.push_back({request.id, request.drafts});
  }
  if (!drafts_.empty()) core_->set_drafts(drafts_);
}

void StepLoop::take_admissions(const StepOutcome& outcome, double now_s) {
  for (const FirstAdmission& admission : outcome.first_admissions) {
    if (const auto search = searches_.search_of(admission.id)) {
      searches_.admit(*search, admission, now_s);
      continue;
    }
    live_.note_admission(admission.id);
    if (LiveRequest* live = live_.find(admission.id); live != nullptr) {
      // The cached tokens of a forked child may include outputs of its parent.
      live->num_cached_tokens = std::min(admission.num_cached_tokens, live->num_prompt_tokens);
      live->waited_s = now_s - live->arrival_s;
      live_.counts().admitted(live->waited_s);
    }
  }
}

void StepLoop::take_updates(const StepOutcome& outcome, const WorkerResult& result, double now_s) {
  auto request = result.requests.begin();  // updates are in the same order, and omit requests that were not ended by the core
  for (const RequestUpdate& update : outcome.updates) {
    if (!update.tokens.empty()) request = std::ranges::find(request, result.requests.end(), update.id, &RequestResult::id);
    const std::size_t num_samples = request == result.requests.end() ? 0 : request->samples.size();
    QUIRE_CHECK(update.tokens.size() <= num_samples, "the result has a sample for each token of an update");
    if (update.finished && update.reason == FinishReason::error) {  // KvLoadFailurePolicy::fail
      failures_.end_failed_load(update.id);
      continue;
    }
    if (BeamSearches::is_beam(update.id)) {
      searches_.take_offer(update, request->samples[0].logprobs);
      continue;
    }
    LiveRequest& live = live_.at(update.id);
    if (live.session != nullptr && live.session->waits) continue;  // from a step that began before the answer's end was known
    RequestOutput output;
    output.id = update.id;
    output.tokens.assign(update.tokens.begin(), update.tokens.end());
    for (std::size_t i = 0; live.sampling.logprobs.has_value() && i < update.tokens.size(); ++i)
      output.logprobs.push_back(std::move(request->samples[i].logprobs));
    output.num_cached_tokens = live.num_cached_tokens;
    output.waited_s = live.waited_s;
    if (live.pooling) {
      request = std::ranges::find(request, result.requests.end(), update.id, &RequestResult::id);
      QUIRE_CHECK(request != result.requests.end() && request->pooled != nullptr, "a pooling request has its pooled output when it ends");
      output.pooled = std::move(*request->pooled);
    }
    if (!update.tokens.empty()) output.prompt_logprobs = std::exchange(live.prompt_logprobs, nullptr);
    if (!update.tokens.empty()) RoutedExperts::give(*request, update.tokens.size(), live, output);
    if (!update.tokens.empty()) live_.note_tokens(update.id, live, update.tokens.size(), now_s);
    if (live.session != nullptr) live.session->num_tokens += update.tokens.size();
    if (update.finished) {
      output.reason = update.reason;
      output.stop_token = update.reason == FinishReason::stop && !update.tokens.empty() ? update.tokens.back() : -1;
      output.input_ended = update.session_waits;
      output.finished = !update.session_waits;
    }
    if (output.finished && options_.take_transfer_params) output.kv_transfer = options_.take_transfer_params(update.id);
    if (output.input_ended && live.session != nullptr) sessions_.rest(update.id, *live.session);
    if (output.finished) live_.note_end(update.id, live, update.reason);
    live_.send(live, std::move(output));
  }
}

void StepLoop::count_transfers(const TransferTotals& totals) {
  EngineStats& stats = live_.counts().stats();
  stats.num_loads = totals.num_loads;
  stats.num_stores = totals.num_stores;
  stats.bytes_loaded = totals.bytes_loaded;
  stats.bytes_stored = totals.bytes_stored;
  stats.num_failed_transfers = totals.num_failed;
  stats.num_stray_transfers = totals.num_unexpected;
}

const EngineStats& StepLoop::stats() {
  live_.counts().take(core_->counters());
  EngineStats& stats = live_.counts().stats();
  stats.num_waiting += forks_.num_expected() + pictures_.num_waiting();
  if (options_.kv_events != nullptr) {
    stats.kv_event_batches = options_.kv_events->num_published();
    stats.kv_event_batches_without_subscriber = options_.kv_events->num_without_subscriber();
    stats.kv_event_batches_dropped = options_.kv_events->num_dropped();
  }
  if (options_.tracer != nullptr) {
    stats.trace_steps = options_.tracer->num_written();
    stats.trace_steps_dropped = options_.tracer->num_dropped();
  }
  if (options_.explainer != nullptr) stats.explained = options_.explainer->totals();
  if (options_.journal != nullptr) {
    stats.journal_bytes = options_.journal->num_bytes();
    stats.journal_memory_bytes = options_.journal->memory_bytes();
    if (const auto end = options_.journal->end()) stats.journal_ended = journal_end_name(*end);
  }
  return stats;
}

void StepLoop::check_all_free() const {
  core_->check_invariants();
  if (core_->counters().num_awaiting_transfers > 0) return;
  QUIRE_CHECK(core_->all_blocks_free(), "all blocks are free after all requests have ended");
  QUIRE_CHECK(live_.is_empty(), "no request is live after all requests have ended");
}

}  // namespace quire
