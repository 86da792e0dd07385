// The facade: the frame of a step, and what is asked from outside. The other parts of a step are in the files that state.h names.
#include "quire/core.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/schedule/request_check.h"
#include "core/schedule/state.h"

namespace quire {
namespace {

// cache_block_size is written out.
CoreConfig resolved(CoreConfig config) {
  config.cache_block_size = config.cache_block_size == 0 ? config.block_size : config.cache_block_size;
  return config;
}

}  // namespace

Core::State::State(const CoreConfig& given, const CoreSeams& given_seams, std::unique_ptr<HashFunction> hash_function)
    : config(resolved(given)),
      seams(given_seams),
      num_groups(static_cast<std::uint32_t>(given.kv.groups.size())),
      zero_new_blocks(given.kv.has_mamba_layers()),
      hash(std::move(hash_function)),
      events(given_seams.events),
      kv(given.kv, kv_cache_options(given), events.sink()),
      encoder_cache(given.encoder.is_encoder_decoder ? EncoderCacheMode::encoder_decoder : EncoderCacheMode::shared,
                    given.encoder.encoder_cache_size),
      table(std::size_t{given.scheduler.max_num_seqs} * 2 + std::min(given.scheduler.max_num_waiting, kExpectedWaiting)),
      plans(given.limits.max_outstanding_plans),
      waiting(given.scheduler.policy, QueueName::waiting),
      skipped_waiting(given.scheduler.policy, QueueName::skipped),
      step_skipped(given.scheduler.policy, QueueName::step_skipped),
      open_transfers(given.kv.num_blocks, given.limits.max_open_transfers) {
  if (given.scheduler.policy == SchedulingPolicy::continuum) agent.emplace(given.continuum);
  const std::uint32_t max_num_seqs = given.scheduler.max_num_seqs;
  plans.reserve(max_num_seqs, given.kv.num_blocks, num_groups, given.speculation.num_spec_tokens);
  running.reserve(max_num_seqs);
  free_slots.reserve(max_num_seqs);
  for (std::uint32_t i = max_num_seqs; i > 0; --i) free_slots.push_back(Slot{i - 1});
  released.reserve(max_num_seqs);
  finished.reserve(max_num_seqs);
  out.updates.reserve(max_num_seqs);
  out.updated_tokens.reserve(std::size_t{max_num_seqs} * (1 + given.speculation.num_spec_tokens));
  out.retired.reserve(max_num_seqs);
}

Result<std::unique_ptr<Core>> Core::create(const CoreConfig& config, const CoreSeams& seams) {
  if (auto valid = config.validate(); !valid) return std::unexpected(valid.error());
  std::unique_ptr<HashFunction> hash;
  if (seams.hash == nullptr) {
    auto made = make_hash_function(
        {.algorithm = config.prefix_cache.hash, .seed = config.prefix_cache.hash_seed, .root = config.prefix_cache.root_hash});
    if (!made) return std::unexpected(made.error());
    hash = std::move(*made);
  }
  return std::unique_ptr<Core>(new Core(std::make_unique<State>(config, seams, std::move(hash))));
}

void Core::State::begin_call(const StepInput& input) {
  now = input.now;
  kv.residency().begin(static_cast<std::int64_t>(input.now * 1e9), input.random);
}

Core::Core(std::unique_ptr<State> state) : state_(std::move(state)) {}
Core::~Core() = default;

const StepPlan& Core::schedule(const StepInput& input) {
  State& s = *state_;
  PlanArena& arena = s.plans.begin();
  s.begin_call(input);
  s.events.step = arena.plan().step;
  if (s.agent) s.before_step();
  if (s.events.wanted()) s.events.on_event({.what = EventKind::step_begins});
  s.token_budget = s.pause == PauseState::paused_all ? 0 : static_cast<std::int32_t>(s.config.scheduler.max_num_batched_tokens);
  s.encoder_budget = s.config.encoder.max_encoder_tokens;
  s.kv.new_step_starts();
  s.schedule_running(arena);
  s.schedule_waiting(arena);
  s.complete(arena);
  StepPlan& plan = arena.seal();
  if (s.seams.connector != nullptr) {
    s.seams.connector->planned(plan);
    s.plan_transfers(arena);
  }
  s.advance(arena, plan);
  return plan;
}

Result<bool> Core::reset_prefix_cache(bool preempt_running, bool reset_connector, const StepInput& input) {
  State& s = *state_;
  s.begin_call(input);
  if (preempt_running) {
    while (s.give_up_share(EventCause::ended_by_host)) {
    }
    // From the last on, so that they come back in order.
    while (!s.running.empty()) {
      Request& request = *s.running.back();
      s.running.pop_back();
      const bool in_flight = request.num_output_placeholders > 0;
      s.preempt(request);
      request.num_output_placeholders = 0;
      request.discard_latest_async_tokens = in_flight || !s.config.cures.discard_only_in_flight;
    }
    s.forget_last_plan = true;
  }
  if (s.config.continuum.pins_end_with_job) s.end_pins();
  bool done = s.kv.reset_prefix_cache();
  if (preempt_running && !done) {
    return fail(ErrorCode::invalid_argument, "preempt_running", "blocks are still held although no request runs",
                "wait for the transfers under way");
  }
  if (reset_connector) done = reset_connector_cache() && done;
  return done;
}

bool Core::has_connector() const {
  return state_->seams.connector != nullptr;
}

bool Core::reset_connector_cache() {
  State& s = *state_;
  const bool done = s.seams.connector != nullptr && s.seams.connector->reset();
  s.connector_stats.reset |= done && s.config.report.log_stats;
  return done;
}

void Core::reset_encoder_cache() {
  state_->encoder_cache.reset();
}

PauseState Core::pause_state() const {
  return state_->pause;
}

void Core::set_pause_state(PauseState state) {
  state_->pause = state;
}

bool Core::has_work() const {
  const State& s = *state_;
  return !s.running.empty() || !s.waiting.empty() || !s.skipped_waiting.empty();
}

bool Core::has_finished_requests() const {
  return !state_->finished.empty();
}

std::uint32_t Core::num_outstanding_plans() const {
  return state_->plans.size();
}

CoreCounters Core::counters() const {
  const State& s = *state_;
  CoreCounters counters = s.totals;
  counters.num_running = static_cast<std::uint32_t>(s.running.size());
  counters.num_waiting = static_cast<std::uint32_t>(s.waiting.size() + s.skipped_waiting.size());
  QUIRE_CHECK(s.num_waiting_for_input <= s.skipped_waiting.size(), "sessions between two inputs are passed over");
  switch (s.pause) {
    case PauseState::unpaused:
      counters.num_unfinished = counters.num_running + counters.num_waiting - s.num_waiting_for_input;
      break;
    case PauseState::paused_new:
      counters.num_unfinished = counters.num_running;
      break;
    case PauseState::paused_all:
      counters.num_unfinished = 0;
      break;
  }
  counters.num_awaiting_transfers = s.num_loading + s.hold_ledger.count(Holder::transfer);
  counters.num_open_transfers = static_cast<std::uint32_t>(s.open_transfers.num_open());
  counters.num_pinned = s.hold_ledger.count(Holder::pin);
  counters.num_blocks = s.config.kv.num_blocks - 1;
  counters.num_free_blocks = s.kv.pool().num_free_blocks();
  counters.num_cached_blocks = s.kv.pool().index().size();
  counters.num_evicted_blocks = s.kv.pool().num_evicted_blocks();
  return counters;
}

bool Core::all_blocks_free() const {
  return state_->kv.pool().num_free_blocks() == state_->config.kv.num_blocks - 1;
}

std::optional<RequestView> Core::view(RequestId id) const {
  const Request* request = state_->table.find(id);
  return request != nullptr ? std::optional(state_->view(*request)) : std::nullopt;
}

std::span<const BlockId> Core::blocks(RequestId id, std::uint32_t group) const {
  const Request* request = state_->table.find(id);
  return request != nullptr ? request->blocks.blocks(group) : std::span<const BlockId>();
}

}  // namespace quire
