#pragma once
// The order in which neighbours merge: by rank, then from left to right.
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

// A heap of all candidates gets slower the longer the text is. In a long text each rank has a bucket instead: most candidates have a higher
// rank than the one at hand, and come into their bucket from left to right. The others go through a heap.
// The order is exactly that of one heap over (rank, left); the buckets only make it cheaper for long texts.
class MergeQueue {
 public:
  struct Candidate {
    std::uint32_t rank = 0;
    std::uint32_t left = 0;  // where the left one of the two begins
  };

  // Empties the queue, for a text of so many bytes.
  void start(std::size_t num_bytes);
  void push(Candidate candidate);
  std::optional<Candidate> pop();

 private:
  [[nodiscard]] static std::uint64_t key_of(Candidate candidate) { return std::uint64_t{candidate.rank} << 32 | candidate.left; }
  // Whether the heap's first goes before the open bucket's next.
  [[nodiscard]] bool is_heap_next() const;
  // The bucket of the lowest rank; false: there is none.
  bool open_bucket();

  std::int64_t rank_ = 0;               // of the bucket that is open
  std::vector<std::uint32_t> lefts_;    // in it, sorted
  std::size_t next_ = 0;                // of lefts_
  std::vector<std::uint64_t> heap_;     // keys of ranks up to rank_, the lowest on top
  std::vector<std::uint32_t> waiting_;  // ranks of buckets_ as a heap, the lowest on top
  boost::unordered_flat_map<std::uint32_t, std::vector<std::uint32_t>> buckets_;
};

}  // namespace quire
