#include "core/schedule/loops/load_failure_recovery.h"

#include "base/check.h"

namespace quire {

void LoadFailureRecovery::recover(bool start_again) {
  shared_.kv.evict_blocks(failed_load_tracker_.bad_blocks());
  for (const FailedLoadTracker::InvalidatedRequest& one : failed_load_tracker_.invalidated()) one.request->load.num_attempts_left = 0;
  if (start_again) recover_running();
  recover_waiting();
}

// Preempts the affected running requests from last to first, so that they are admitted again in their original order. Discards their tokens
// in flight.
void LoadFailureRecovery::recover_running() {
  for (std::size_t i = shared_.queues.running.size(); i > 0; --i) {
    Request& request = *shared_.queues.running[i - 1];
    if (!failed_load_tracker_.is_invalidated(request)) continue;
    QUIRE_CHECK(request.slot != kNoSlot, "a running request has a slot");
    shared_.queues.running.erase(shared_.queues.running.begin() + static_cast<std::ptrdiff_t>(i - 1));
    if (shared_.context.events.wanted()) {
      shared_.context.events.on_event(
          {.what = EventKind::preempted, .cause = EventCause::failed_transfer, .owner = request.id, .beneficiary = request.id});
    }
    request.in_flight.discards_latest_token |= request.num_output_placeholders > 0;
    request.num_output_placeholders = 0;
    preemption_.put_back(request);
    budget_.forget_last_plan();
  }
}

void LoadFailureRecovery::recover_waiting() {
  affected_.clear();
  const auto look = [this](Request& request) {
    if (failed_load_tracker_.holds_invalid_blocks(request) || (request.swapped != nullptr && failed_load_tracker_.is_invalidated(request)))
      affected_.push_back(&request);
  };
  shared_.queues.skipped_waiting.for_each(look);
  shared_.queues.waiting.for_each(look);
  for (Request* request : affected_) recover(*request);
}

void LoadFailureRecovery::recover(Request& request) {
  QUIRE_CHECK(request.status != RequestStatus::running && !request.finished(), "the request waits");
  if (request.swapped != nullptr)
    swap_.drop(request, EventCause::failed_transfer);
  else if (is_loading(request))
    // A request with a partial load keeps the blocks before the first bad block.
    request.load.failure = request.load.failure == LoadFailure::partial ? LoadFailure::partial : LoadFailure::lost;
  else if (forks_.is_sharing(request))
    forks_.release_share_of(request, EventCause::failed_transfer);
  else
    shared_.requests.forget_loaded(request);
}

}  // namespace quire
