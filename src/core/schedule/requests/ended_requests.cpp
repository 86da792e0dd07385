#include "core/schedule/requests/ended_requests.h"

#include "base/check.h"

namespace quire {

void EndedRequests::let_go(Request& request, Holder holder) {
  if (ledger_.let_go(request, holder)) free_blocks(request);
}

void EndedRequests::free_blocks(Request& request) {
  QUIRE_CHECK(request.finished() && request.known, "blocks are given back once");
  QUIRE_CHECK(request.holders == 0, "blocks that somebody keeps are not given back");
  fences_.free(request);
  jobs_.leave(request);
  request.known = false;
  gone_.push_back(&request);
}

void EndedRequests::destroy_gone() {
  std::erase_if(gone_, [this](Request* request) {
    QUIRE_CHECK(!request->known, "what is gone was forgotten");
    // A plan that has not been applied still names it by address.
    if (request->num_in_flight > 0) return false;
    retiring_.push_back(request->id);
    table_.destroy(*request);
    return true;
  });
}

void EndedRequests::destroy(Request& request) {
  QUIRE_CHECK(!request.known && request.num_in_flight == 0, "no plan and no holder needs it");
  std::erase(gone_, &request);
  table_.destroy(request);
}

void EndedRequests::take_retired(std::vector<RequestId>& retired) {
  // The caller's list is used again, so that no step allocates.
  retired.swap(retiring_);
  retiring_.clear();
}

}  // namespace quire
