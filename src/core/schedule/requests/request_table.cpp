#include "core/schedule/requests/request_table.h"

#include "base/check.h"

namespace quire {

Request& RequestTable::create(RequestId id) {
  if (blank_.empty()) blank_.push_back(&storage_.emplace_back());
  Request* request = blank_.back();
  const bool inserted = by_id_.emplace(id, request).second;
  QUIRE_CHECK(inserted, "request ids are never reused");
  QUIRE_CHECK(!request->known && request->tokens.empty() && request->queue == QueueName::none, "a blank request");
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
  QUIRE_CHECK(erased && request.queue == QueueName::none, "destroyed once, and out of the queues");
  QUIRE_CHECK(request.num_in_flight == 0 && request.slot == kNoSlot, "no plan names what is destroyed");
  request = Request{};
  blank_.push_back(&request);
}

}  // namespace quire
