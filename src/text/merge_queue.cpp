#include "text/merge_queue.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace quire {
namespace {

constexpr std::size_t kLongText = 256;  // in bytes; for shorter texts the heap is faster

template <class T>
void push_lowest_first(std::vector<T>& heap, T value) {
  heap.push_back(value);
  std::ranges::push_heap(heap, std::greater());
}

template <class T>
T pop_lowest(std::vector<T>& heap) {
  std::ranges::pop_heap(heap, std::greater());
  const T value = heap.back();
  heap.pop_back();
  return value;
}

}  // namespace

void MergeQueue::start(std::size_t num_bytes) {
  rank_ = num_bytes < kLongText ? std::numeric_limits<std::int64_t>::max() : -1;
  lefts_.clear();
  next_ = 0;
  heap_.clear();
}

void MergeQueue::push(Candidate candidate) {
  if (candidate.rank <= rank_) return push_lowest_first(heap_, key_of(candidate));
  std::vector<std::uint32_t>& bucket = buckets_[candidate.rank];
  if (bucket.empty()) push_lowest_first(waiting_, candidate.rank);
  bucket.push_back(candidate.left);
}

bool MergeQueue::is_heap_next() const {
  if (heap_.empty() || next_ == lefts_.size()) return !heap_.empty();
  return heap_.front() < key_of({static_cast<std::uint32_t>(rank_), lefts_[next_]});
}

bool MergeQueue::open_bucket() {
  if (waiting_.empty()) return false;
  const auto bucket = buckets_.find(pop_lowest(waiting_));
  rank_ = bucket->first;
  lefts_ = std::move(bucket->second);
  buckets_.erase(bucket);
  if (!std::ranges::is_sorted(lefts_)) std::ranges::sort(lefts_);
  next_ = 0;
  return true;
}

std::optional<MergeQueue::Candidate> MergeQueue::pop() {
  if (is_heap_next()) {
    const std::uint64_t key = pop_lowest(heap_);
    return Candidate{static_cast<std::uint32_t>(key >> 32), static_cast<std::uint32_t>(key)};
  }
  if (next_ == lefts_.size() && !open_bucket()) return std::nullopt;
  return Candidate{static_cast<std::uint32_t>(rank_), lefts_[next_++]};
}

}  // namespace quire
