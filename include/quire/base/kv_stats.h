#pragma once
// What the block cache counts.
// Values, taken by whoever reads the outcome they came with.
#include <cstdint>
#include <vector>

namespace quire {

// Counted since it was read last. `requests` counts look-ups; queries and hits are the tokens that were asked for and found by them. Those
// of requests that had been preempted are counted apart, since they find their own blocks.
struct PrefixCacheStats {
  // The cache was reset in between: whoever keeps a running rate begins anew.
  bool reset = false;
  std::uint64_t requests = 0, queries = 0, hits = 0;  // tokens
  std::uint64_t preempted_requests = 0, preempted_queries = 0, preempted_hits = 0;
};

// A block's life, reported when it is evicted (sampled blocks only). s.
struct KvEvictionEvent {
  double lifetime = 0.0, idle = 0.0;
  // Between two uses that follow each other, oldest first, s.
  std::vector<double> reuse_gaps;
};

}  // namespace quire
