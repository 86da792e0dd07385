// Implements the loop of vLLM's EngineCore (v0.19.0: step_with_batch_queue, or step without asynchronous scheduling). `in_flight_` contains
// the plans that the worker runs or will run. A turn happens when the oldest result is ready: it applies that result, adds new requests,
// and makes plans until the limit of plans in flight is reached. With asynchronous scheduling, a request that arrives during a step is
// therefore planned one step later than without.
#include "lab/simulate/instance.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "lab/simulate/step_sizes.h"

namespace quire {
namespace {

// Extra capacity of the prompt vector for sampled tokens, so that the core need not reallocate it when the request first runs.
constexpr std::uint32_t kRoomTokens = 16;
// At most 1 / kStoringDivisor of the cache's blocks may be in flight to the tier, as in an engine.
constexpr std::uint32_t kStoringDivisor = 4;
constexpr double kShortest_s = 1e-12;
constexpr std::uint32_t kMostTurns = 1'000'000;  // turns at the same virtual time

// Creates the connector with the options that an engine uses for tiers with the policy `measured`.
Result<std::unique_ptr<OffloadConnector>> make_connector(const SimulationOptions& options, const CoreConfig& config) {
  return OffloadConnector::create({.cpu_bytes_to_use = options.tier.bytes,
                                   .eviction_policy = options.tier.eviction_policy,
                                   .hit_after_store_completes = true,
                                   .max_storing_blocks = std::max(1U, config.kv.num_blocks / kStoringDivisor),
                                   .stores_leading_blocks = true},
                                  config, options.kv_bytes_per_token * config.block_size);
}

// Creates the sampler of the hit-rate curve. A tier also holds copies of the blocks in the cache, so cache and tier together find as much
// as the larger of the two.
std::unique_ptr<CurveSampler> make_sampler(const SimulationOptions& options, const CoreConfig& config) {
  std::vector<std::uint64_t> more;
  if (options.tier.bytes > 0)
    more.push_back(
        std::max<std::uint64_t>(config.kv.num_blocks - 1, options.tier.bytes / (options.kv_bytes_per_token * config.block_size)));
  CurveOptions curve = CurveOptions::of(config, options.curve_max_tracked, more);
  curve.halve_after_s = 0.0;
  return std::make_unique<CurveSampler>(curve);
}

}  // namespace

Result<std::unique_ptr<Instance>> Instance::create(std::uint32_t index, const CoreConfig& config, SimulationRun& run) {
  std::unique_ptr<Instance> made(new Instance(index, config, run));
  const SimulationOptions& options = run.options;
  const double compute_tokens_per_s = 1.0 / std::max(options.worker.prefill_token_s, kShortest_s);
  if (options.tier.bytes > 0) {
    auto connector = make_connector(options, config);
    if (!connector) return std::unexpected(connector.error());
    made->connector_ = std::move(*connector);
    made->connector_->set_costs({.load_bytes_per_s = options.tier.load_bytes_per_s, .compute_tokens_per_s = compute_tokens_per_s});
  }
  if (options.curve_max_tracked > 0) made->curve_ = make_sampler(options, config);
  auto core = Core::create(config, {.connector = made->connector_.get(), .events = made->curve_.get(), .hash = &made->hash_});
  if (!core) return std::unexpected(core.error());
  made->core_ = std::move(*core);
  if (made->curve_ != nullptr) made->curve_->follow(*made->core_);
  made->core_->set_swap_costs({.out_bytes_per_s = options.tier.store_bytes_per_s,
                               .in_bytes_per_s = options.tier.load_bytes_per_s,
                               .prefill_tokens_per_s = compute_tokens_per_s});
  return made;
}

Instance::Instance(std::uint32_t index, const CoreConfig& config, SimulationRun& run)
    : index_(index),
      max_in_flight_(config.limits.max_outstanding_plans),
      max_num_seqs_(config.scheduler.max_num_seqs),
      max_step_tokens_(config.scheduler.max_num_batched_tokens),
      num_blocks_(config.kv.num_blocks - 1.0),
      run_(run),
      links_(run.options.tier, run.options.kv_bytes_per_token * config.block_size) {}

void Instance::give(std::uint32_t request) {
  inbox_.push_back(request);
  ++num_open_;
  run_.times[request].instance = index_;
}

double Instance::next_turn_s() const {
  if (!in_flight_.empty()) return std::max(now_s_, in_flight_.front().ready_s);
  if (!inbox_.empty()) return std::max(now_s_, run_.times[inbox_.front()].arrival_s);
  if (!is_idle_) return kNever;
  // An expiring pin or the end of a transfer may free blocks.
  const std::optional<double> deadline = core_->next_deadline();
  return std::min(deadline.has_value() && *deadline > now_s_ ? *deadline : kNever, links_.next_end_s());
}

void Instance::turn() {
  const double before_s = std::exchange(now_s_, next_turn_s());
  QUIRE_CHECK(now_s_ < kNever, "the instance has a next event");
  num_turns_now_ = now_s_ > before_s ? 0 : num_turns_now_ + 1;
  QUIRE_CHECK(num_turns_now_ < kMostTurns, "virtual time advances");
  if (!in_flight_.empty()) apply_oldest();
  // Also applies the empty plans after the oldest plan, which end immediately.
  while (!in_flight_.empty() && in_flight_.front().plan->num_scheduled_tokens == 0) apply_oldest();
  take_inbox();
  is_idle_ = false;
  while (in_flight_.size() < max_in_flight_ && (core_->has_work() || core_->has_finished_requests())) {
    const std::uint32_t num_tokens = launch();
    if (num_tokens > 0 && in_flight_.front().ready_s > now_s_) continue;
    // An empty plan ends immediately. If nothing else is in flight, the next plan would also be empty, so the loop sleeps. It continues
    // only if the result of this plan reported the end of a transfer.
    if (num_tokens == 0 && in_flight_.size() == 1) {
      if (apply_oldest()) continue;
      is_idle_ = true;
    }
    return;
  }
}

void Instance::take_inbox() {
  while (!inbox_.empty() && run_.times[inbox_.front()].arrival_s <= now_s_) {
    add(inbox_.front());
    inbox_.pop_front();
  }
}

void Instance::add(std::uint32_t request) {
  const WorkloadRequest& given = run_.workload.requests[request];
  // Tokens that the workload does not give get the number of the request as their id, so that requests share only the prefixes that the
  // workload states.
  std::vector<TokenId> prompt;
  prompt.reserve(std::size_t{given.prompt_tokens} + given.output_tokens + kRoomTokens);
  if (given.has_tokens) {
    const auto begin = run_.workload.tokens.begin() + static_cast<std::ptrdiff_t>(given.first_token);
    prompt.assign(begin, begin + given.prompt_tokens);
  } else {
    prompt.resize(given.prompt_tokens, static_cast<TokenId>(request));
  }
  run_.hasher.of(given, names_);
  RequestTags tags;
  NewRequest added;
  added.id = RequestId{request};
  added.prompt = prompt;
  added.prompt_storage = &prompt;
  added.arrival_time = run_.times[request].arrival_s;
  added.max_tokens = given.output_tokens;
  added.block_hashes = {reinterpret_cast<const std::uint8_t*>(names_.data()), names_.size() * sizeof(BlockHash)};
  if (run_.options.scheduler.policy == SchedulingPolicy::continuum) {
    tags.job = std::to_string(given.session);
    tags.is_last_step = given.ends_session;
    added.tags = &tags;
  }
  const Result<void> taken = core_->add(added, {.now = now_s_});
  if (taken) return;
  if (run_.first_refusal.empty()) run_.first_refusal = taken.error().to_string();
  run_.times[request].refused = true;
  run_.ended.push_back(request);
  --num_open_;
}

std::uint32_t Instance::launch() {
  const StepPlan& plan = core_->schedule({.now = now_s_});
  if (on_plan) on_plan(plan);
  double ready_s = now_s_;
  const double begins_s = begin_transfers(plan);
  if (plan.num_scheduled_tokens > 0) {
    const WorkerModel& worker = run_.options.worker;
    const StepSizes sizes = sizes_of(plan);
    const double seconds = worker.seconds(sizes);
    ready_s = std::max({now_s_ + worker.host_s, worker_free_s_, begins_s}) + seconds;
    worker_free_s_ = ready_s;
    if (run_.steps != nullptr) run_.steps->push_back({ready_s, sizes});
    note_plan(plan);
    count_step(plan, seconds);
  }
  in_flight_.push_back({&plan, ready_s});
  return plan.num_scheduled_tokens;
}

// Begins the plan's transfers. A store reads what earlier steps have written, so it begins after these steps. A load may begin immediately.
double Instance::begin_transfers(const StepPlan& plan) {
  const double fence_s = plan.fences.empty() ? 0.0 : links_.end_of(plan.fences);
  for (const Transfer& transfer : plan.transfers)
    links_.begin(transfer, transfer.direction == TransferDirection::load ? now_s_ : std::max(now_s_, worker_free_s_));
  return fence_s;
}

void Instance::note_plan(const StepPlan& plan) {
  for (const AdmittedRequest& admitted : plan.admitted) {
    RequestTimes& times = run_.times[admitted.id.value];
    if (times.scheduled_s < 0.0) times.scheduled_s = now_s_;
  }
}

void Instance::count_step(const StepPlan& plan, double seconds) {
  const CoreCounters counters = core_->counters();
  const double usage = 1.0 - counters.num_free_blocks / num_blocks_;
  totals_.busy_s += seconds;
  totals_.kv_usage_s += usage * seconds;
  totals_.kv_usage_peak = std::max(totals_.kv_usage_peak, usage);
  if (counters.num_waiting == 0) return;
  if (counters.num_running >= max_num_seqs_)
    totals_.held_by_batch_s += seconds;
  else if (plan.num_scheduled_tokens >= max_step_tokens_)
    totals_.held_by_budget_s += seconds;
  else
    totals_.held_by_blocks_s += seconds;
}

bool Instance::apply_oldest() {
  const StepPlan& plan = *in_flight_.front().plan;
  sampled_.clear();
  for (const ScheduledRequest& one : plan.scheduled)
    if (one.samples) sampled_.push_back({one.id, static_cast<TokenId>(one.id.value)});
  in_flight_.pop_front();
  const std::span<const TransferCompletion> over = links_.take_completed(now_s_);
  const auto outcome = core_->apply({.step = plan.step, .sampled = sampled_, .completions = over}, {.now = now_s_});
  QUIRE_CHECK(outcome.has_value(), "the core accepts the simulated tokens");
  note_updates(**outcome);
  return !over.empty();
}

void Instance::note_updates(const StepOutcome& outcome) {
  for (const FirstAdmission& one : outcome.first_admissions) run_.times[one.id.value].cached_tokens = one.num_cached_tokens;
  for (const RequestUpdate& update : outcome.updates) {
    RequestTimes& times = run_.times[update.id.value];
    if (times.first_token_s < 0.0) times.first_token_s = now_s_;
    if (!update.finished) continue;
    times.last_token_s = now_s_;
    run_.ended.push_back(static_cast<std::uint32_t>(update.id.value));
    --num_open_;
  }
}

}  // namespace quire
