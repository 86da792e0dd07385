#include "core/schedule/requests/ended_requests.h"

#include "base/check.h"

namespace quire {

void EndedRequests::release(Request& request, Holder holder) {
  if (ledger_.release(request, holder)) free_blocks(request);
}

void EndedRequests::free_blocks(Request& request) {
  QUIRE_CHECK(request.finished() && request.known, "the blocks of a finished request are freed once");
  QUIRE_CHECK(request.holders == 0, "freed blocks have no holder");
  fences_.free(request);
  jobs_.leave(request);
  request.known = false;
  gone_.push_back(&request);
}

void EndedRequests::destroy_unreferenced() {
  std::erase_if(gone_, [this](Request* request) {
    QUIRE_CHECK(!request->known, "an ended request in the list is unknown");
    // A plan that is not applied yet still points to the request.
    if (request->in_flight.num_plans > 0) return false;
    retiring_.push_back(request->id);
    table_.destroy(*request);
    return true;
  });
}

void EndedRequests::destroy(Request& request) {
  QUIRE_CHECK(!request.known && request.in_flight.num_plans == 0, "no plan and no holder needs the destroyed request");
  std::erase(gone_, &request);
  table_.destroy(request);
}

void EndedRequests::take_retired(std::vector<RequestId>& retired) {
  // Swaps with the caller's list, so that no step allocates memory.
  retired.swap(retiring_);
  retiring_.clear();
}

}  // namespace quire
