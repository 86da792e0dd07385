#pragma once
// Statistics of the block cache. They are values and belong to the caller that reads the outcome they came with.
#include <cstdint>
#include <vector>

namespace quire {

// Counts since the last read. `requests` counts look-ups. `queries` and `hits` are the tokens that look-ups asked for and found. Requests
// that had been preempted are counted separately, since they find their own blocks.
struct PrefixCacheStats {
  // The cache was reset since the last read: a running rate must start again.
  bool reset = false;
  std::uint64_t requests = 0, queries = 0, hits = 0;  // queries and hits in tokens
  std::uint64_t preempted_requests = 0, preempted_queries = 0, preempted_hits = 0;
};

// The life of a sampled block, reported when it is evicted. Seconds.
struct KvEvictionEvent {
  double lifetime = 0.0, idle = 0.0;
  // Times between consecutive uses, oldest first.
  std::vector<double> reuse_gaps;
};

}  // namespace quire
