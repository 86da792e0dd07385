#pragma once
// What the block cache counts.
#include <cstdint>
#include <vector>

namespace quire {

struct PrefixCacheStats {
  bool reset = false;
  std::uint64_t requests = 0, queries = 0, hits = 0;  // tokens
  std::uint64_t preempted_requests = 0, preempted_queries = 0, preempted_hits = 0;
};

// A block's life, reported when it is evicted (sampled blocks only). s.
struct KvEvictionEvent {
  double lifetime = 0.0, idle = 0.0;
  std::vector<double> reuse_gaps;
};

}  // namespace quire
