#include "core/schedule/giving_way.h"

#include "core/schedule/requests.h"

namespace quire {
namespace {

// Not a session between two inputs, nor one that goes on: what these hold they have computed themselves. The tokens of a session are those
// that it has computed, and a connector may be about to store them.
bool waits_with_loaded_blocks(const Request& request) {
  if (is_loading(request) || request.swapped != nullptr || Requests::num_blocks(request) == 0) return false;
  return !request.admitted_before || request.status == RequestStatus::waiting_for_remote_kv || request.status == RequestStatus::preempted;
}

}  // namespace

bool GivingWay::before_preempting(const Request& request) {
  if (policy_.end_oldest_pin() || forks_.give_up_share(EventCause::lack_of_blocks)) return true;
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
    if (&request != &beneficiary && waits_with_loaded_blocks(request)) last = &request;
  };
  queues_.skipped_waiting.for_each(look);
  queues_.waiting.for_each(look);
  if (last == nullptr) return false;
  if (context_.events.wanted()) {
    context_.events.on_event({.what = EventKind::gave_way,
                              .cause = EventCause::lack_of_blocks,
                              .owner = last->id,
                              .beneficiary = beneficiary.id,
                              .amount = Requests::num_blocks(*last)});
  }
  requests_.forget_loaded(*last);
  return true;
}

}  // namespace quire
