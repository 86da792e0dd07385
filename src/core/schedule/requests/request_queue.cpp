// Implements the order of waiting requests under each policy. Called by the parts of the scheduler on the core's thread. A request is in at
// most one queue and records it (Request::queue), so contains() is O(1). With priorities, the heap must do exactly the swaps of CPython's
// heapq: keys can change while requests are queued, and the order then depends on the shape of the heap.
#include "core/schedule/requests/request_queue.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

using Heap = std::vector<Request*>;

// heapq._siftdown: moves the request at `place` up, at most to `top`.
void rise(Heap& heap, std::size_t top, std::size_t place) {
  QUIRE_CHECK(place < heap.size() && top <= place, "the index is in the heap, at or after the top");
  Request* const risen = heap[place];
  while (place > top) {
    const std::size_t parent = (place - 1) / 2;
    if (!precedes_in_queue(*risen, *heap[parent])) break;
    heap[place] = heap[parent];
    place = parent;
  }
  heap[place] = risen;
}

// heapq._siftup: moves the request at `place` down to a leaf along the smaller children, and then up again.
void sink(Heap& heap, std::size_t place) {
  QUIRE_CHECK(place < heap.size(), "the index is in the heap");
  const std::size_t top = place;
  Request* const sunk = heap[place];
  for (std::size_t child = 2 * place + 1; child < heap.size(); child = 2 * place + 1) {
    const std::size_t right = child + 1;
    if (right < heap.size() && !precedes_in_queue(*heap[child], *heap[right])) child = right;
    heap[place] = heap[child];
    place = child;
  }
  heap[place] = sunk;
  rise(heap, top, place);
}

void heapify(Heap& heap) {
  for (std::size_t i = heap.size() / 2; i > 0; --i) sink(heap, i - 1);
}

Request* pop_smallest(Heap& heap) {
  QUIRE_CHECK(!heap.empty(), "there is a waiting request");
  Request* last = heap.back();
  heap.pop_back();
  if (!heap.empty()) {
    std::swap(last, heap.front());
    sink(heap, 0);
  }
  return last;
}

}  // namespace

void RequestQueue::reserve(std::size_t num_requests) {
  if (policy_ == SchedulingPolicy::priority) heap_.reserve(num_requests);
}

Request& RequestQueue::front() const {
  QUIRE_CHECK(!empty(), "there is a waiting request");
  switch (policy_) {
    case SchedulingPolicy::fcfs:
      break;
    case SchedulingPolicy::priority:
      return *heap_.front();
    case SchedulingPolicy::continuum:
      return first_by_job();
  }
  return *list_.front();
}

std::pair<bool, double> RequestQueue::job_key(const Request& request) const {
  const bool pinned = name_ == QueueName::waiting && request.job != nullptr && request.job->is_pinned;
  return {!pinned, request.job != nullptr ? request.job->first_entry[name_ == QueueName::waiting ? 0 : 1] : request.entry_time};
}

Request& RequestQueue::first_by_job() const {
  Request* first = list_.front();
  for (Request* r = List::next(*first); r != nullptr; r = List::next(*r))
    if (job_key(*r) < job_key(*first)) first = r;
  return *first;
}

void RequestQueue::append_first(std::size_t most, std::vector<Request*>& to) const {
  const bool is_sorted = policy_ == SchedulingPolicy::fcfs;
  const std::size_t num_before = to.size();
  for (Request* r = list_.front(); r != nullptr && (!is_sorted || to.size() - num_before < most); r = List::next(*r)) to.push_back(r);
  to.insert(to.end(), heap_.begin(), heap_.end());
  const std::size_t num_added = std::min(most, to.size() - num_before);
  const auto first = to.begin() + static_cast<std::ptrdiff_t>(num_before), last = first + static_cast<std::ptrdiff_t>(num_added);
  if (policy_ == SchedulingPolicy::priority)
    std::partial_sort(first, last, to.end(), [](const Request* a, const Request* b) { return precedes_in_queue(*a, *b); });
  else if (policy_ == SchedulingPolicy::continuum)
    std::partial_sort(first, last, to.end(),
                      [this](const Request* a, const Request* b) { return std::pair(job_key(*a), a->id) < std::pair(job_key(*b), b->id); });
  to.erase(last, to.end());
}

void RequestQueue::take(Request& request) {
  QUIRE_CHECK(contains(request), "a request is in the queue that it records");
  request.queue = QueueName::none;
  if (policy_ != SchedulingPolicy::priority) {
    list_.remove(request);
  } else if (heap_.front() == &request) {
    pop_smallest(heap_);
  } else {
    std::erase(heap_, &request);
    heapify(heap_);
  }
}

void RequestQueue::add(Request& request) {
  QUIRE_CHECK(request.queue == QueueName::none, "a request is in at most one queue");
  request.queue = name_;
  if (policy_ == SchedulingPolicy::priority) {
    heap_.push_back(&request);
    rise(heap_, 0, heap_.size() - 1);
  } else {
    list_.push_back(request);
  }
}

void RequestQueue::prepend(Request& request) {
  if (policy_ == SchedulingPolicy::priority) {
    add(request);
    return;
  }
  QUIRE_CHECK(request.queue == QueueName::none, "a request is in at most one queue");
  request.queue = name_;
  list_.push_front(request);
}

void RequestQueue::prepend_all(RequestQueue& other) {
  QUIRE_CHECK(&other != this, "a queue is not merged with itself");
  while (!other.empty()) {
    Request& next = other.policy_ == SchedulingPolicy::priority ? *other.heap_.front() : *other.list_.front();
    other.take(next);
    prepend(next);
  }
}

void RequestQueue::remove(std::span<Request* const> requests) {
  for (Request* request : requests) {
    if (contains(*request)) {
      request->queue = QueueName::none;
      if (policy_ != SchedulingPolicy::priority) list_.remove(*request);
    }
  }
  if (policy_ == SchedulingPolicy::priority) {
    // Removes all requests and rebuilds the heap once, as vLLM does. This can change the order of equal requests.
    std::erase_if(heap_, [this](const Request* request) { return !contains(*request); });
    heapify(heap_);
  }
}

bool RequestQueue::assign(std::span<Request* const> all) {
  for (Request* request : all) {
    if (request->queue != QueueName::none) return false;
    request->queue = name_;
    if (policy_ == SchedulingPolicy::priority)
      heap_.push_back(request);
    else
      list_.push_back(*request);
  }
  return true;
}

std::vector<Request*> RequestQueue::in_order() const {
  Heap heap = heap_;
  std::vector<Request*> order;
  order.reserve(heap.size());
  while (!heap.empty()) order.push_back(pop_smallest(heap));
  return order;
}

}  // namespace quire
