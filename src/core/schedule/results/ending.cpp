#include "core/schedule/results/ending.h"

#include <algorithm>

#include "base/check.h"

namespace quire {

// All are removed from the queues before the connector is notified of the first.
void Ending::finish(std::span<Request* const> requests, RequestStatus status) {
  QUIRE_CHECK(is_finished(status), "a status to finish with");
  bool any_running = false;
  bool any_waiting = false;
  for (Request* request : requests) {
    QUIRE_CHECK(!request->finished(), "a request ends once");
    if (request->status == RequestStatus::running) {
      slots_.release(*request);
      any_running = true;
    } else {
      forks_.leave_sharing(*request);
      if (request->swapped != nullptr) swap_.forget(*request);
      QUIRE_CHECK(request->status != RequestStatus::waiting_for_input || queues_.num_waiting_for_input > 0,
                  "sessions between two inputs are counted");
      queues_.num_waiting_for_input -= request->status == RequestStatus::waiting_for_input ? 1 : 0;
      request->ended_loading = is_loading(*request);
      QUIRE_CHECK(!request->ended_loading || queues_.num_loading > 0, "requests whose blocks are being loaded are counted");
      queues_.num_loading -= request->ended_loading ? 1 : 0;
      any_waiting = true;
    }
    QUIRE_CHECK(request->slot == kNoSlot, "its row of the batch is free");
    request->finished_receiving = false;
    request->failed_receiving = false;
    request->lost_load = false;
    request->grammar_failed = false;
    queues_.end_deferral(*request);
    request->status = status;
  }
  // Once for all of them: taking one out of a queue costs a look at the whole queue.
  if (any_running) std::erase_if(queues_.running, [](const Request* request) { return request->finished(); });
  if (any_waiting) {
    queues_.waiting.remove(requests);
    queues_.skipped_waiting.remove(requests);
  }
  for (Request* request : requests) end(*request);
}

void Ending::end(Request& request) {
  QUIRE_CHECK(request.finished() && request.known);
  QUIRE_CHECK(request.slot == kNoSlot, "its row of the batch was released when it stopped");
  request.is_prefilling = false;
  if (request.swapped != nullptr) swap_.forget(request);
  if (request.ended_loading) ended_.keep(request, Holder::transfer);
  // Blocks that a window has passed go first: a connector is asked about those that are left, and must not store null blocks.
  if (context_.seams.connector != nullptr) {
    const bool shows_computed = context_.rules.ends_show_computed;
    const std::int32_t num_sure = shows_computed ? request.num_computed_tokens - request.num_tokens_in_flight : request.num_tokens();
    kv_.remove_skipped_blocks(request.blocks, static_cast<std::uint32_t>(std::max(num_sure, 0)));
    const GroupBlocks shown = shows_computed ? requests_.computed_blocks(request) : requests_.group_blocks(request);
    request.awaits_transfer = context_.seams.connector->finished(Requests::view(request), shown);
    if (request.awaits_transfer) ended_.keep(request, Holder::transfer);
  }
  if (context_.events.wanted()) context_.events.on_event({.what = EventKind::ended, .owner = request.id});
  forks_.leave_family(request);
  // Asked before the encoder's outputs go: the policy may look at the request's output, and nothing of that has changed yet.
  const std::optional<double> stay_until = policy_.on_finish(request);
  encoder_.release_all(request);
  finished_.push_back(request.id);
  if (context_.config.report.include_finished_set) by_client_.emplace_back(request.client_index, request.id);
  if (stay_until) policy_.pin(request, *stay_until);
  if (request.holders == 0) ended_.free_blocks(request);
}

}  // namespace quire
