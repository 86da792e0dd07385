// Takes a worker's result for one plan. Called by apply() on the core's thread after the result was checked as a whole: no part of the
// result is refused later. With asynchronous scheduling, the request may have been preempted, stopped or reset since the plan was made.
// Each token is therefore handled according to the request's current state, not the state in the plan.
#include "core/schedule/results/results.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {

void Results::take(const PlanArena& arena, const StepResult& result) {
  std::size_t num_taken = 0;
  std::size_t num_pooled = 0;
  const std::span<Request* const> requests = arena.requests();
  const std::span<const SampledToken> sampled = result.sampled;
  const std::span<const RequestId> pooled_ids = result.pooled;
  for (std::uint32_t i = 0; i < requests.size(); ++i) {
    Request& request = *requests[i];
    const std::size_t begin = updates_.num_tokens();
    // The sampled tokens are in the plan's order, and some requests have none, so one pass matches them.
    for (; num_taken < sampled.size() && sampled[num_taken].id == request.id; ++num_taken) updates_.add_token(sampled[num_taken].token);
    const bool pooled = num_pooled < pooled_ids.size() && pooled_ids[num_pooled] == request.id;
    num_pooled += pooled ? 1 : 0;
    const bool is_stale = end_in_flight_tokens(request, arena.plan().scheduled[i].num_tokens);
    const bool is_dropped = is_stale && request.in_flight.drops_stale_tokens;
    // A request gets no tokens if it has ended since the plan was made, or if it ran on blocks whose load failed.
    if (request.known && !request.finished() && !request.load.skips_result && !is_late(request) && !is_dropped)
      take_one(arena, i, updates_.tokens_from(begin), pooled, is_stale);
    else if (request.load.skips_result && context_.rules.unloaded_begin_anew && updates_.num_tokens() > begin)
      drop_tokens(request, static_cast<std::int32_t>(arena.plan().scheduled[i].drafts.size()));
  }
  QUIRE_CHECK(num_taken == sampled.size() && num_pooled == pooled_ids.size(), "a checked result is consumed completely");
  remove_stopped();
}

// Returns whether the step of this result was planned before the session's answer ended.
bool Results::is_late(const Request& request) const {
  return request.status == RequestStatus::waiting_for_input && context_.rules.cut_sessions;
}

bool Results::end_in_flight_tokens(Request& request, std::uint32_t num_tokens) {
  const auto count = static_cast<std::int32_t>(num_tokens);
  QUIRE_CHECK(request.in_flight.num_tokens >= count, "the tokens of a plan are in flight until its result arrives");
  request.in_flight.num_tokens -= count;
  // Results arrive in the order of their plans, so stale tokens arrive first.
  const bool is_stale = request.in_flight.num_stale_tokens > 0;
  if (is_stale) request.in_flight.num_stale_tokens = std::max(request.in_flight.num_stale_tokens - count, 0);
  return is_stale;
}

void Results::take_one(const PlanArena& arena, std::uint32_t index, std::span<const TokenId> tokens, bool pooled, bool is_stale) {
  Request& request = *arena.requests()[index];
  std::optional<Stop> stop;
  const bool has_drafts = !tokens.empty() && !arena.plan().scheduled[index].drafts.empty();
  if (has_drafts && !(request.in_flight.discards_latest_token && context_.rules.unsure_drafts))
    subtract_rejected_drafts(arena, index, static_cast<std::uint32_t>(tokens.size()), is_stale);
  // vLLM releases encoder outputs before the tokens are appended.
  if (request.has_encoder_inputs() && context_.rules.encoder_outputs_freed_on_results) encoder_.release_computed(request);
  if (!tokens.empty())
    stop = take_tokens(request, tokens, is_stale);
  else if (pooled)
    stop = Stop{};
  // If the grammar rejects the tokens, the update still reports the status that the tokens would have caused without a grammar.
  const RequestStatus reported = stop ? stop->status : RequestStatus::finished_error;
  if (context_.rules.grammar_rejection_ends_request && !tokens.empty() && !advance_grammar(request, tokens, stop)) {
    stop = Stop{.status = RequestStatus::finished_error, .token = stop ? stop->token : std::nullopt};
    request.resumable = false;
  }
  const bool is_first = (!tokens.empty() || stop) && !std::exchange(request.reported, true);
  const std::uint32_t num_hashed = is_first ? num_hashed_tokens(request) : 0;
  bool goes_on = false;
  if (stop) goes_on = !handle_stopped(request, *stop);
  if (!context_.rules.grammar_rejection_ends_request && !tokens.empty() && drafts_.grammar_advances(request))
    context_.seams.grammar->accept(request.id, tokens);
  if (!tokens.empty() || stop) {
    RequestUpdate& update = updates_.report(request, index, tokens);
    update.num_hashed_tokens = num_hashed;
    if (stop) {
      update.finished = true;
      update.status = reported;
      update.reason = finish_reason(stop->status);
      update.session_waits = goes_on;
    }
  }
}

bool Results::advance_grammar(Request& request, std::span<const TokenId> tokens, const std::optional<Stop>& stop) {
  if (!request.structured_output || context_.seams.grammar == nullptr) return true;
  // As in vLLM, the grammar gets the request with its final status.
  const RequestStatus before = request.status;
  if (stop) request.status = stop->status;
  const bool fits = context_.seams.grammar->accept(request.id, tokens);
  request.status = before;
  return fits;
}

// Returns how many tokens of the request other requests can find in the cache: the minimum over the cache groups.
std::uint32_t Results::num_hashed_tokens(const Request& request) const {
  std::uint32_t least = UINT32_MAX;
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    const std::span<const BlockId> blocks = request.blocks.blocks(group);
    std::size_t end = blocks.size();
    while (end > 0 && !kv_.pool().index().contains(blocks[end - 1])) --end;
    least = std::min(least, static_cast<std::uint32_t>(end) * kv_.block_size(group));
  }
  return context_.num_groups == 0 ? 0 : least;
}

// Subtracts rejected draft tokens from the computed tokens. A request that was preempted in the meantime has no computed tokens.
void Results::subtract_rejected_drafts(const PlanArena& arena, std::uint32_t index, std::uint32_t num_sampled, bool is_stale) {
  const auto num_drafts = static_cast<std::uint32_t>(arena.plan().scheduled[index].drafts.size());
  QUIRE_CHECK(num_drafts > 0 && num_sampled > 0 && num_sampled <= 1 + num_drafts,
              "a result has at least one token, and at most one more than draft tokens");
  Request& request = *arena.requests()[index];
  const std::uint32_t num_accepted = num_sampled - 1;
  const auto num_rejected = static_cast<std::int32_t>(num_drafts - num_accepted);
  if (!is_stale) {
    request.num_computed_tokens = std::max(request.num_computed_tokens - num_rejected, 0);
    if (request.num_output_placeholders > 0) request.num_output_placeholders -= num_rejected;
  }
  stats_.count_drafts(num_drafts - arena.num_invalid_drafts(index), num_accepted);
}

// Drops tokens that were sampled from blocks whose load failed. The request no longer waits for these tokens.
void Results::drop_tokens(Request& request, std::int32_t num_drafts) {
  QUIRE_CHECK(num_drafts >= 0 && request.num_output_placeholders >= 0, "the numbers of draft tokens and placeholders are not negative");
  if (std::exchange(request.in_flight.discards_latest_token, false)) return;
  request.num_output_placeholders = std::max(request.num_output_placeholders - 1 - num_drafts, 0);
}

std::optional<Stop> Results::take_tokens(Request& request, std::span<const TokenId>& tokens, bool is_stale) {
  QUIRE_CHECK(!tokens.empty(), "a result has at least one token");
  if (context_.config.scheduler.async_scheduling && std::exchange(request.in_flight.discards_latest_token, false)) {
    tokens = {};
    return std::nullopt;
  }
  const bool was_running = request.status == RequestStatus::running;
  std::optional<Stop> stop;
  std::size_t num_taken = 0;
  while (num_taken < tokens.size() && !stop) {
    requests_.append_token(request, tokens[num_taken++]);
    stop = check_stop(request, context_.config.scheduler.max_model_len, context_.rules);
  }
  // Tokens that were sampled after a stop are dropped and not reported.
  tokens = tokens.first(num_taken);
  if (context_.config.scheduler.async_scheduling) {
    if (!is_stale) request.num_output_placeholders = std::max(request.num_output_placeholders - static_cast<std::int32_t>(num_taken), 0);
    if (was_running) {
      // Only tokens that no later result can reject enter the prefix cache.
      const std::int32_t num_final = std::max(request.num_computed_tokens - request.num_output_placeholders, 0);
      kv_.cache_blocks(requests_.kv_request(request), static_cast<std::uint32_t>(num_final));
    }
  }
  return stop;
}

bool Results::handle_stopped(Request& request, const Stop& stop) {
  QUIRE_CHECK(!request.finished(), "a request stops once");
  if (request.status == RequestStatus::running) {
    slots_.release(request);
    stopped_running_ = true;
  } else {
    stopped_waiting_.push_back(&request);
  }
  QUIRE_CHECK(request.known, "only a known request stops");
  const bool loading = is_loading(request);
  QUIRE_CHECK(!loading || queues_.num_loading > 0, "num_loading counts the requests whose blocks are being loaded");
  queues_.num_loading -= loading ? 1 : 0;
  const RequestStatus before = std::exchange(request.status, stop.status);
  if (stop.token || stop.status == RequestStatus::finished_repetition) request.stop_token = stop.token;
  if (request.resumable && sessions_.advance(request, before)) return false;
  // Only a late token can stop a request during a load. Unlike vLLM, keeps the blocks until the load has ended.
  request.load.outlives_request = loading;
  ending_.end(request);
  return true;
}

// Removes stopped requests from `running` and the queues. If a late token stops a preempted session that already has its next input, the
// session is removed from `waiting` too. As in vLLM it is then in no queue until it is aborted.
void Results::remove_stopped() {
  if (std::exchange(stopped_running_, false))
    std::erase_if(queues_.running, [](const Request* request) { return request->status != RequestStatus::running; });
  if (!stopped_waiting_.empty()) {
    queues_.waiting.remove(stopped_waiting_);
    const bool block_holders_first = context_.rules.block_holders_first;
    // vLLM leaves a request that has ended in `skipped_waiting`. If this queue contains none of the stopped requests, it is not changed: a
    // removal rebuilds the heap, which could move a session whose arrival time has changed since it was queued.
    if (!block_holders_first)
      std::erase_if(stopped_waiting_, [this](const Request* r) { return !r->finished() || !queues_.skipped_waiting.contains(*r); });
    if (!stopped_waiting_.empty()) queues_.skipped_waiting.remove(stopped_waiting_);
    if (block_holders_first)
      for (Request* request : stopped_waiting_) queues_.end_deferral(*request);
    stopped_waiting_.clear();
  }
}

}  // namespace quire
