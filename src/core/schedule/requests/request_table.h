#pragma once
// Owns the requests and finds them by id. Objects are reused; their addresses never change.
#include <algorithm>
#include <cstddef>
#include <deque>
#include <unordered_map>
#include <vector>

#include "core/schedule/requests/request.h"

namespace quire {

// Requests have fixed addresses, because plans, queues and heaps hold pointers to them. A deque does not move its elements when it grows.
// The objects are reused, so that no memory is allocated per request.
class RequestTable {
 public:
  explicit RequestTable(std::size_t expected) { by_id_.reserve(expected); }

  // Returns a blank request that is known. The id must be new.
  Request& create(RequestId id);
  // Returns the request, also if only outstanding plans still refer to it. Returns null if the id is unknown.
  [[nodiscard]] Request* find_any(RequestId id) const;
  // Returns the request, or null if vLLM would not have it any more.
  [[nodiscard]] Request* find(RequestId id) const {
    Request* request = find_any(id);
    return request != nullptr && request->known ? request : nullptr;
  }
  // Resets the request, which frees its memory, including its tokens.
  void destroy(Request& request);

  [[nodiscard]] const std::unordered_map<RequestId, Request*>& all() const { return by_id_; }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [storage, blank, by_id] = self;
    std::vector<RequestId> ids;
    if constexpr (!Archive::kIsReading) {
      for (const auto& [id, request] : by_id) ids.push_back(id);
      std::ranges::sort(ids);
    }
    form(ids);
    for (const RequestId id : ids) {
      if constexpr (Archive::kIsReading) form.expect(!by_id.contains(id), "each request is in the table once");
      if (!form.is_good()) return;
      if constexpr (Archive::kIsReading) self.create(id);
      form(*by_id.at(id));
    }
  }

 private:
  std::deque<Request> storage_;
  std::vector<Request*> blank_;
  std::unordered_map<RequestId, Request*> by_id_;
};

}  // namespace quire
