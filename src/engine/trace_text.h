#pragma once
// A traced step as lines of JSON; docs/trace.md has the schema. The names are those of the fork hungchun0201/vllm-pace (Apache-2.0) of
// vLLM 0.19; what we add lies under "quire".
#include <string>

#include "engine/trace_step.h"
#include "quire/options.h"

namespace quire {

// What is the same in every step.
struct TraceFacts {
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  std::uint32_t max_num_seqs = 0, max_num_batched_tokens = 0, num_groups = 1;
};

// Appends the lines for PATH.steps.jsonl and PATH.requests.jsonl.
void append_trace(const TraceStep& step, const TraceFacts& facts, std::string& steps, std::string& requests);

}  // namespace quire
