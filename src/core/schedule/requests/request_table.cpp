#include "core/schedule/requests/request_table.h"

#include "base/check.h"

namespace quire {

Request& RequestTable::create(RequestId id) {
  if (blank_.empty()) blank_.push_back(&storage_.emplace_back());
  Request* request = blank_.back();
  const bool inserted = by_id_.emplace(id, request).second;
  QUIRE_CHECK(inserted, "request ids are unique");
  QUIRE_CHECK(!request->known && request->tokens.empty() && request->queue == QueueName::none, "a new request is blank");
  blank_.pop_back();
  request->id = id;
  request->known = true;
  return *request;
}

Request* RequestTable::find_any(RequestId id) const {
  const auto found = by_id_.find(id);
  return found != by_id_.end() ? found->second : nullptr;
}

void RequestTable::destroy(Request& request) {
  const bool erased = by_id_.erase(request.id) == 1;
  QUIRE_CHECK(erased && request.queue == QueueName::none, "a destroyed request was in the table and is in no queue");
  QUIRE_CHECK(request.in_flight.num_plans == 0 && request.slot == kNoSlot, "no plan names a destroyed request");
  request = Request{};
  blank_.push_back(&request);
}

}  // namespace quire
