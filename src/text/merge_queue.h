#pragma once
// Orders the candidates for merging by rank, then from left to right.
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

// A priority queue. A single heap gets slower as the text gets longer, so in a long text each rank has a bucket. Most candidates have a
// higher rank than the current one, and enter their bucket from left to right. The other candidates go through a heap. The order is exactly
// the order of one heap over (rank, left); the buckets only reduce the cost.
class MergeQueue {
 public:
  struct Candidate {
    std::uint32_t rank = 0;
    std::uint32_t left = 0;  // first byte of the left symbol
  };

  // Empties the queue and prepares it for a text of `num_bytes`.
  void start(std::size_t num_bytes);
  void push(Candidate candidate);
  std::optional<Candidate> pop();

 private:
  [[nodiscard]] static std::uint64_t key_of(Candidate candidate) { return std::uint64_t{candidate.rank} << 32 | candidate.left; }
  // Returns whether the heap's first candidate comes before the next one of the open bucket.
  [[nodiscard]] bool is_heap_next() const;
  // Opens the bucket with the lowest rank. Returns false if there is no bucket.
  bool open_bucket();

  std::int64_t rank_ = 0;               // rank of the open bucket
  std::vector<std::uint32_t> lefts_;    // candidates of the open bucket in ascending order
  std::size_t next_ = 0;                // index into lefts_
  std::vector<std::uint64_t> heap_;     // keys with ranks up to rank_, as a min-heap
  std::vector<std::uint32_t> waiting_;  // ranks of buckets_, as a min-heap
  boost::unordered_flat_map<std::uint32_t, std::vector<std::uint32_t>> buckets_;
};

}  // namespace quire
