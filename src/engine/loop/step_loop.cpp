// One step of the engine, and what comes in between two steps. EngineImpl::run() calls it on the engine thread (tests step it by hand).
// Nothing here may take long beside a step: with asynchronous scheduling it happens while the worker computes the next one. What a request
// cannot do any more (live_failures.h) ends that request only.
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

// How often transfers are looked for when the worker does not say.
constexpr double kTransferPoll_s = 0.001;
// Steps in a row that plan nothing: one may still have made room for the next. After so many, whoever waits does so for what others hold (a
// session without input, a connector that does not know yet), and is looked at as often as transfers are.
constexpr std::uint32_t kIdleSteps = 4;
// Tokens of a step that tells how fast prompts are computed: smaller ones take their time for the weights.
constexpr std::uint32_t kPromptStep = 64;
constexpr double kComputeHorizon_s = 5.0;  // of such steps
// So long after the last look nobody watches any more.
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
      random_(options_.seed) {}

void StepLoop::add(Submission submission) {
  look_for_news();
  if (auto& sound = submission.request.encoder_input; sound != nullptr) {
    // Nothing is shared by its name: prefix caching is off, and outputs of encoders live for one step.
    const MultimodalFeature heard{fmt::format("{}", submission.id.value), {0, options_.num_encoder_positions}};
    submission.encoder_inputs = std::make_shared<const RequestInputs>(RequestInputs{.sound = std::move(sound), .heard = {heard}});
  }
  if (submission.request.pictures.empty() || !pictures_.take(submission)) add_ready({.submission = std::move(submission)});
}

void StepLoop::add_ready(LivePictures::Waiting ready) {
  Submission& submission = ready.submission;
  if (submission.request.beam_search.has_value())
    searches_.add(submission);
  else
    add_request(submission);
  for (const Fork& one : ready.forks) fork(one);
  for (SessionTokens& input : ready.inputs) append(std::move(input));
  for (const Ending& ending : submission.ended) finish(ending.id, ending.reason);
}

void StepLoop::add_request(Submission& submission) {
  const RequestId id = submission.id;
  Live& live = live_.make(id, submission, 0);
  make_prompt_room(live);
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
  options_.tools->put(id, std::move(submission.request.name_tool));
}

void StepLoop::fork(const Fork& fork) {
  look_for_news();
  if (pictures_.fork(fork)) return;
  if (options_.settles_for_forks) settle();
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
  if (!pictures_.append(input) && sessions_.append(std::move(input))) look_for_news();
}

void StepLoop::cancel(const Submission& submission, FinishReason reason) {
  for (std::uint32_t i = 0; i < submission.request.n; ++i) {
    Live live;
    live.sink = submission.sink;
    live.arrival_s = submission.arrival_s;
    live_.end(sibling(submission, i), live, reason);
  }
}

void StepLoop::finish(RequestId id, FinishReason reason) {
  LivePictures::Waiting waiting;
  if (const auto ended = pictures_.end(id, reason, waiting); ended != LivePictures::Ended::unknown) {
    if (ended == LivePictures::Ended::one) return;
    cancel(waiting.submission, reason);
    for (const Fork& fork : waiting.forks) forks_.cancel(fork, reason);
    return;
  }
  Live* live = live_.find_open(id);
  if (live == nullptr) return;
  look_for_news();
  if (live->search.has_value()) return searches_.end(*live->search, reason);
  if (live->elder.has_value()) return forks_.end_expected(id, reason);
  forks_.part(id);
  sessions_.forget(id);
  QUIRE_CHECK(live_.finish(id, *live, reason) != FinishEffect::unknown, "the core knows every live request");
}

std::uint32_t StepLoop::abort_all() {
  std::vector<RequestId> ids = live_.open_ids();
  std::ranges::copy(pictures_.ids(), std::back_inserter(ids));
  std::ranges::for_each(ids, [this](RequestId id) { finish(id, FinishReason::abort); });  // some end with others
  return static_cast<std::uint32_t>(ids.size());
}

void StepLoop::notify_with(const std::function<void()>& notify) {
  worker_->notify_with(notify);
  if (options_.grammars != nullptr) options_.grammars->notify_with(notify);
}

void StepLoop::step() {
  if (options_.grammars != nullptr) failures_.end_refused(options_.grammars->collect());
  for (LivePictures::Waiting& ready : pictures_.take_ready()) {
    look_for_news();
    add_ready(std::move(ready));
  }
  std::optional<Planned> next;
  const bool may_plan = core_->counters().num_unfinished > 0 || awaits_transfers() || is_due(clock_->now_s());
  // Nothing is to be overlapped with a step that computes nothing.
  if (may_plan && !(running_.has_value() && running_->is_empty)) next = plan();
  if (next.has_value() && !options_.async_scheduling) {
    start(*next);
    next.reset();
  }
  const std::optional<Running> finished = std::exchange(running_, std::nullopt);
  // Waits for the worker. Where a next plan is ready it has nothing to do from here to start(): only the clock is read in between.
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
  const StepPlan& plan = core_->schedule({.now = begin_s, .random = random_.next()});
  if (options_.tracer != nullptr) options_.tracer->planned(plan);
  forks_.planned(plan);
  if (options_.counts_common_prefix) live_.counts().common_prefix(plan.scheduled.size(), plan.num_common_prefix_blocks);
  const double end_s = clock_->now_s();
  const bool is_empty = plan.num_scheduled_tokens == 0;
  // What waits lacks blocks, perhaps, that beams hold which wait for it. A connector may store these first, by a transfer of the next plan:
  // then no news will come before that is made.
  const bool has_given = is_empty && !running_.has_value() && searches_.give_back(end_s);
  return {&plan,
          {.planned_s = end_s,
           .started_s = end_s,
           .plan_time_s = end_s - begin_s,
           .num_tokens = plan.num_scheduled_tokens,
           .is_empty = is_empty,
           .is_idle = is_empty && !running_.has_value() && !has_given}};
}

std::optional<double> StepLoop::wait_s() const {
  if (running_.has_value() || !pictures_.is_empty()) return 0.0;
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
  look_for_news();
}

void StepLoop::wait_for_transfers(const Running& step, const StepResult& result) {
  next_step_s_.reset();
  const bool has_news = !result.finished_sending.empty() || !result.finished_receiving.empty() || !result.invalid_blocks.empty() ||
                        !result.completions.empty();
  if (!step.is_idle || has_news || told_since_start_) {
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
  told_since_start_ = false;
  worker_->start(*planned.plan);
  if (!planned.plan->has_structured_output) return;
  unmasked_ = planned.plan;
  // Else what the step in flight samples comes first.
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
  // Before the core hears of the result (live_failures.h).
  failures_.end_failed(result);
  const auto applied = core_->apply(for_core(result), {.now = begin_s});
  QUIRE_CHECK(applied.has_value(), "the worker answers its plan");
  const StepOutcome& outcome = **applied;
  if (options_.kv_events != nullptr) options_.kv_events->publish(outcome.kv_events);
  if (outcome.stats != nullptr) live_.counts().evictions(outcome.stats->evictions);
  take_drafts(outcome, result);
  count_transfers(result.transfers);
  live_.counts().stats().expert_reads = result.expert_reads;
  take_admissions(outcome, step.planned_s);
  take_updates(outcome, result, ran_s);
  for (const RequestId id : outcome.retired) Searches::is_beam(id) ? searches_.retired(id) : live_.forget(id);
  searches_.advance(ran_s);
  if (sessions_.advance()) look_for_news();
  wait_for_transfers(step, result.step);
  EngineCounts& counts = live_.counts();
  counts.step({.plan_s = step.plan_time_s, .run_s = ran_s - step.started_s, .apply_s = clock_->now_s() - begin_s});
  if (step.is_empty) return;
  counts.pass(result.timings.forward_s, result.timings.sample_s);
  if (step.num_tokens >= kPromptStep) compute_rate_.add(step.num_tokens, result.timings.forward_s);
}

Result<bool> StepLoop::reset_prefix_cache(const CacheResetOptions& options) {
  if (options.external && !core_->has_connector()) {
    return fail(ErrorCode::unsupported, "reset_external", "no connector is attached, so nothing is cached outside of this engine",
                "leave it out");
  }
  look_for_news();
  if (options.preempt_running) searches_.give_back(clock_->now_s());
  return core_->reset_prefix_cache(options.preempt_running, options.external, {.now = clock_->now_s()});
}

StepResult StepLoop::for_core(const WorkerResult& result) {
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

// With asynchronous scheduling the worker keeps them, and the next plan has places for them.
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
    if (Live* live = live_.find(admission.id); live != nullptr) {
      // A child has outputs of its parent beyond the prompt.
      live->num_cached_tokens = std::min(admission.num_cached_tokens, live->num_prompt_tokens);
      live->waited_s = now_s - live->arrival_s;
      live_.counts().admitted(live->waited_s);
    }
  }
}

void StepLoop::take_updates(const StepOutcome& outcome, const WorkerResult& result, double now_s) {
  auto request = result.requests.begin();  // updates keep their order and omit who was finished from outside
  for (const RequestUpdate& update : outcome.updates) {
    if (!update.tokens.empty()) request = std::ranges::find(request, result.requests.end(), update.id, &RequestResult::id);
    const std::size_t num_samples = request == result.requests.end() ? 0 : request->samples.size();
    QUIRE_CHECK(update.tokens.size() <= num_samples, "an update without its samples");
    if (update.finished && update.reason == FinishReason::error) {  // KvLoadFailurePolicy::fail
      failures_.end_unloaded(update.id);
      continue;
    }
    if (Searches::is_beam(update.id)) {
      searches_.take_offer(update, request->samples[0].logprobs);
      continue;
    }
    Live& live = live_.at(update.id);
    if (live.session != nullptr && live.session->waits) continue;  // begun before its answer was known to be over
    RequestOutput output;
    output.id = update.id;
    output.tokens.assign(update.tokens.begin(), update.tokens.end());
    for (std::size_t i = 0; live.sampling.logprobs.has_value() && i < update.tokens.size(); ++i)
      output.logprobs.push_back(std::move(request->samples[i].logprobs));
    output.num_cached_tokens = live.num_cached_tokens;
    output.waited_s = live.waited_s;
    if (live.pooling) {
      request = std::ranges::find(request, result.requests.end(), update.id, &RequestResult::id);
      QUIRE_CHECK(request != result.requests.end() && request->pooled != nullptr, "what ends it is its row");
      output.pooled = std::move(*request->pooled);
    }
    if (!update.tokens.empty()) output.prompt_logprobs = std::exchange(live.prompt_logprobs, nullptr);
    if (!update.tokens.empty()) RoutedExperts::give(*request, update.tokens.size(), live, output);
    if (!update.tokens.empty()) live_.note_tokens(live, update.tokens.size(), now_s);
    if (live.session != nullptr) live.session->num_tokens += update.tokens.size();
    if (update.finished) {
      output.reason = update.reason;
      output.stop_token = update.reason == FinishReason::stop && !update.tokens.empty() ? update.tokens.back() : -1;
      output.input_ended = update.session_waits;
      output.finished = !update.session_waits;
    }
    if (output.finished && options_.transfer_answer) output.kv_transfer = options_.transfer_answer(update.id);
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
  stats.num_stray_transfers = totals.num_stray;
}

const EngineStats& StepLoop::stats() {
  live_.counts().take(core_->counters());
  EngineStats& stats = live_.counts().stats();
  stats.num_waiting += forks_.num_expected() + pictures_.num_waiting();
  if (options_.kv_events != nullptr) {
    stats.kv_event_batches = options_.kv_events->num_published();
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
  QUIRE_CHECK(core_->all_blocks_free(), "a block is still held after every request has ended");
  QUIRE_CHECK(live_.is_empty(), "a request was not retired");
}

}  // namespace quire
