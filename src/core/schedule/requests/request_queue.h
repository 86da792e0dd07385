#pragma once
// The waiting requests in the order in which they are taken:
// - FCFS: first come, first served.
// - PRIORITY: by priority, in a binary heap with exactly the swaps of CPython's heapq. A session's arrival time changes while it is queued,
//   so the shape of the heap affects decisions.
// - CONTINUUM: first the requests with a pinned job (only in `waiting`), then by the time at which the job entered this queue. A request
//   without a job has its own time of entry. Among equal requests, the first in the list is taken.
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/schedule/requests/request.h"
#include "quire/base/options.h"

namespace quire {

class RequestQueue {
 public:
  RequestQueue(SchedulingPolicy policy, QueueName name) : policy_(policy), name_(name) {}

  void reserve(std::size_t num_requests);

  [[nodiscard]] bool empty() const { return size() == 0; }
  [[nodiscard]] std::size_t size() const { return policy_ == SchedulingPolicy::priority ? heap_.size() : list_.size(); }
  [[nodiscard]] bool contains(const Request& request) const { return request.queue == name_; }

  // Returns the next request. The queue must not be empty.
  [[nodiscard]] Request& front() const;
  // Removes a request. Cheapest for the request that front() returned.
  void take(Request& request);
  // Adds a request, which must be in no queue.
  void add(Request& request);
  // Adds the request at the front; under PRIORITY, according to its priority.
  void prepend(Request& request);
  // Moves all requests of `other` to this queue, one by one, each with prepend().
  void prepend_all(RequestQueue& other);
  // Removes the given requests that are in this queue.
  void remove(std::span<Request* const> requests);

  // Appends the first `most` requests to `to`, or all if fewer, in the order in which they would be taken if nothing changed meanwhile.
  // CONTINUUM: requests of one job are in the order of their ids. PRIORITY: equal requests are ordered as if the heap were built now.
  void append_first(std::size_t most, std::vector<Request*>& to) const;

  // Calls visit(Request&) for each request, in the order in which they would be taken (under CONTINUUM: in the order of the list). `visit`
  // must not change the queue. Copies the heap under PRIORITY.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (policy_ != SchedulingPolicy::priority) {
      for (Request* r = list_.front(); r != nullptr; r = List::next(*r)) visit(*r);
      return;
    }
    for (Request* r : in_order()) visit(*r);
  }

  // Checkpoint fields (schedule/checkpoint/state_archive.h). A new member does not compile until the structured binding names it.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [policy, name, list, heap] = self;
    std::vector<Request*> all = heap;
    for (Request* r = list.front(); r != nullptr; r = List::next(*r)) all.push_back(r);
    form(all);
    if constexpr (Archive::kIsReading) form.expect(self.assign(all), "a request is in at most one queue");
  }

 private:
  // Adds the requests in the given order, without rebuilding the heap. Returns false if a request is already in a queue.
  [[nodiscard]] bool assign(std::span<Request* const> all);

  using List = IntrusiveList<Request, &Request::queue_hook>;
  [[nodiscard]] std::vector<Request*> in_order() const;
  [[nodiscard]] Request& first_by_job() const;
  [[nodiscard]] std::pair<bool, double> job_key(const Request& request) const;

  SchedulingPolicy policy_;
  QueueName name_;
  List list_;                   // fcfs, continuum
  std::vector<Request*> heap_;  // priority
};

}  // namespace quire
