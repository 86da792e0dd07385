#pragma once
// Owns the requests and finds them by id. Objects are reused; their addresses never change.
#include <algorithm>
#include <cstddef>
#include <deque>
#include <unordered_map>
#include <vector>

#include "core/schedule/requests/request.h"

namespace quire {

// Requests have fixed addresses because plans, queues and heaps hold pointers to them; a deque moves nothing when it grows. Their objects
// are used again, so that a busy server does not allocate one per request.
class RequestTable {
 public:
  explicit RequestTable(std::size_t expected) { by_id_.reserve(expected); }

  // A blank request, known; the id must be new.
  Request& create(RequestId id);
  // Null when unknown; also finds requests that only outstanding plans still name.
  [[nodiscard]] Request* find_any(RequestId id) const;
  // Null when vLLM would not have it any more.
  [[nodiscard]] Request* find(RequestId id) const {
    Request* request = find_any(id);
    return request != nullptr && request->known ? request : nullptr;
  }
  // Its memory, tokens included, is given back.
  void destroy(Request& request);

  [[nodiscard]] const std::unordered_map<RequestId, Request*>& all() const { return by_id_; }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [storage, blank, by_id] = self;
    std::vector<RequestId> ids;
    if constexpr (!Form::kReads) {
      for (const auto& [id, request] : by_id) ids.push_back(id);
      std::ranges::sort(ids);
    }
    form(ids);
    for (const RequestId id : ids) {
      if constexpr (Form::kReads) form.expect(!by_id.contains(id), "each request is there once");
      if (!form.is_good()) return;
      if constexpr (Form::kReads) self.create(id);
      form(*by_id.at(id));
    }
  }

 private:
  std::deque<Request> storage_;
  std::vector<Request*> blank_;
  std::unordered_map<RequestId, Request*> by_id_;
};

}  // namespace quire
