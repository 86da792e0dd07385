#include "core/schedule/loops/block_reclaimer.h"

#include "base/check.h"
#include "core/schedule/requests/requests.h"

namespace quire {
namespace {

// Returns whether the request waits and holds loaded blocks. Returns false for a session between two inputs, whose blocks must match its
// count of computed tokens.
bool waits_with_loaded_blocks(const Request& request) {
  if (is_loading(request) || request.swapped != nullptr || Requests::num_blocks(request) == 0) return false;
  return !request.was_admitted_before || request.status == RequestStatus::waiting_for_remote_kv ||
         request.status == RequestStatus::preempted;
}

// Returns whether the request is a session that has its next input and holds blocks that no plan or transfer uses. Sessions of the previous
// step do not count: the connector may still plan a transfer for that step, in this plan or a later one.
bool is_continuing_session(const Request& request, StepId step) {
  return request.resumable && request.status == RequestStatus::waiting && request.was_admitted_before && request.in_flight.num_plans == 0 &&
         request.transfers.is_idle() && request.in_flight.last_step.value + 1 < step.value && Requests::num_blocks(request) > 0;
}

// Returns whether the session waits for its next input and holds blocks that no plan or transfer uses.
bool is_idle_session(const Request& request, StepId step) {
  return request.status == RequestStatus::waiting_for_input && request.in_flight.num_plans == 0 && request.transfers.is_idle() &&
         request.in_flight.last_step.value + 1 < step.value && Requests::num_blocks(request) > 0;
}

// Returns whether the request holds the blocks of an early load that has ended, and has not run since.
bool holds_early_load(const Request& request) {
  return request.load.early && !is_loading(request) && Requests::num_blocks(request) > 0;
}

}  // namespace

bool BlockReclaimer::reclaim_before_preempting(const Request& request, std::uint32_t num_missing) {
  // Frees in the order of cost, cheapest first: a pin, an unused share of a fork, the blocks of an idle session, a load that can be
  // repeated.
  if (policy_.end_oldest_pin() || forks_.release_a_share(EventCause::lack_of_blocks) || reclaim_idle_session(request) ||
      reclaim_for_earlier(request, num_missing))
    return true;
  return swap_.is_on() && queues_.running.size() == 1 && (swap_.drop_last_swap(request) || reclaim_loaded_blocks(request));
}

bool BlockReclaimer::reclaim_while_idle(const Request& beneficiary) {
  return queues_.running.empty() && (policy_.end_oldest_pin() || forks_.release_a_share(EventCause::lack_of_blocks, &beneficiary) ||
                                     swap_.drop_last_swap(beneficiary) || reclaim_loaded_blocks(beneficiary));
}

bool BlockReclaimer::reclaim_loaded_blocks(const Request& beneficiary) {
  if (!context_.rules.loaded_give_way && !swap_.is_on()) return false;
  Request* last = nullptr;
  const auto look = [&](Request& request) {
    if (&request != &beneficiary && (waits_with_loaded_blocks(request) || is_continuing_session(request, context_.events.step)))
      last = &request;
  };
  queues_.skipped_waiting.for_each(look);
  queues_.waiting.for_each(look);
  if (last == nullptr) return false;
  reclaim(*last, EventCause::lack_of_blocks, beneficiary.id);
  return true;
}

// Considers only requests that this step has not skipped. Skipped requests are in step_skipped; they come earlier and keep their blocks.
bool BlockReclaimer::reclaim_for_earlier(const Request& beneficiary, std::uint32_t num_missing) {
  if (!context_.rules.early_loads) return false;
  Request* last = nullptr;
  std::uint32_t num_blocks = 0;
  const auto look = [&](Request& request) {
    if (&request == &beneficiary || !holds_early_load(request)) return;
    num_blocks += Requests::num_blocks(request);
    last = &request;
  };
  queues_.skipped_waiting.for_each(look);
  queues_.waiting.for_each(look);
  if (last == nullptr || num_blocks < num_missing) return false;
  reclaim(*last, EventCause::lack_of_blocks, beneficiary.id);
  return true;
}

bool BlockReclaimer::reclaim_idle_session(const Request& beneficiary) {
  if (!context_.rules.idle_sessions_yield || queues_.num_waiting_for_input == 0) return false;
  Request* longest = nullptr;
  const auto look = [&](Request& request) {
    if (&request != &beneficiary && is_idle_session(request, context_.events.step) &&
        (longest == nullptr || request.in_flight.last_step < longest->in_flight.last_step))
      longest = &request;
  };
  queues_.skipped_waiting.for_each(look);
  queues_.waiting.for_each(look);
  // step_skipped contains the requests that this step has skipped.
  queues_.step_skipped.for_each(look);
  if (longest == nullptr) return false;
  report_reclaimed(*longest, EventCause::lack_of_blocks, beneficiary.id);
  // The session keeps its count of computed tokens, because its next input is appended after them.
  requests_.free_blocks(*longest);
  return true;
}

bool BlockReclaimer::cancel_last_early_load() {
  Request* last = nullptr;
  const auto look = [&](Request& request) { last = holds_early_load(request) ? &request : last; };
  queues_.skipped_waiting.for_each(look);
  queues_.waiting.for_each(look);
  if (last != nullptr) reclaim(*last, EventCause::ended_by_host, {});
  return last != nullptr;
}

void BlockReclaimer::reclaim(Request& request, EventCause cause, RequestId beneficiary) {
  QUIRE_CHECK(request.slot == kNoSlot && !is_loading(request), "only a waiting request with loaded blocks gives back its blocks");
  QUIRE_CHECK(Requests::num_blocks(request) > 0, "a request that gives back blocks holds some");
  report_reclaimed(request, cause, beneficiary);
  requests_.forget_loaded(request);
}

void BlockReclaimer::report_reclaimed(const Request& request, EventCause cause, RequestId beneficiary) {
  if (!context_.events.wanted()) return;
  context_.events.on_event({.what = EventKind::gave_way,
                            .cause = cause,
                            .owner = request.id,
                            .beneficiary = beneficiary,
                            .amount = Requests::num_blocks(request)});
}

}  // namespace quire
