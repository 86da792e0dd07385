// Makes the plan of a step and takes its result. The tokens of a plan count as computed as soon as the plan is made, so that the next plan
// can be made before this one has run.
// The host calls schedule() and apply() on its thread, in any order that CoreLimits::max_outstanding_plans allows. The order of the
// operations is vLLM's and affects decisions: running requests before waiting ones, stops before transfers.
#include <utility>

#include "base/check.h"
#include "core/schedule/state.h"
#include "quire/core.h"

namespace quire {

const StepPlan& Core::State::schedule(const StepInput& input) {
  PlanArena& arena = plans.begin();
  begin_call(input);
  begin_step(arena);
  relief.relieve(arena);
  // Running requests come first, because they already hold blocks. Waiting requests get the tokens that are left.
  running_loop.schedule(arena);
  if (waiting_loop.schedule(arena)) early_loads.begin(arena.plan().step);
  complete(arena);
  // The plan's views are valid from here on. Only transfers are still added, because the connector must see the plan before it plans
  // transfers.
  StepPlan& plan = arena.seal();
  if (Connector* connector = context.seams.connector; connector != nullptr) connector->planned(plan);
  if (transfers.are_possible()) transfers.plan(arena);
  advance(arena, plan);
  return plan;
}

void Core::State::begin_step(const PlanArena& arena) {
  context.events.step = arena.plan().step;
  policy.before_step();
  if (context.events.wanted()) context.events.on_event({.what = EventKind::step_begins});
  tenants.begin_step();
  budget.begin_step(queues.pause, queues.running.size() + queues.num_waiting());
  encoder.begin_step();
  kv.new_step_starts(context.now);
}

void Core::State::complete(PlanArena& arena) {
  QUIRE_CHECK(queues.running.size() <= context.config.scheduler.max_num_seqs, "at most max_num_seqs requests run");
  tenants.end_step();
  for (const Slot slot : slots.released()) arena.release(slot);
  slots.forget_released();
  for (const RequestId id : ending.finished()) arena.finish(id);
  for (const RequestId id : queues.preempted_by_reset) arena.preempt(id);
  queues.preempted_by_reset.clear();
  const std::span<std::uint32_t> common = arena.common_prefix_blocks(context.num_groups);
  if (context.config.report.count_common_prefix && !queues.running.empty()) kv.common_prefix_blocks(queues.running.front()->blocks, common);
  if (context.config.kv.has_mamba_layers()) {
    kv.take_new_block_ids(arena.blocks_to_zero());
    arena.skip_zeroing_of_copies();
  }
  arena.free_encoder_outputs(encoder.cache().take_freed());
}

// Implements _update_after_schedule of both vLLM schedulers.
void Core::State::advance(PlanArena& arena, StepPlan& plan) {
  const std::span<Request* const> planned = arena.requests();
  QUIRE_CHECK(plan.num_scheduled_tokens <= context.config.scheduler.max_num_batched_tokens,
              "a step has at most max_num_batched_tokens tokens");
  QUIRE_CHECK(planned.size() == plan.scheduled.size(), "a plan has a request for each entry");
  fences.begin(plan.num_scheduled_tokens);
  for (std::size_t i = 0; i < planned.size(); ++i) {
    Request& request = *planned[i];
    const ScheduledRequest& s = plan.scheduled[i];
    QUIRE_CHECK(request.status == RequestStatus::running && s.id == request.id, "a planned request is running");
    // Keeps the request in memory until this plan's result is taken, even if the request ends before.
    ++request.in_flight.num_plans;
    fences.note(request);
    request.num_computed_tokens += static_cast<std::int32_t>(s.num_tokens);
    request.in_flight.num_tokens += static_cast<std::int32_t>(s.num_tokens);
    request.is_prefill_chunk = request.num_computed_tokens < request.num_tokens() + request.num_output_placeholders;
    if (request.has_encoder_inputs() && !context.rules.encoder_outputs_freed_on_results) encoder.release_computed(request);
    // A prefill chunk samples no token, so no output is awaited.
    if (request.is_prefill_chunk) continue;
    request.is_prefilling = false;
    plan.has_structured_output |= request.structured_output;
    if (context.config.scheduler.async_scheduling) {
      // The grammar mask depends on tokens that the previous step has not returned yet.
      plan.pending_structured_output |= request.structured_output && request.num_output_placeholders > 0;
      // Counts the tokens that this plan returns if all draft tokens are accepted. The result subtracts rejected ones.
      request.num_output_placeholders += 1 + static_cast<std::int32_t>(s.drafts.size());
      request.draft_tokens.assign(context.config.speculation.num_spec_tokens, kDraftPlaceholder);
    }
  }
  context.totals.num_scheduled_tokens += plan.num_scheduled_tokens;
  context.totals.num_copied_blocks += plan.copies.size();
  ++context.totals.num_steps;
  // The finished requests are in this plan, so they are not reported again.
  ending.forget_finished();
  budget.end_step();
}

Result<const StepOutcome*> Core::State::apply(const StepResult& result, const StepInput& input) {
  // Checks everything before anything changes: a refused result leaves the core unchanged.
  if (Result<void> checked = Results::check(plans, result); !checked) return std::unexpected(std::move(checked.error()));
  if (Result<void> checked = transfers.check(result); !checked) return std::unexpected(std::move(checked.error()));
  begin_call(input);
  take(transfers.take_completions(result, plans.at(0).plan().finished));
  return &outcome;
}

std::vector<RequestId> Core::requests_invalidated_by(const StepResult& result) const {
  State& s = *state_;
  std::vector<RequestId> ids;
  const std::vector<BlockId> not_loaded = s.transfers.find_blocks_not_loaded(result);
  if (not_loaded.empty() || !s.context.rules.unloaded_begin_anew) return ids;
  s.failed_load_tracker.find(nullptr, not_loaded);
  for (const FailedLoadTracker::InvalidatedRequest& invalidated : s.failed_load_tracker.invalidated())
    ids.push_back(invalidated.request->id);
  return ids;
}

void Core::State::take(const StepResult& result) {
  // Removes the plan from the ring first, because it must not count as outstanding while its result is taken. Its views stay valid until
  // the next pop().
  const PlanArena& arena = plans.pop();
  for (Request* request : arena.requests()) {
    QUIRE_CHECK(request->in_flight.num_plans > 0, "a plan is applied once");
    --request->in_flight.num_plans;
  }
  QUIRE_CHECK(arena.plan().step == result.step, "the oldest plan is applied first");
  fences.end(arena.plan().num_scheduled_tokens);
  updates.begin(result.sampled.size());
  stats.begin();
  if (result.has_connector_output && (!result.invalid_blocks.empty() || !result.failed_receiving.empty() || transfers.lost_loads()))
    // Runs before the tokens are taken: requests that ran on blocks whose load failed get no tokens.
    failed_loads.find(arena, result);
  results.take(arena, result);
  end_failed_grammars();
  const bool has_invalidated = failed_loads.handle();
  end_mismatched();
  if (has_invalidated) load_failure_recovery.recover(context.config.kv_load_failure == KvLoadFailurePolicy::recompute);
  if (result.has_connector_output) transfers.take(result);
  report(arena);
}

// vLLM 0.32.0's grammar_compile_error_reqs: ends requests with a failed grammar with the next result, whatever plan it belongs to.
void Core::State::end_failed_grammars() {
  if (!context.rules.grammar_rejection_ends_request) return;
  ending_now.clear();
  const auto look = [this](Request& request) {
    if (request.grammar_failed) ending_now.push_back(&request);
  };
  // A request that waits for a grammar is deferred, so without deferred requests nothing is searched.
  if (queues.num_deferred > 0) {
    queues.skipped_waiting.for_each(look);
    queues.waiting.for_each(look);
  }
  end_with_error();
}

// vLLM 0.32.0's encoder_cache_mismatch_reqs: ends requests with a mismatched input with the next result, whatever plan it belongs to.
void Core::State::end_mismatched() {
  ending_now.clear();
  for (const RequestId id : encoder.mismatched())
    if (Request* request = table.find(id); request != nullptr && !request->finished()) ending_now.push_back(request);
  encoder.forget_mismatched();
  end_with_error();
}

void Core::State::end_with_error() {
  if (ending_now.empty()) return;
  ending.finish(ending_now, RequestStatus::finished_error);
  for (Request* request : ending_now) {
    RequestUpdate& update = updates.report(*request, UINT32_MAX, {});
    update.finished = true;
    update.reason = FinishReason::error;
    update.stop_token.reset();
  }
}

void Core::State::report(const PlanArena& arena) {
  kv_events.clear();
  kv.take_events(kv_events);
  const std::span<const FinishedSet> finished_sets = stats.collect_finished_sets(ending.by_client());
  ended.destroy_unreferenced();
  ended.take_retired(retired);
  outcome = {.step = arena.plan().step,
             .updates = updates.all(),
             .first_admissions = arena.first_admissions(),
             .preempted = arena.preempted(),
             .failed_loads = failed_loads.ids(),
             .retired = retired,
             .kv_events = kv_events,
             .finished_sets = finished_sets,
             .stats = stats.collect()};
}

}  // namespace quire
