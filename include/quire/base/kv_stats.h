#pragma once
// Statistics of the prefix cache, as values.
#include <cstdint>
#include <vector>

namespace quire {

// Counts since the last read. `requests` is the number of look-ups; `queries` and `hits` are the numbers of tokens that were looked up and
// found. Requests that had been preempted are counted separately, because they find their own blocks.
struct PrefixCacheStats {
  // True if the cache was reset since the last read; a running hit rate must then start again.
  bool reset = false;
  std::uint64_t requests = 0, queries = 0, hits = 0;  // queries and hits in tokens
  std::uint64_t preempted_requests = 0, preempted_queries = 0, preempted_hits = 0;
};

// The residency of a sampled block, reported when the block is evicted. Times are in seconds.
struct KvEvictionEvent {
  double lifetime = 0.0, idle = 0.0;
  // Times between consecutive uses, oldest first.
  std::vector<double> reuse_gaps;
};

}  // namespace quire
