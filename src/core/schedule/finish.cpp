// The end of requests, by a stop, from outside, or by a failed load.
//
//   any live state -> finished, known     _free_request; a connector, a load under way or a pin keeps the blocks
//   finished, known -> finished, unknown  free_blocks: at once, or when the last of them lets go
//   unknown -> destroyed                  when no outstanding plan names it
#include <algorithm>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

FinishEffect Core::finish(RequestId id, RequestStatus status, const StepInput& input) {
  State& s = *state_;
  Request* request = s.table.find(id);
  if (request == nullptr || request->finished()) return FinishEffect::unknown;
  s.begin_call(input);
  s.finish({&request, 1}, status);
  if (request->known || request->num_in_flight > 0) return FinishEffect::in_flight;
  std::erase(s.out.gone, request);
  s.table.destroy(*request);
  return FinishEffect::retired;
}

void Core::finish(std::span<const RequestId> ids, RequestStatus status, std::vector<RequestId>& finished, const StepInput& input) {
  State& s = *state_;
  s.begin_call(input);
  s.out.ending.clear();
  for (RequestId id : ids) {
    Request* request = s.table.find(id);
    if (request != nullptr && !request->finished() && std::ranges::find(s.out.ending, request) == s.out.ending.end()) {
      s.out.ending.push_back(request);
      finished.push_back(id);
    }
  }
  s.finish(s.out.ending, status);
  s.destroy_gone();
}

// All are removed from the queues before the connector is notified of the first.
void Core::State::finish(std::span<Request* const> requests, RequestStatus status) {
  QUIRE_CHECK(is_finished(status), "a status to finish with");
  bool any_running = false;
  bool any_waiting = false;
  for (Request* request : requests) {
    QUIRE_CHECK(!request->finished(), "a request ends once");
    if (request->status == RequestStatus::running) {
      release_slot(*request);
      any_running = true;
    } else {
      leave_sharing(*request);
      num_waiting_for_input -= request->status == RequestStatus::waiting_for_input ? 1 : 0;
      request->ended_loading = is_loading(*request);
      num_loading -= request->ended_loading ? 1 : 0;
      any_waiting = true;
    }
    request->finished_receiving = false;
    request->failed_receiving = false;
    request->status = status;
  }
  if (any_running) std::erase_if(running, [](const Request* request) { return request->finished(); });
  if (any_waiting) {
    waiting.remove(requests);
    skipped_waiting.remove(requests);
  }
  for (Request* request : requests) end(*request);
}

void Core::State::end(Request& request) {
  QUIRE_CHECK(request.finished() && request.known);
  if (request.ended_loading) hold_ledger.take(request, Holder::transfer);
  if (seams.connector != nullptr) {
    kv.remove_skipped_blocks(request.blocks, static_cast<std::uint32_t>(request.num_tokens()));
    request.awaits_transfer = seams.connector->finished(view(request), group_blocks(request));
    if (request.awaits_transfer) hold_ledger.take(request, Holder::transfer);
  }
  leave_family(request);
  const std::optional<double> stay_until = agent ? on_finish(request) : std::nullopt;
  encoder_cache.release_all(encoder_inputs(request));
  finished.push_back(request.id);
  if (config.report.include_finished_set) out.ended.emplace_back(request.client_index, request.id);
  if (stay_until) pin(request, *stay_until);
  if (request.holders == 0) free_blocks(request);
}

void Core::State::let_go(Request& request, Holder holder) {
  if (hold_ledger.let_go(request, holder)) free_blocks(request);
}

void Core::State::free_blocks(Request& request) {
  QUIRE_CHECK(request.finished() && request.known, "blocks are given back once");
  kv.free(request.blocks);
  leave_job(request);
  request.known = false;
  out.gone.push_back(&request);
}

void Core::State::destroy_gone() {
  std::erase_if(out.gone, [this](Request* request) {
    QUIRE_CHECK(!request->known, "what is gone was forgotten");
    if (request->num_in_flight > 0) return false;
    out.retiring.push_back(request->id);
    table.destroy(*request);
    return true;
  });
}

}  // namespace quire
