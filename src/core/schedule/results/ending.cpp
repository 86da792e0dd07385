#include "core/schedule/results/ending.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

// Removes all requests from the queues before the connector is notified of the first end.
void Ending::finish(std::span<Request* const> requests, RequestStatus status) {
  QUIRE_CHECK(is_finished(status), "the new status is a finished status");
  bool any_running = false;
  bool any_waiting = false;
  for (Request* request : requests) {
    QUIRE_CHECK(!request->finished(), "a request finishes once");
    if (request->status == RequestStatus::running) {
      slots_.release(*request);
      any_running = true;
    } else {
      forks_.stop_sharing(*request);
      if (request->swapped != nullptr) swap_.forget(*request);
      QUIRE_CHECK(request->status != RequestStatus::waiting_for_input || queues_.num_waiting_for_input > 0,
                  "num_waiting_for_input counts the sessions that wait for input");
      queues_.num_waiting_for_input -= request->status == RequestStatus::waiting_for_input ? 1 : 0;
      // A session whose blocks were reclaimed keeps its count of computed tokens only for its next input. With this count, a connector
      // would store blocks that the session does not hold.
      if (context_.rules.idle_sessions_yield && request->status == RequestStatus::waiting_for_input && Requests::num_blocks(*request) == 0)
        request->num_computed_tokens = 0;
      request->load.outlives_request = is_loading(*request);
      QUIRE_CHECK(!request->load.outlives_request || queues_.num_loading > 0,
                  "num_loading counts the requests whose blocks are being loaded");
      queues_.num_loading -= request->load.outlives_request ? 1 : 0;
      any_waiting = true;
    }
    QUIRE_CHECK(request->slot == kNoSlot, "a finished request has no slot");
    request->load.received = false;
    request->load.failure = LoadFailure::none;
    request->grammar_failed = false;
    queues_.end_deferral(*request);
    request->status = status;
  }
  // Removes all requests in one pass, because each removal visits the whole queue.
  if (any_running) std::erase_if(queues_.running, [](const Request* request) { return request->finished(); });
  if (any_waiting) {
    queues_.waiting.remove(requests);
    queues_.skipped_waiting.remove(requests);
  }
  for (Request* request : requests) end(*request);
}

void Ending::end(Request& request) {
  QUIRE_CHECK(request.finished() && request.known);
  QUIRE_CHECK(request.slot == kNoSlot, "the slot was released when the request stopped");
  request.is_prefilling = false;
  if (request.swapped != nullptr) swap_.forget(request);
  if (request.load.outlives_request) ended_.keep(request, Holder::transfer);
  // First frees the blocks that a window has passed. The connector gets the blocks that are left, and must not store null blocks.
  if (context_.seams.connector != nullptr) {
    const bool shows_computed = context_.rules.finish_shows_computed_blocks;
    const std::int32_t num_sure = shows_computed ? request.num_computed_tokens - request.in_flight.num_tokens : request.num_tokens();
    kv_.remove_skipped_blocks(request.blocks, static_cast<std::uint32_t>(std::max(num_sure, 0)));
    const GroupBlocks shown = shows_computed ? requests_.computed_blocks(request) : requests_.group_blocks(request);
    request.transfers.awaits_end = context_.seams.connector->finished(Requests::view(request), shown);
    if (request.transfers.awaits_end) ended_.keep(request, Holder::transfer);
  }
  if (context_.events.wanted()) context_.events.on_event({.what = EventKind::ended, .owner = request.id});
  forks_.leave_family(request);
  // Asks the policy before encoder outputs are released, because the policy may read the request's output.
  const std::optional<double> stay_until = policy_.on_finish(request);
  encoder_.release_all(request);
  finished_.push_back(request.id);
  if (context_.config.report.include_finished_set) by_client_.emplace_back(request.client_index, request.id);
  if (stay_until) policy_.pin(request, *stay_until);
  // The time counts from the end, even if a pin or a transfer holds the blocks for a while.
  if (request.tags.retention_s > 0) kv_.retain(request.blocks, context_.now + request.tags.retention_s);
  if (request.holders == 0) ended_.free_blocks(request);
}

}  // namespace quire
