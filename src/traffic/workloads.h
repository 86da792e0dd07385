#pragma once
// The requests of a load run: lengths, contents and, in traces, arrivals. Names and meanings follow the datasets of `vllm bench serve`.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/simulation.h"

namespace quire {

// Lengths are in tokens.
struct RandomLengths {
  std::uint32_t input = 1024, output = 128;
  double range_ratio = 0.0;  // lengths are uniform in [length * (1 - range_ratio), length * (1 + range_ratio)]
};

struct PrefixLengths {
  std::uint32_t num_prefixes = 10, prefix = 256, suffix = 256, output = 128;
};

struct TrafficWorkload {
  Workload workload;
  std::vector<std::string> texts{};  // the prompt of each request; empty: the prompts are made from the workload's ids or tokens
};

// Requests without a common prefix. Errors name the flag.
Result<TrafficWorkload> random_workload(const RandomLengths& lengths, std::uint32_t num_prompts, std::uint64_t seed);

// Requests that begin with one of `num_prefixes` prefixes, in random order. Each prefix has the same number of requests, or one more.
Result<TrafficWorkload> prefix_workload(const PrefixLengths& lengths, std::uint32_t num_prompts, std::uint64_t seed);

// The first questions of the conversations of a ShareGPT file, in random order. Without `output_len`, an answer is as long as in the file.
// A token is taken as 4 bytes. As in vLLM, prompts of fewer than 4 or more than 1024 tokens, and requests of more than 2048 tokens in
// total, are left out. Errors name --dataset-path.
Result<TrafficWorkload> sharegpt_workload(const std::string& path, std::optional<std::uint32_t> output_len, std::uint32_t num_prompts,
                                          std::uint64_t seed);

// The first requests of a trace (docs/simulate.md).
Result<TrafficWorkload> trace_workload(const WorkloadOptions& options);

}  // namespace quire
