// Takes what a worker says of one plan. Called by apply() on the core's thread, after the result was checked as a whole: from here on
// nothing can be refused. With asynchronous scheduling the request may have moved on since the plan was made (preempted, stopped, reset),
// so each token is judged by the request's state now, not by the plan's.
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
    // Samples come in the plan's order, and some requests have none: one pass brings them together.
    for (; num_taken < sampled.size() && sampled[num_taken].id == request.id; ++num_taken) updates_.add_token(sampled[num_taken].token);
    const bool pooled = num_pooled < pooled_ids.size() && pooled_ids[num_pooled] == request.id;
    num_pooled += pooled ? 1 : 0;
    const bool is_stale = end_flight(request, arena.plan().scheduled[i].num_tokens);
    const bool is_dropped = is_stale && request.drops_stale;
    // Who has ended since the plan was made gets no more tokens, nor does who ran on blocks that were not loaded.
    if (request.known && !request.finished() && !request.load_failed && !is_late(request) && !is_dropped)
      take_one(arena, i, updates_.tokens_from(begin), pooled, is_stale);
    else if (request.load_failed && context_.config.cures.unloaded_begin_anew && updates_.num_tokens() > begin)
      drop_tokens(request, static_cast<std::int32_t>(arena.plan().scheduled[i].drafts.size()));
  }
  QUIRE_CHECK(num_taken == sampled.size() && num_pooled == pooled_ids.size(), "a checked result is taken whole");
  remove_stopped();
}

// Of a step that was begun before its session's answer was known to be over.
bool Results::is_late(const Request& request) const {
  return request.status == RequestStatus::waiting_for_input && context_.config.cures.cut_sessions;
}

bool Results::end_flight(Request& request, std::uint32_t num_tokens) {
  const auto count = static_cast<std::int32_t>(num_tokens);
  QUIRE_CHECK(request.num_tokens_in_flight >= count, "what a plan runs is in flight until its result comes");
  request.num_tokens_in_flight -= count;
  // Results come in the order of their plans, so what is stale comes first.
  const bool is_stale = request.num_stale_tokens > 0;
  if (is_stale) request.num_stale_tokens = std::max(request.num_stale_tokens - count, 0);
  return is_stale;
}

void Results::take_one(const PlanArena& arena, std::uint32_t index, std::span<const TokenId> tokens, bool pooled, bool is_stale) {
  Request& request = *arena.requests()[index];
  std::optional<Stop> stop;
  const bool has_drafts = !tokens.empty() && !arena.plan().scheduled[index].drafts.empty();
  if (has_drafts && !(request.discard_latest_async_tokens && context_.config.cures.unsure_drafts))
    take_back_rejected(arena, index, static_cast<std::uint32_t>(tokens.size()), is_stale);
  // vLLM does so before the tokens are appended.
  if (request.has_encoder_inputs() && context_.rules.outputs_follow_results) encoder_.release_computed(request);
  if (!tokens.empty())
    stop = take_tokens(request, tokens, is_stale);
  else if (pooled)
    stop = Stop{};
  // Of refused tokens the update still says how else they would have stopped it.
  const RequestStatus told = stop ? stop->status : RequestStatus::finished_error;
  if (context_.rules.refused_tokens_end && !tokens.empty() && !move_grammar(request, tokens, stop)) {
    stop = Stop{.status = RequestStatus::finished_error, .token = stop ? stop->token : std::nullopt};
    request.resumable = false;
  }
  const bool is_first = (!tokens.empty() || stop) && !std::exchange(request.told, true);
  const std::uint32_t num_named = is_first ? num_named_tokens(request) : 0;
  bool goes_on = false;
  if (stop) goes_on = !handle_stopped(request, *stop);
  if (!context_.rules.refused_tokens_end && !tokens.empty() && drafts_.grammar_advances(request))
    context_.seams.grammar->accept(request.id, tokens);
  if (!tokens.empty() || stop) {
    RequestUpdate& update = updates_.report(request, index, tokens);
    update.num_named_tokens = num_named;
    if (stop) {
      update.finished = true;
      update.status = told;
      update.reason = finish_reason(stop->status);
      update.session_waits = goes_on;
    }
  }
}

bool Results::move_grammar(Request& request, std::span<const TokenId> tokens, const std::optional<Stop>& stop) {
  if (!request.structured_output || context_.seams.grammar == nullptr) return true;
  // Who is asked sees the request as it will be, as in vLLM.
  const RequestStatus before = request.status;
  if (stop) request.status = stop->status;
  const bool fits = context_.seams.grammar->accept(request.id, tokens);
  request.status = before;
  return fits;
}

// What of it others could find now: the least over the cache groups.
std::uint32_t Results::num_named_tokens(const Request& request) const {
  std::uint32_t least = UINT32_MAX;
  for (std::uint32_t group = 0; group < context_.num_groups; ++group) {
    const std::span<const BlockId> blocks = request.blocks.blocks(group);
    std::size_t end = blocks.size();
    while (end > 0 && !kv_.pool().index().contains(blocks[end - 1])) --end;
    least = std::min(least, static_cast<std::uint32_t>(end) * kv_.block_size(group));
  }
  return context_.num_groups == 0 ? 0 : least;
}

// Computed tokens whose drafts were rejected count no more; a request preempted meanwhile has none.
void Results::take_back_rejected(const PlanArena& arena, std::uint32_t index, std::uint32_t num_sampled, bool is_stale) {
  const auto num_drafts = static_cast<std::uint32_t>(arena.plan().scheduled[index].drafts.size());
  QUIRE_CHECK(num_drafts > 0 && num_sampled > 0 && num_sampled <= 1 + num_drafts, "drafts and one token more");
  Request& request = *arena.requests()[index];
  const std::uint32_t num_accepted = num_sampled - 1;
  const auto num_rejected = static_cast<std::int32_t>(num_drafts - num_accepted);
  if (!is_stale) {
    request.num_computed_tokens = std::max(request.num_computed_tokens - num_rejected, 0);
    if (request.num_output_placeholders > 0) request.num_output_placeholders -= num_rejected;
  }
  stats_.count_drafts(num_drafts - arena.num_invalid_drafts(index), num_accepted);
}

// They were drawn from what was not loaded, and are awaited no more.
void Results::drop_tokens(Request& request, std::int32_t num_drafts) {
  QUIRE_CHECK(num_drafts >= 0 && request.num_output_placeholders >= 0, "tokens in flight are counted");
  if (std::exchange(request.discard_latest_async_tokens, false)) return;
  request.num_output_placeholders = std::max(request.num_output_placeholders - 1 - num_drafts, 0);
}

std::optional<Stop> Results::take_tokens(Request& request, std::span<const TokenId>& tokens, bool is_stale) {
  QUIRE_CHECK(!tokens.empty(), "a result with tokens");
  if (context_.config.scheduler.async_scheduling && std::exchange(request.discard_latest_async_tokens, false)) {
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
  // What was sampled behind a stop was computed for nothing: nobody hears of it.
  tokens = tokens.first(num_taken);
  if (context_.config.scheduler.async_scheduling) {
    if (!is_stale) request.num_output_placeholders = std::max(request.num_output_placeholders - static_cast<std::int32_t>(num_taken), 0);
    if (was_running) {
      // Only what no later result can take back goes into the prefix cache.
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
  QUIRE_CHECK(request.known, "only a request that is known stops");
  const bool loading = is_loading(request);
  QUIRE_CHECK(!loading || queues_.num_loading > 0, "requests whose blocks are being loaded are counted");
  queues_.num_loading -= loading ? 1 : 0;
  const RequestStatus before = std::exchange(request.status, stop.status);
  if (stop.token || stop.status == RequestStatus::finished_repetition) request.stop_token = stop.token;
  if (request.resumable && sessions_.go_on(request, before)) return false;
  request.ended_loading = loading;  // by a late token; vLLM gives the blocks away under the transfer, and leaves the request in its queue
  ending_.end(request);
  return true;
}

// A preempted session may be stopped by a late token when its next input is here already. It waits for that input in `waiting`, and is
// removed from there with the others. As in vLLM it is then in no queue, and stays so until it is aborted.
void Results::remove_stopped() {
  if (std::exchange(stopped_running_, false))
    std::erase_if(queues_.running, [](const Request* request) { return request->status != RequestStatus::running; });
  if (!stopped_waiting_.empty()) {
    queues_.waiting.remove(stopped_waiting_);
    const bool holders_first = context_.rules.holders_first;
    // vLLM leaves one that has ended in `skipped_waiting`. Where none is there the queue stays as it is: taking out anything at all would
    // put a session whose arrival time has changed since it was queued into its new place.
    if (!holders_first)
      std::erase_if(stopped_waiting_, [this](const Request* r) { return !r->finished() || !queues_.skipped_waiting.contains(*r); });
    if (!stopped_waiting_.empty()) queues_.skipped_waiting.remove(stopped_waiting_);
    if (holders_first)
      for (Request* request : stopped_waiting_) queues_.end_deferral(*request);
    stopped_waiting_.clear();
  }
}

}  // namespace quire
