// Taking a step's result: tokens are appended, and requests end.
//
//   running, preempted -> finished   apply, by check_stop; finish(), from outside (there also: waiting -> finished)
//   finished -> retired              once no outstanding plan names it
//
// A token that comes late, for a request preempted meanwhile, is appended all the same; one for a finished request is dropped.
#include <algorithm>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

const StepOutcome& Scheduler::apply(const StepResult& result) {
  State& s = *state_;
  const PlanArena& arena = s.plans.pop();
  QUIRE_CHECK(result.step == arena.plan().step, "results come in the order of the plans");
  s.updates.clear();
  s.updated_tokens.clear();
  s.retired.clear();
  s.take_tokens(arena, result.sampled);
  s.retire_finished(arena);
  for (std::size_t i = 0; i < s.updates.size(); ++i) {
    s.updates[i].tokens = std::span(s.updated_tokens).subspan(i, 1);
  }
  s.outcome = {.step = result.step,
               .updates = s.updates,
               .first_admissions = arena.first_admissions(),
               .preempted = arena.preempted(),
               .retired = s.retired};
  return s.outcome;
}

FinishEffect Scheduler::finish(RequestId id, FinishReason /*reason*/) {
  State& s = *state_;
  Request* request = s.table.find(id);
  if (request == nullptr || request->state == RequestState::finished) {
    return FinishEffect::unknown;
  }
  if (request->state == RequestState::running) {
    s.running.erase(std::ranges::find(s.running, request));
  }
  s.end(*request);
  if (request->num_in_flight > 0) {
    return FinishEffect::in_flight;
  }
  s.table.destroy(*request);
  return FinishEffect::retired;
}

void Scheduler::State::take_tokens(const PlanArena& arena, std::span<const SampledToken> sampled) {
  std::size_t num_taken = 0;
  for (std::size_t i = 0; i < arena.requests().size(); ++i) {
    Request& request = *arena.requests()[i];
    --request.num_in_flight;
    if (!arena.plan().scheduled[i].samples) {
      continue;
    }
    QUIRE_CHECK(num_taken < sampled.size() && sampled[num_taken].id == request.id, "one token per sampling request, in the plan's order");
    const TokenId token = sampled[num_taken++].token;
    if (request.state != RequestState::finished) {
      take_token(request, token);
    }
  }
  QUIRE_CHECK(num_taken == sampled.size(), "more tokens than requests that sample");
}

void Scheduler::State::take_token(Request& request, TokenId token) {
  request.tokens.push_back(token);
  kv.extend_hashes(request.kv, request.tokens, request.extra_keys);
  QUIRE_CHECK(request.num_cached_tokens.has_value(), "a running request was admitted");
  RequestUpdate update{.id = request.id, .tokens = {}, .num_cached_tokens = *request.num_cached_tokens};
  if (const std::optional<Stop> stop = check_stop(request)) {
    update.finished = true;
    update.reason = stop->reason;
    update.stop_token = stop->token;
    any_finished = true;
    end(request);
  }
  updates.push_back(update);
  updated_tokens.push_back(token);
}

// The caller takes it out of `running`.
void Scheduler::State::end(Request& request) {
  if (request.queued()) {
    waiting.remove(request);
  } else {
    kv.free(request.kv);
    release_slot(request);
  }
  request.state = RequestState::finished;
}

void Scheduler::State::retire_finished(const PlanArena& arena) {
  if (any_finished) {
    std::erase_if(running, [](const Request* request) { return request->state == RequestState::finished; });
    any_finished = false;
  }
  for (Request* request : arena.requests()) {
    if (request->state == RequestState::finished && request->num_in_flight == 0) {
      retired.push_back(request->id);
      table.destroy(*request);
    }
  }
}

}  // namespace quire
