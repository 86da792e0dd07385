#include "core/schedule/loops/giving_way.h"

#include "base/check.h"
#include "core/schedule/requests/requests.h"

namespace quire {
namespace {

// Not a session between two inputs: its tokens are those that it has computed.
bool waits_with_loaded_blocks(const Request& request) {
  if (is_loading(request) || request.swapped != nullptr || Requests::num_blocks(request) == 0) return false;
  return !request.admitted_before || request.status == RequestStatus::waiting_for_remote_kv || request.status == RequestStatus::preempted;
}

// It has its next input. No plan under way runs on its blocks, nor does a transfer: one of the plan before may be named in this one, or in
// the next that has a place for it.
bool is_session_that_goes_on(const Request& request, StepId step) {
  return request.resumable && request.status == RequestStatus::waiting && request.admitted_before && request.num_in_flight == 0 &&
         request.num_open_loads + request.num_open_stores == 0 && !request.lacks_transfer && request.last_step.value + 1 < step.value &&
         Requests::num_blocks(request) > 0;
}

// They have come, and it has not run since.
bool holds_early_load(const Request& request) {
  return request.loaded_early && !is_loading(request) && Requests::num_blocks(request) > 0;
}

}  // namespace

bool GivingWay::before_preempting(const Request& request, std::uint32_t num_missing) {
  // What costs least goes first: a pin, a share that has not been used, a load that can come again.
  if (policy_.end_oldest_pin() || forks_.give_up_share(EventCause::lack_of_blocks) || to_earlier(request, num_missing)) return true;
  return swap_.is_on() && queues_.running.size() == 1 && (swap_.give_up_last(request) || take_back_loaded(request));
}

bool GivingWay::while_idle(const Request& beneficiary) {
  return queues_.running.empty() && (policy_.end_oldest_pin() || forks_.give_up_share(EventCause::lack_of_blocks, &beneficiary) ||
                                     swap_.give_up_last(beneficiary) || take_back_loaded(beneficiary));
}

bool GivingWay::take_back_loaded(const Request& beneficiary) {
  if (!context_.config.cures.loaded_give_way && !swap_.is_on()) return false;
  Request* last = nullptr;
  const auto look = [&](Request& request) {
    if (&request != &beneficiary && (waits_with_loaded_blocks(request) || is_session_that_goes_on(request, context_.events.step)))
      last = &request;
  };
  queues_.skipped_waiting.for_each(look);
  queues_.waiting.for_each(look);
  if (last == nullptr) return false;
  take_back(*last, EventCause::lack_of_blocks, beneficiary.id);
  return true;
}

// Who was passed over in this step goes first, and is in neither queue now.
bool GivingWay::to_earlier(const Request& beneficiary, std::uint32_t num_missing) {
  if (!context_.config.cures.early_loads) return false;
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
  take_back(*last, EventCause::lack_of_blocks, beneficiary.id);
  return true;
}

bool GivingWay::end_early_load() {
  Request* last = nullptr;
  const auto look = [&](Request& request) { last = holds_early_load(request) ? &request : last; };
  queues_.skipped_waiting.for_each(look);
  queues_.waiting.for_each(look);
  if (last != nullptr) take_back(*last, EventCause::ended_by_host, {});
  return last != nullptr;
}

void GivingWay::take_back(Request& request, EventCause cause, RequestId beneficiary) {
  QUIRE_CHECK(request.slot == kNoSlot && !is_loading(request), "only a request that waits with loaded blocks gives way");
  QUIRE_CHECK(Requests::num_blocks(request) > 0, "each turn has somebody give something, or who asks again would do so for ever");
  if (context_.events.wanted()) {
    context_.events.on_event({.what = EventKind::gave_way,
                              .cause = cause,
                              .owner = request.id,
                              .beneficiary = beneficiary,
                              .amount = Requests::num_blocks(request)});
  }
  requests_.forget_loaded(request);
}

}  // namespace quire
