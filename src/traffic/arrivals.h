#pragma once
// Arrival times of requests, as in `vllm bench serve`.
#include <cstdint>
#include <vector>

namespace quire {

struct ArrivalOptions {
  double rate_per_s = 0.0;  // above 0; infinity: all requests arrive at time 0
  // Shape of the gamma distribution of the gaps: 1 is a Poisson process, less comes in bursts, infinity gives equal gaps.
  double burstiness = 1.0;
  std::uint64_t seed = 0;
};

// Returns `count` times in seconds, in ascending order. They are scaled so that the last one is count / rate_per_s, as vLLM does, and thus
// the mean rate does not depend on the seed.
std::vector<double> arrival_times(std::uint32_t count, const ArrivalOptions& options);

}  // namespace quire
