#pragma once
// The requests that wait, in the order in which they are taken: first come first served, or by priority. PRIORITY keeps the binary heap
// of CPython's heapq, swap for swap: a session's arrival time changes while it is queued, so the heap's shape is part of the decision.
#include <cstddef>
#include <span>
#include <vector>

#include "core/schedule/request.h"
#include "quire/options.h"

namespace quire {

class RequestQueue {
 public:
  RequestQueue(SchedulingPolicy policy, QueueName name) : policy_(policy), name_(name) {}

  void reserve(std::size_t num_requests);

  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::size_t size() const { return policy_ == SchedulingPolicy::fcfs ? list_.size() : heap_.size(); }
  [[nodiscard]] bool contains(const Request& request) const { return request.queue == name_; }

  // There must be one.
  [[nodiscard]] Request& front() const;
  Request& pop();
  // The request must be in no queue.
  void add(Request& request);
  // At the front, or by priority.
  void prepend(Request& request);
  // Takes all of `other`, one by one, each to the front.
  void prepend_all(RequestQueue& other);
  // Removes those that are in this queue; the others are ignored.
  void remove(std::span<Request* const> requests);

  // Calls visit(Request&) for each, in the order in which they would be taken; it must not change the queue. Copies a heap.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (policy_ == SchedulingPolicy::fcfs) {
      for (Request* r = list_.front(); r != nullptr; r = List::next(*r)) visit(*r);
      return;
    }
    for (Request* r : in_order()) visit(*r);
  }

 private:
  using List = IntrusiveList<Request, &Request::queue_hook>;
  [[nodiscard]] std::vector<Request*> in_order() const;

  SchedulingPolicy policy_;
  QueueName name_;
  List list_;                   // fcfs
  std::vector<Request*> heap_;  // priority
};

}  // namespace quire
