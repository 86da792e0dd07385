// Implements the public calls of Core. reported_calls.cpp reports each call to a CallSink and forwards it to this file. step.cpp implements
// the steps, snapshot.cpp the views. The host calls the core on one thread. Each call finds the request, checks the arguments and delegates
// to one part of the scheduler. An invalid call is refused before anything changes. Every call that can free blocks first sets the time
// (begin_call()), because events and pins use it.
#include "quire/core.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "core/schedule/requests/request_check.h"
#include "core/schedule/state.h"
#include "quire/core_call.h"

namespace quire {

Core::State::State(const CoreConfig& given, const CoreSeams& seams, std::unique_ptr<HashFunction> hash)
    : context(given, seams),
      kv(given.kv, kv_cache_options(given, context.rules), context.events.sink()),
      table(std::size_t{given.scheduler.max_num_seqs} * 2 + std::min(given.scheduler.max_num_waiting, kExpectedWaiting)),
      plans(given.limits.max_outstanding_plans),
      requests(context, kv, table, std::move(hash)),
      slots(given.scheduler.max_num_seqs),
      jobs(context),
      queues(context, jobs),
      shared_state{context, kv, requests, queues},
      fences(context, kv),
      ended(fences, table, jobs),
      policy(context, table, jobs, ended),
      open_transfers(given.kv.num_blocks, given.limits.max_open_transfers),
      swap(context, kv, open_transfers, requests, queues),
      pressure(context, kv, queues),
      forks(context, kv, table, requests),
      block_reclaimer(context, requests, queues, policy, forks, swap),
      failed_load_tracker(kv, plans, queues),
      encoder(context),
      tenants(context, queues),
      budget(context, queues, tenants),
      ending(shared_state, slots, ended, policy, forks, encoder, swap),
      preemption(shared_state, slots, policy, encoder, budget, swap, fences, tenants),
      relief(shared_state, pressure, block_reclaimer, preemption),
      load_failure_recovery(shared_state, failed_load_tracker, preemption, forks, swap, budget),
      running_loop(shared_state, block_reclaimer, forks, encoder, budget, preemption),
      look_up(context, kv, requests),
      early_loads(shared_state, budget, look_up, pressure),
      admission_allocator(shared_state, block_reclaimer, pressure, swap),
      admitting(shared_state, slots, forks, budget),
      waiting_loop(shared_state, encoder, budget, look_up, pressure, admission_allocator, admitting, tenants, preemption),
      drafts(context, table),
      sessions(context, requests, queues),
      stats(context, kv, queues, encoder, look_up),
      updates(given.scheduler.max_num_seqs, given.speculation.num_spec_tokens),
      transfers(shared_state, table, ended, open_transfers, swap),
      failed_loads(shared_state, table, forks, ending, failed_load_tracker, updates),
      results(shared_state, slots, encoder, ending, drafts, sessions, updates, stats) {
  QUIRE_CHECK(kv.num_groups() == context.num_groups, "there is a block list for each cache group");
  plans.reserve(given.scheduler.max_num_seqs, given.kv.num_blocks, context.num_groups, given.speculation.num_spec_tokens);
  retired.reserve(given.scheduler.max_num_seqs);
}

Result<std::unique_ptr<Core>> Core::create(const CoreConfig& config, const CoreSeams& seams) {
  auto core = make(config, seams);
  if (core && seams.connector != nullptr) seams.connector->bind(**core);
  if (core && seams.calls != nullptr) seams.calls->bind(**core);
  return core;
}

Result<std::unique_ptr<Core>> Core::make(const CoreConfig& config, const CoreSeams& seams) {
  if (auto valid = config.validate(); !valid) return std::unexpected(valid.error());
  if (config.decisions != DecisionProfile::vllm_0_19 && seams.encoder_connector != nullptr)
    return fail(ErrorCode::unsupported, "decisions", "encoder connectors are not supported with the decisions of vLLM 0.32.0",
                "use the decisions of vLLM 0.19.0");
  std::unique_ptr<HashFunction> hash;
  if (seams.hash == nullptr) {
    auto made = make_hash_function(
        {.algorithm = config.prefix_cache.hash, .seed = config.prefix_cache.hash_seed, .root = config.prefix_cache.root_hash});
    if (!made) return std::unexpected(made.error());
    hash = std::move(*made);
  }
  QUIRE_CHECK((hash != nullptr) == (seams.hash == nullptr), "there is exactly one hash function");
  return std::unique_ptr<Core>(new Core(std::make_unique<State>(config, seams, std::move(hash))));
}

void Core::State::begin_call(const StepInput& input) {
  context.now = input.now;
  context.events.now = input.now;
  kv.residency().begin(static_cast<std::int64_t>(input.now * 1e9), input.random);
  kv.block_watch().at(input.now);
}

Core::Core(std::unique_ptr<State> state) : state_(std::move(state)) {}
Core::~Core() = default;

Result<void> Core::State::add(const NewRequest& request, const StepInput& input) {
  if (table.find_any(request.id) != nullptr)
    return fail(ErrorCode::invalid_argument, "id", fmt::format("{} is already in use", request.id.value),
                "use a different id for each request");
  if (auto valid = check_request(request, context.config, context.seams); !valid) return valid;
  const std::size_t num_waiting = queues.num_waiting();
  if (num_waiting >= context.config.scheduler.max_num_waiting)
    return fail(ErrorCode::overloaded, "max_num_waiting", fmt::format("{} requests are waiting already", num_waiting), "try again later");
  Request& created = requests.create(request);
  context.events.now = input.now;
  QUIRE_CHECK(table.find(request.id) == &created, "a request is found by its id");
  jobs.join(created, input.now);
  queues.enqueue(created, input.now);
  requests.record(created, RequestEventKind::queued, input.now);
  if (context.events.wanted()) context.events.on_event({.what = EventKind::queued, .owner = request.id});
  return {};
}

Result<CacheProbe> Core::probe(const NewRequest& request) const {
  if (auto valid = check_request(request, state_->context.config, state_->context.seams); !valid) return std::unexpected(valid.error());
  NewRequest given = request;
  given.prompt_storage = nullptr;
  Request asked;
  asked.id = request.id;
  state_->requests.fill(asked, given);
  return state_->look_up.probe(asked);
}

Result<void> Core::State::fork(RequestId parent_id, const ForkRequest& child, const StepInput& input) {
  if (context.config.decisions != DecisionProfile::vllm_0_19)
    return fail(ErrorCode::unsupported, "decisions", "forks are not supported with the decisions of vLLM 0.32.0",
                "use the decisions of vLLM 0.19.0");
  Request* parent = table.find_any(parent_id);
  if (parent == nullptr)
    return fail(ErrorCode::not_found, "parent", fmt::format("request {} does not exist", parent_id.value),
                "fork a request that has not ended");
  if (parent->finished())
    return fail(ErrorCode::invalid_argument, "parent", fmt::format("request {} has ended", parent_id.value),
                "fork a request that has not ended");
  if (table.find_any(child.id) != nullptr)
    return fail(ErrorCode::invalid_argument, "id", fmt::format("{} is already in use", child.id.value),
                "use a different id for each request");
  if (auto valid = forks.check(*parent, child, queues.num_waiting()); !valid) return valid;
  begin_call(input);
  if (auto forked = forks.fork_grammar(*parent, child); !forked) return forked;
  Request& created = forks.create(*parent, child);
  QUIRE_CHECK(table.find(child.id) == &created, "a fork is found by its id");
  if (child.next_token.has_value() && drafts.grammar_advances(created)) context.seams.grammar->accept(child.id, {&*child.next_token, 1});
  if (context.events.wanted())
    context.events.on_event(
        {.what = EventKind::forked, .owner = parent_id, .beneficiary = child.id, .amount = Requests::num_blocks(created)});
  jobs.join(created, input.now);
  // A child that does not wait for input goes to the front of the queue: it holds shared blocks while it waits, so it should run soon.
  queues.num_waiting_for_input += created.status == RequestStatus::waiting_for_input ? 1 : 0;
  if (created.status == RequestStatus::waiting_for_input)
    queues.enqueue(created, input.now);
  else
    queues.waiting.prepend(created);
  requests.record(created, RequestEventKind::queued, input.now);
  ++context.totals.num_forks;
  return {};
}

Result<void> Core::State::continue_session(RequestId id, const SessionInput* input, const StepInput& now) {
  begin_call(now);
  Request* session = table.find(id);
  if (session == nullptr)
    return fail(ErrorCode::not_found, "id", fmt::format("request {} does not exist", id.value), "start a session with add()");
  if (!session->resumable)
    return fail(ErrorCode::invalid_argument, "id", fmt::format("request {} is not a session", id.value), "add it with resumable = true");
  if (Result<void> checked = input == nullptr ? Result<void>{} : sessions.check(*session, *input); !checked) return checked;
  if (!sessions.give(*session, input)) {
    ending.finish({&session, 1}, RequestStatus::finished_aborted);
    ended.destroy_unreferenced();
  }
  return {};
}

FinishEffect Core::State::finish(RequestId id, RequestStatus status, const StepInput& input) {
  Request* request = table.find(id);
  if (request == nullptr || request->finished()) return FinishEffect::unknown;
  begin_call(input);
  ending.finish({&request, 1}, status);
  QUIRE_CHECK(request->finished(), "the request is finished");
  // A worker may still be running a plan that contains the request. The host must keep its sampling parameters until that plan is applied.
  if (request->known || request->in_flight.num_plans > 0) return FinishEffect::in_flight;
  ended.destroy(*request);
  return FinishEffect::retired;
}

void Core::State::finish(std::span<const RequestId> ids, RequestStatus status, std::vector<RequestId>& finished, const StepInput& input) {
  begin_call(input);
  ending_now.clear();
  for (RequestId id : ids) {
    Request* request = table.find(id);
    if (request != nullptr && !request->finished() && std::ranges::find(ending_now, request) == ending_now.end()) {
      ending_now.push_back(request);
      finished.push_back(id);
    }
  }
  ending.finish(ending_now, status);
  ended.destroy_unreferenced();
}

void Core::State::forget_blocks(RequestId id) {
  const Request* request = table.find_any(id);
  if (request == nullptr) return;
  for (const std::span<const BlockId> blocks : requests.group_blocks(*request)) kv.evict_blocks(blocks);
  if (context.seams.connector != nullptr) context.seams.connector->forget_blocks(Requests::view(*request));
}

Result<bool> Core::State::reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) {
  begin_call(input);
  if (!preempt_running && swap.has_swapped_out()) return false;
  if (preempt_running) {
    swap.drop_all(EventCause::ended_by_host);
    QUIRE_CHECK(!swap.has_swapped_out(), "no blocks are swapped out");
    while (forks.release_a_share(EventCause::ended_by_host) || block_reclaimer.cancel_last_early_load()) {
    }
    // Preempted requests keep their tokens, so no output is lost; only keys and values are computed again. The requests are preempted from
    // last to first, so that they are admitted again in their original order.
    while (!queues.running.empty()) {
      Request& request = *queues.running.back();
      queues.running.pop_back();
      if (context.events.wanted())
        context.events.on_event(
            {.what = EventKind::preempted, .cause = EventCause::ended_by_host, .owner = request.id, .beneficiary = request.id});
      const bool in_flight = request.num_output_placeholders > 0;
      preemption.put_back(request, true);
      QUIRE_CHECK(request.slot == kNoSlot, "a preempted request has no slot");
      request.num_output_placeholders = 0;
      if (context.rules.stale_outputs)
        queues.preempted_by_reset.push_back(request.id);
      else
        request.in_flight.discards_latest_token = in_flight || !context.rules.discard_only_in_flight;
    }
    budget.forget_last_plan();
  }
  if (context.config.continuum.pins_end_with_job) policy.end_pins();
  bool done = kv.reset_prefix_cache();
  if (preempt_running && !done) {
    return fail(ErrorCode::invalid_argument, "preempt_running", "blocks are still held although no request is running",
                "wait until the transfers in flight have ended");
  }
  if (reset_connector) done = reset_connector_cache() && done;
  return done;
}

bool Core::has_connector() const {
  return state_->context.seams.connector != nullptr;
}

void Core::State::pause(PauseState state) {
  queues.pause = state;
  // Reports the pause here, because no step reports it while all requests are paused.
  if (state == PauseState::paused_all && context.events.wanted())
    context.events.on_event({.what = EventKind::queue_held, .cause = EventCause::paused});
}

bool Core::State::reset_connector_cache() {
  // A host may reset all caches without knowing whether a connector exists.
  if (context.seams.connector == nullptr) return context.rules.reset_succeeds_without_connector;
  const bool done = context.seams.connector->reset();
  if (done) look_up.connector_was_reset();
  return done;
}

PauseState Core::pause_state() const {
  return state_->queues.pause;
}

bool Core::has_work() const {
  const State& s = *state_;
  return !s.queues.running.empty() || s.queues.num_waiting() > 0;
}

bool Core::has_finished_requests() const {
  return !state_->ending.finished().empty();
}

std::optional<double> Core::next_deadline() const {
  const State& s = *state_;
  if (!s.jobs.has_agent()) return std::nullopt;
  if (s.ended.has_news()) return -std::numeric_limits<double>::infinity();
  return s.jobs.next_expiry();
}

std::uint32_t Core::num_outstanding_plans() const {
  return state_->plans.size();
}

}  // namespace quire
