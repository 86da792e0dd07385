#include "core/schedule/request_table.h"

#include "base/check.h"

namespace quire {

Request& RequestTable::create(RequestId id) {
  if (blank_.empty()) blank_.push_back(&storage_.emplace_back());
  Request* request = blank_.back();
  const bool inserted = by_id_.emplace(id, request).second;
  QUIRE_CHECK(inserted, "request ids are never reused");
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
  by_id_.erase(request.id);
  request = Request{};
  blank_.push_back(&request);
}

}  // namespace quire
