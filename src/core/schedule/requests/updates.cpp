#include "core/schedule/requests/updates.h"

#include "base/check.h"

namespace quire {

void Updates::begin(std::size_t num_tokens) {
  updates_.clear();
  tokens_.clear();
  tokens_.reserve(num_tokens);
  num_events_ = 0;
}

RequestUpdate& Updates::report(Request& request, std::uint32_t result_index, std::span<const TokenId> tokens) {
  QUIRE_CHECK(num_events_ <= events_.size(), "event lists are reused in order");
  RequestUpdate& update = updates_.emplace_back();
  update.id = request.id;
  update.client_index = request.client_index;
  update.result_index = result_index;
  update.tokens = tokens;
  update.status = request.status;
  update.stop_token = request.stop_token;
  update.num_cached_tokens = request.num_cached_tokens;
  update.num_external_computed_tokens = request.num_external_computed_tokens;
  if (!request.events.empty()) {
    if (num_events_ == events_.size()) events_.emplace_back();
    std::vector<RequestEvent>& updated = events_[num_events_++];
    updated.swap(request.events);
    request.events.clear();
    update.events = updated;
  }
  return update;
}

}  // namespace quire
