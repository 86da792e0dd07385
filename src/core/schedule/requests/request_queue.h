#pragma once
// The requests that wait, in the order in which they are taken: first come first served, by priority, or by job. PRIORITY keeps the binary
// heap of CPython's heapq, swap for swap: a session's arrival time changes while it is queued, so the heap's shape is part of the decision.
// CONTINUUM keeps a list, and takes of the requests whose job is pinned, or else of all, the one whose job entered this queue first; one
// without a job has an entry of its own; of equals it takes the first in the list. (Only `waiting` is told of pins.)
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

  // There must be one.
  [[nodiscard]] Request& front() const;
  // Takes out the one that front() gave; under CONTINUUM another may be in front by now, where a pin has ended.
  void take(Request& front);
  // The request must be in no queue.
  void add(Request& request);
  // At the front, or by priority.
  void prepend(Request& request);
  // Takes all of `other`, one by one, each to the front.
  void prepend_all(RequestQueue& other);
  // Removes those that are in this queue; the others are ignored.
  void remove(std::span<Request* const> requests);

  // Appends the first ones, `most` of them or all: in the order in which they would be taken, if nothing changes meanwhile. (CONTINUUM: of
  // those of one job the one that was added first. PRIORITY: as if the heap had been made now.)
  void append_first(std::size_t most, std::vector<Request*>& to) const;

  // Calls visit(Request&) for each, in the order in which they would be taken (CONTINUUM: that of the list); it must not change the queue.
  // Copies a heap.
  template <class Visit>
  void for_each(Visit&& visit) const {
    if (policy_ != SchedulingPolicy::priority) {
      for (Request* r = list_.front(); r != nullptr; r = List::next(*r)) visit(*r);
      return;
    }
    for (Request* r : in_order()) visit(*r);
  }

  // For checkpoints (schedule/checkpoint/state_form.h): without a name for each member it does not compile.
  template <class Form, class Self>
  static void fields(Form& form, Self& self) {
    [[maybe_unused]] auto& [policy, name, list, heap] = self;
    std::vector<Request*> all = heap;
    for (Request* r = list.front(); r != nullptr; r = List::next(*r)) all.push_back(r);
    form(all);
    if constexpr (Form::kReads) form.expect(self.assign(all), "a request is in one queue at most");
  }

 private:
  // As they lie: a heap as it is, not made anew. False: one is in a queue already.
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
