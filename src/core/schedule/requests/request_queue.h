#pragma once
// The waiting requests in the order in which they are taken: first come first served, by priority, or by job. PRIORITY keeps the binary
// heap of CPython's heapq, swap for swap: a session's arrival time changes while it is queued, so the heap's shape affects decisions.
// CONTINUUM keeps a list. It takes the request with the job that entered this queue first; requests with a pinned job come before all
// others. A request without a job has a separate time of entry. Among equal requests it takes the first in the list. (Only `waiting` knows
// pins.)
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

  // Requires that the queue is not empty.
  [[nodiscard]] Request& front() const;
  // Takes out one request. This costs least for the request that front() returned.
  void take(Request& request);
  // The request must be in no queue.
  void add(Request& request);
  // Adds the request at the front, or by priority.
  void prepend(Request& request);
  // Takes all requests of `other`, one by one, each to the front.
  void prepend_all(RequestQueue& other);
  // Removes the requests that are in this queue and ignores the others.
  void remove(std::span<Request* const> requests);

  // Appends the first `most` requests, or all, in the order in which they would be taken if nothing changes meanwhile. (CONTINUUM: among
  // requests of one job, the one that was added first. PRIORITY: as if the heap had been made now.)
  void append_first(std::size_t most, std::vector<Request*>& to) const;

  // Calls visit(Request&) for each request, in the order in which they would be taken (CONTINUUM: in the order of the list). `visit` must
  // not change the queue. Copies the heap under PRIORITY.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (policy_ != SchedulingPolicy::priority) {
      for (Request* r = list_.front(); r != nullptr; r = List::next(*r)) visit(*r);
      return;
    }
    for (Request* r : in_order()) visit(*r);
  }

  // Lists the members for checkpoints (schedule/checkpoint/state_archive.h). The binding must name every member to compile.
  template <class Archive, class Self>
  static void fields(Archive& form, Self& self) {
    [[maybe_unused]] auto& [policy, name, list, heap] = self;
    std::vector<Request*> all = heap;
    for (Request* r = list.front(); r != nullptr; r = List::next(*r)) all.push_back(r);
    form(all);
    if constexpr (Archive::kIsReading) form.expect(self.assign(all), "a request is in at most one queue");
  }

 private:
  // Adds the requests in the given order; a heap is not rebuilt. False: a request is in a queue already.
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
