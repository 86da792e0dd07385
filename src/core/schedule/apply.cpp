// Taking a step's result: tokens are appended, drafts that were rejected are taken back, and requests stop.
//
//   running, preempted -> finished     by check_stop, or a pooled output
//   running, preempted -> waiting_*    a streaming session at the end of an input (sessions.cpp)
//   running, waiting_* -> finished     blocks could not be loaded and the policy is to fail (transfers.cpp)
//
// A token that comes late, for a request preempted meanwhile, is appended all the same; one for a finished request is dropped. The order
// is that of vLLM V1's update_from_output (v0.19.0): failed loads are found, results are taken in the plan's order, those that stopped
// are removed from the queues, failed ones finish, transfers are taken.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

Result<const StepOutcome*> Core::apply(const StepResult& result, const StepInput& input) {
  State& s = *state_;
  if (Result<void> checked = s.check_result(result); !checked) return std::unexpected(std::move(checked.error()));
  s.begin_call(input);
  s.take(s.take_completions(result));
  return &s.out.outcome;
}

void Core::State::take(const StepResult& result) {
  const PlanArena& arena = plans.pop();
  out.updates.clear();
  out.updated_tokens.clear();
  out.num_updated_events = 0;
  out.counts_drafts = false;
  if (result.has_connector_output && !result.invalid_blocks.empty()) find_failed_loads(arena, result.invalid_blocks);
  take_results(arena, result);
  remove_stopped();
  fail_loads();
  if (result.has_connector_output) take_transfers(result);
  report_outcome(arena);
}

void Core::State::take_results(const PlanArena& arena, const StepResult& result) {
  for (Request* request : arena.requests()) {
    QUIRE_CHECK(request->num_in_flight > 0, "a plan is applied once");
    --request->num_in_flight;
  }
  out.updated_tokens.reserve(result.sampled.size());
  std::size_t num_taken = 0;
  std::size_t num_pooled = 0;
  for (std::uint32_t i = 0; i < arena.requests().size(); ++i) {
    const Request& request = *arena.requests()[i];
    const std::size_t begin = out.updated_tokens.size();
    for (; num_taken < result.sampled.size() && result.sampled[num_taken].id == request.id; ++num_taken)
      out.updated_tokens.push_back(result.sampled[num_taken].token);
    const bool pooled = num_pooled < result.pooled.size() && result.pooled[num_pooled] == request.id;
    num_pooled += pooled ? 1 : 0;
    if (request.known && !request.finished() && !request.load_failed)
      take_result(arena, i, std::span(out.updated_tokens).subspan(begin), pooled);
  }
  QUIRE_CHECK(num_taken == result.sampled.size() && num_pooled == result.pooled.size(), "a checked result is taken whole");
}

void Core::State::take_result(const PlanArena& arena, std::uint32_t index, std::span<const TokenId> tokens, bool pooled) {
  Request& request = *arena.requests()[index];
  std::optional<Stop> stop;
  if (!tokens.empty()) {
    take_back_rejected(arena, index, static_cast<std::uint32_t>(tokens.size()));
    stop = take_tokens(request, tokens);
  } else if (pooled) {
    stop = Stop{};
  }
  bool goes_on = false;
  if (stop) goes_on = !handle_stopped(request, *stop);
  if (!tokens.empty() && grammar_advances(request)) seams.grammar->accept(request.id, tokens);
  if (!tokens.empty() || stop) {
    RequestUpdate& update = report(request, index, tokens);
    if (stop) {
      update.finished = true;
      update.status = stop->status;
      update.reason = finish_reason(stop->status);
      update.session_waits = goes_on;
    }
  }
}

// Computed tokens whose drafts were rejected count no more; a request preempted meanwhile has none.
void Core::State::take_back_rejected(const PlanArena& arena, std::uint32_t index, std::uint32_t num_sampled) {
  const auto num_drafts = static_cast<std::uint32_t>(arena.plan().scheduled[index].drafts.size());
  if (num_drafts == 0) return;
  QUIRE_CHECK(num_sampled > 0 && num_sampled <= 1 + num_drafts, "drafts and one token more");
  Request& request = *arena.requests()[index];
  const std::uint32_t num_accepted = num_sampled - 1;
  const auto num_rejected = static_cast<std::int32_t>(num_drafts - num_accepted);
  request.num_computed_tokens = std::max(request.num_computed_tokens - num_rejected, 0);
  if (request.num_output_placeholders > 0) request.num_output_placeholders -= num_rejected;
  count_drafts(num_drafts - arena.num_invalid_drafts(index), num_accepted);
}

std::optional<Stop> Core::State::take_tokens(Request& request, std::span<const TokenId>& tokens) {
  QUIRE_CHECK(!tokens.empty(), "a result with tokens");
  if (config.scheduler.async_scheduling && std::exchange(request.discard_latest_async_tokens, false)) {
    tokens = {};
    return std::nullopt;
  }
  const bool was_running = request.status == RequestStatus::running;
  std::optional<Stop> stop;
  std::size_t num_taken = 0;
  while (num_taken < tokens.size() && !stop) {
    append_token(request, tokens[num_taken++]);
    stop = check_stop(request, config.scheduler.max_model_len);
  }
  tokens = tokens.first(num_taken);
  if (config.scheduler.async_scheduling) {
    request.num_output_placeholders = std::max(request.num_output_placeholders - static_cast<std::int32_t>(num_taken), 0);
    if (was_running) {
      const std::int32_t num_final = std::max(request.num_computed_tokens - request.num_output_placeholders, 0);
      kv.cache_blocks(kv_request(request), static_cast<std::uint32_t>(num_final));
    }
  }
  return stop;
}

bool Core::State::handle_stopped(Request& request, const Stop& stop) {
  QUIRE_CHECK(!request.finished(), "a request stops once");
  if (request.status == RequestStatus::running) {
    release_slot(request);
    out.stopped_running = true;
  } else {
    out.stopped_waiting.push_back(&request);
  }
  const bool loading = is_loading(request);
  num_loading -= loading ? 1 : 0;
  const RequestStatus before = std::exchange(request.status, stop.status);
  if (stop.token || stop.status == RequestStatus::finished_repetition) request.stop_token = stop.token;
  if (request.resumable && continue_stopped_session(request, before)) return false;
  request.ended_loading = loading;  // by a late token; vLLM gives the blocks away under the transfer, and leaves the request in its queue
  end(request);
  return true;
}

// A preempted session may be stopped by a late token when its next input is here already. It waits for that input in `waiting`, and is
// removed from there with the others. As in vLLM it is then in no queue, and stays so until it is aborted.
void Core::State::remove_stopped() {
  if (std::exchange(out.stopped_running, false))
    std::erase_if(running, [](const Request* request) { return request->status != RequestStatus::running; });
  if (!out.stopped_waiting.empty()) {
    waiting.remove(out.stopped_waiting);
    std::erase_if(out.stopped_waiting, [](const Request* request) { return !request->finished(); });
    skipped_waiting.remove(out.stopped_waiting);
    out.stopped_waiting.clear();
  }
}

RequestUpdate& Core::State::report(Request& request, std::uint32_t result_index, std::span<const TokenId> tokens) {
  RequestUpdate& update = out.updates.emplace_back();
  update.id = request.id;
  update.client_index = request.client_index;
  update.result_index = result_index;
  update.tokens = tokens;
  update.status = request.status;
  update.stop_token = request.stop_token;
  update.num_cached_tokens = request.num_cached_tokens;
  update.num_external_computed_tokens = request.num_external_computed_tokens;
  if (!request.events.empty()) {
    if (out.num_updated_events == out.updated_events.size()) out.updated_events.emplace_back();
    std::vector<RequestEvent>& updated = out.updated_events[out.num_updated_events++];
    updated.swap(request.events);
    request.events.clear();
    update.events = updated;
  }
  return update;
}

void Core::State::report_outcome(const PlanArena& arena) {
  out.kv_events.clear();
  kv.take_events(out.kv_events);
  collect_finished_sets();
  destroy_gone();
  out.retired.swap(out.retiring);
  out.retiring.clear();
  out.outcome = {.step = arena.plan().step,
                 .updates = out.updates,
                 .first_admissions = arena.first_admissions(),
                 .preempted = arena.preempted(),
                 .failed_loads = out.failed_ids,
                 .retired = out.retired,
                 .kv_events = out.kv_events,
                 .finished_sets = out.finished_sets,
                 .stats = collect_stats()};
}

}  // namespace quire
