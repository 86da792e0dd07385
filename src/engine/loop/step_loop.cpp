#include "engine/loop/step_loop.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "engine/stats/histogram.h"

namespace quire {
namespace {

// How often transfers are looked for when the worker does not say.
constexpr double kTransferPoll_s = 0.001;
// Tokens of a step that tells how fast prompts are computed: smaller ones take their time for the weights.
constexpr std::uint32_t kPromptStep = 64;
constexpr double kComputeHorizon_s = 5.0;  // of such steps

RequestStatus status_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return RequestStatus::finished_stopped;
    case FinishReason::length:
      return RequestStatus::finished_length;
    case FinishReason::abort:
      return RequestStatus::finished_aborted;
    case FinishReason::error:
      return RequestStatus::finished_error;
    case FinishReason::repetition:
      return RequestStatus::finished_repetition;
  }
  return RequestStatus::finished_aborted;
}

}  // namespace

StepLoop::StepLoop(std::unique_ptr<Core> core, std::unique_ptr<WorkerBase> worker, Options options)
    : core_(std::move(core)),
      searches_(*core_, options.eos_ids),
      worker_(std::move(worker)),
      options_(std::move(options)),
      clock_(options_.seams.clock),
      compute_rate_(kComputeHorizon_s),
      stats_(make_engine_stats()) {}

StepLoop::Live& StepLoop::make_live(RequestId id, const Submission& submission, std::uint32_t number) {
  const auto [place, fresh] = requests_.try_emplace(id);
  QUIRE_CHECK(fresh, "an id is used once");
  Live& live = place->second;
  live.sampling = submission.request.sampling;
  live.sampling.seed =
      live.sampling.seed.has_value() ? *live.sampling.seed + number : Random(options_.seed ^ Random(id.value).next()).next();
  live.sink = submission.sink;
  live.pooling = submission.request.pooling;
  live.num_prompt_tokens = static_cast<std::uint32_t>(submission.request.prompt.size());
  live.arrival_s = submission.arrival_s;
  if (number > 0)
    live.structured_output = requests_.at(submission.id).structured_output;
  else if (submission.request.structured_output.has_value())
    live.structured_output = std::make_shared<const StructuredOutput>(*submission.request.structured_output);
  return live;
}

NewRequest StepLoop::request_of(RequestId id, const Live& live) const {
  NewRequest request;
  request.id = id;
  request.arrival_time = live.arrival_s;
  request.pooling = live.pooling;
  request.structured_output = live.structured_output != nullptr;
  request.max_tokens = live.sampling.max_tokens;
  request.min_tokens = live.sampling.min_tokens;
  if (!live.sampling.ignore_eos) request.eos_ids = options_.eos_ids;
  request.stop_token_ids = live.sampling.stop_token_ids;
  // What is made of rows of the prompt needs them computed; as in vLLM, only the last one's vector does with cached ones.
  request.skip_reading_prefix_cache = live.sampling.prompt_logprobs.has_value() || live.sampling.pooling.kind != PoolingKind::last;
  request.sampling = &live.sampling;
  return request;
}

void StepLoop::add(Submission submission) {
  if (submission.request.beam_search.has_value()) return add_search(std::move(submission));
  const RequestId id = submission.id;
  Live& live = make_live(id, submission, 0);
  make_prompt_room(live);
  expect_siblings(submission);
  NewRequest request = request_of(id, live);
  request.prompt = submission.request.prompt;
  request.prompt_storage = &submission.request.prompt;
  request.resumable = submission.request.session;
  request.block_hashes = {reinterpret_cast<const std::uint8_t*>(submission.block_names.data()),
                          submission.block_names.size() * sizeof(BlockHash)};
  request.priority = submission.request.priority;
  request.cache_salt = submission.request.cache_salt;
  request.tags = &submission.request.tags;
  const Result<void> added = core_->add(request, {.now = clock_->now_s()});
  QUIRE_CHECK(added.has_value(), "what was accepted at the border is a request that the core takes");
  if (live.structured_output != nullptr) options_.grammars->add(id, live.structured_output);
  if (submission.request.session) add_session(live, submission);
  options_.tools->put(id, std::move(submission.request.name_tool));
  look_for_news();
  // Its load may fail before it is planned; nor can it be forked.
  if (core_->has_connector()) part_from_siblings(id, requests_.at(id));
  for (const Ending& ending : submission.ended) finish(ending.id, ending.reason);
}

void StepLoop::cancel(const Submission& submission, FinishReason reason) {
  for (std::uint32_t i = 0; i < submission.request.n; ++i) {
    Live live;
    live.sink = submission.sink;
    live.arrival_s = submission.arrival_s;
    end(sibling(submission, i), live, reason, {});
  }
}

void StepLoop::finish(RequestId id, FinishReason reason) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second.ended) return;
  look_for_news();
  Live& live = found->second;
  if (live.search.has_value()) return end_search(*live.search, reason, {});
  if (live.elder.has_value()) {
    std::erase(requests_.at(*live.elder).siblings, id);
    end(id, live, reason, {});
    requests_.erase(found);
    return;
  }
  part_from_siblings(id, live);
  std::erase(resting_, id);
  const FinishEffect effect = core_->finish(id, status_of(reason), {.now = clock_->now_s()});
  QUIRE_CHECK(effect != FinishEffect::unknown, "the core knows every live request");
  end(id, live, reason, {});
  if (effect == FinishEffect::retired) requests_.erase(id);
}

std::uint32_t StepLoop::abort_all() {
  std::vector<RequestId> ids;
  for (const auto& [id, live] : requests_)
    if (!live.ended) ids.push_back(id);
  std::ranges::sort(ids);
  std::ranges::for_each(ids, [this](RequestId id) { finish(id, FinishReason::abort); });  // some end with others
  return static_cast<std::uint32_t>(ids.size());
}

void StepLoop::notify_with(const std::function<void()>& notify) {
  worker_->notify_with(notify);
  if (options_.grammars != nullptr) options_.grammars->notify_with(notify);
}

void StepLoop::step() {
  if (options_.grammars != nullptr) end_refused(options_.grammars->collect());
  std::optional<Planned> next;
  const bool may_plan = core_->counters().num_unfinished > 0 || awaits_transfers() || is_due(clock_->now_s());
  // Nothing is to be overlapped with a step that computes nothing.
  if (may_plan && !(running_.has_value() && running_->is_empty)) next = plan();
  if (next.has_value() && !options_.async_scheduling) {
    start(*next);
    next.reset();
  }
  const std::optional<Running> finished = std::exchange(running_, std::nullopt);
  const WorkerResult result = finished.has_value() ? worker_->finish() : WorkerResult{};
  const double ran_s = clock_->now_s();
  if (next.has_value()) start(*next);
  if (finished.has_value()) apply(*finished, result, ran_s);
  if (unmasked_ != nullptr) provide_masks();
}

StepLoop::Planned StepLoop::plan() {
  const double begin_s = clock_->now_s();
  const StepPlan& plan = core_->schedule({.now = begin_s});
  if (options_.tracer != nullptr) options_.tracer->planned(plan);
  fork_siblings(plan);
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
  if (running_.has_value()) return 0.0;
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
  if (!step.is_idle || has_news || told_since_start_) return;
  if (awaits_transfers())
    next_step_s_ = worker_->next_transfer_s().value_or(clock_->now_s() + kTransferPoll_s);
  else if (options_.grammars != nullptr && options_.grammars->is_compiling())
    next_step_s_ = std::numeric_limits<double>::infinity();
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
  end_refused(options_.grammars->collect());
}

void StepLoop::apply(const Running& step, const WorkerResult& result, double ran_s) {
  const double begin_s = clock_->now_s();
  ++num_applied_;
  take_prompt_logprobs(result);
  end_failed(result);
  const auto applied = core_->apply(for_core(result), {.now = begin_s});
  QUIRE_CHECK(applied.has_value(), "the worker answers its plan");
  const StepOutcome& outcome = **applied;
  take_drafts(result);
  count_transfers(result.transfers);
  take_admissions(outcome, step.planned_s);
  take_updates(outcome, result, ran_s);
  end_unloaded(outcome.failed_loads);
  for (const RequestId id : outcome.retired) requests_.erase(id);
  advance_searches(ran_s);
  advance_sessions();
  wait_for_transfers(step, result.step);
  const double apply_time_s = clock_->now_s() - begin_s;
  observe(stats_.step_time_s, step.plan_time_s + (ran_s - step.started_s) + apply_time_s);
  observe(stats_.scheduler_time_s, step.plan_time_s + apply_time_s);
  if (step.is_empty) return;
  observe(stats_.forward_time_s, result.timings.forward_s);
  if (step.num_tokens >= kPromptStep) compute_rate_.add(step.num_tokens, result.timings.forward_s);
  observe(stats_.sample_time_s, result.timings.sample_s);
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
    if (request.num_verified > 0) count_drafts(request.num_verified, static_cast<std::uint32_t>(request.samples.size() - 1));
    if (request.pooled != nullptr) pooled_.push_back(request.id);
  }
  StepResult step = result.step;
  step.sampled = sampled_;
  step.pooled = pooled_;
  return step;
}

// With asynchronous scheduling the worker keeps them, and the next plan has places for them.
void StepLoop::take_drafts(const WorkerResult& result) {
  drafts_.clear();
  for (const RequestResult& request : result.requests) {
    if (options_.async_scheduling && options_.grammars != nullptr) options_.grammars->expect(request.id, request.drafts);
    if (!options_.async_scheduling && !request.drafts.empty()) drafts_.push_back({request.id, request.drafts});
  }
  if (!drafts_.empty()) core_->set_drafts(drafts_);
}

void StepLoop::take_admissions(const StepOutcome& outcome, double now_s) {
  for (const FirstAdmission& admission : outcome.first_admissions) {
    if (const auto search = searches_.search_of(admission.id)) {
      admit_search(*search, admission, now_s);
      continue;
    }
    admitted_.push_back(admission.id);
    if (const auto found = requests_.find(admission.id); found != requests_.end()) {
      // A child has outputs of its parent beyond the prompt.
      found->second.num_cached_tokens = std::min(admission.num_cached_tokens, found->second.num_prompt_tokens);
      observe(stats_.queue_time_s, now_s - found->second.arrival_s);
    }
  }
}

void StepLoop::take_updates(const StepOutcome& outcome, const WorkerResult& result, double now_s) {
  auto request = result.requests.begin();  // updates keep their order and omit who was finished from outside
  for (const RequestUpdate& update : outcome.updates) {
    if (!update.tokens.empty()) request = std::ranges::find(request, result.requests.end(), update.id, &RequestResult::id);
    const std::size_t num_samples = request == result.requests.end() ? 0 : request->samples.size();
    QUIRE_CHECK(update.tokens.size() <= num_samples, "an update without its samples");
    if (Searches::is_beam(update.id)) {
      take_offer(update, request->samples[0].logprobs);
      continue;
    }
    Live& live = requests_.at(update.id);
    if (live.session != nullptr && live.session->waits) continue;  // begun before its answer was known to be over
    RequestOutput output;
    output.id = update.id;
    output.tokens.assign(update.tokens.begin(), update.tokens.end());
    for (std::size_t i = 0; live.sampling.logprobs.has_value() && i < update.tokens.size(); ++i)
      output.logprobs.push_back(std::move(request->samples[i].logprobs));
    output.num_cached_tokens = live.num_cached_tokens;
    if (live.pooling) {
      request = std::ranges::find(request, result.requests.end(), update.id, &RequestResult::id);
      QUIRE_CHECK(request != result.requests.end() && request->pooled != nullptr, "what ends it is its row");
      output.pooled = std::move(*request->pooled);
    }
    if (!update.tokens.empty()) output.prompt_logprobs = std::exchange(live.prompt_logprobs, nullptr);
    if (!update.tokens.empty()) token_times(live, update.tokens.size(), now_s);
    if (live.session != nullptr) live.session->num_tokens += update.tokens.size();
    if (update.finished) {
      output.reason = update.reason;
      output.stop_token = update.reason == FinishReason::stop && !update.tokens.empty() ? update.tokens.back() : -1;
      output.input_ended = update.session_waits;
      output.finished = !update.session_waits;
    }
    if (output.input_ended && live.session != nullptr) rest(update.id, *live.session);
    if (output.finished) count_end(update.id, live, update.reason);
    send(live.sink, std::move(output));
  }
}

void StepLoop::end(RequestId id, Live& live, FinishReason reason, std::string error) {
  RequestOutput output;
  output.id = id;
  output.finished = true;
  output.reason = reason;
  output.error = std::move(error);
  output.num_cached_tokens = live.num_cached_tokens;
  send(live.sink, std::move(output));
  count_end(id, live, reason);
}

void StepLoop::deliver() {
  std::ranges::sort(outgoing_, [](const Outgoing& a, const Outgoing& b) {
    if (a.sink != b.sink) return std::less<>{}(a.sink, b.sink);
    return a.output.id != b.output.id ? a.output.id < b.output.id : a.place < b.place;
  });
  for (std::size_t i = 0; i < outgoing_.size();) {
    OutputSink* sink = outgoing_[i].sink;
    std::vector<RequestOutput> outputs;
    for (; i < outgoing_.size() && outgoing_[i].sink == sink; ++i) outputs.push_back(std::move(outgoing_[i].output));
    sink->deliver(std::move(outputs));
  }
  outgoing_.clear();
}

void StepLoop::clear_news() {
  admitted_.clear();
  ended_.clear();
}

void StepLoop::check_all_free() const {
  core_->check_invariants();
  if (core_->counters().num_awaiting_transfers > 0) return;
  QUIRE_CHECK(core_->all_blocks_free(), "a block is still held after every request has ended");
  QUIRE_CHECK(requests_.empty(), "a request was not retired");
}

}  // namespace quire
