#include "core/schedule/loops/giving_back.h"

#include "base/check.h"

namespace quire {

void GivingBack::give_back(bool begin_anew) {
  on_.kv.evict_blocks(unloaded_.bad_blocks());
  for (const Unloaded::Spoiled& one : unloaded_.spoiled()) one.request->loads_nothing = true;
  if (begin_anew) give_back_running();
  give_back_waiting();
}

// From the last on, so that they come back in order. Tokens in flight are worth nothing.
void GivingBack::give_back_running() {
  for (std::size_t i = on_.queues.running.size(); i > 0; --i) {
    Request& request = *on_.queues.running[i - 1];
    if (!unloaded_.is_spoiled(request)) continue;
    QUIRE_CHECK(request.slot != kNoSlot, "who runs has a slot");
    on_.queues.running.erase(on_.queues.running.begin() + static_cast<std::ptrdiff_t>(i - 1));
    if (on_.context.events.wanted()) {
      on_.context.events.on_event(
          {.what = EventKind::preempted, .cause = EventCause::failed_transfer, .owner = request.id, .beneficiary = request.id});
    }
    request.discard_latest_async_tokens |= request.num_output_placeholders > 0;
    request.num_output_placeholders = 0;
    preemption_.put_back(request);
    budget_.forget_last_plan();
  }
}

void GivingBack::give_back_waiting() {
  holding_.clear();
  const auto look = [this](Request& request) {
    if (unloaded_.holds_bad(request) || (request.swapped != nullptr && unloaded_.is_spoiled(request))) holding_.push_back(&request);
  };
  on_.queues.skipped_waiting.for_each(look);
  on_.queues.waiting.for_each(look);
  for (Request* request : holding_) give_back(*request);
}

void GivingBack::give_back(Request& request) {
  QUIRE_CHECK(request.status != RequestStatus::running && !request.finished(), "it waits");
  if (request.swapped != nullptr)
    swap_.drop(request, EventCause::failed_transfer);
  else if (is_loading(request))
    request.lost_load |= !request.failed_receiving;  // else it keeps what comes before
  else if (forks_.is_sharing(request))
    forks_.give_up_share_of(request, EventCause::failed_transfer);
  else
    on_.requests.forget_loaded(request);
}

}  // namespace quire
