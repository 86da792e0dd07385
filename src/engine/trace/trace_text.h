#pragma once
// A traced step as lines of JSON; docs/trace.md has the schema. The names are those of the fork hungchun0201/vllm-pace (Apache-2.0) of
// vLLM 0.19; what we add lies under "quire".
#include <string>
#include <vector>

#include "engine/trace/trace_step.h"
#include "quire/base/options.h"

namespace quire {

// What is the same in every step.
struct TraceFacts {
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  std::uint32_t max_num_seqs = 0, max_num_batched_tokens = 0;
  std::string connector{};  // who loads and stores; empty: nobody
  bool counts_common_prefix = false;
};

class TraceText {
 public:
  explicit TraceText(const TraceFacts& facts) : facts_(facts) {}

  // Appends the lines for PATH.steps.jsonl and PATH.requests.jsonl. Each step that was followed, in order.
  void append(const TraceStep& step, std::string& steps, std::string& requests);

 private:
  // What earlier steps told of the request at a place.
  struct Known {
    TracedFacts facts;
    std::vector<TokenId> output_tail{};
  };
  void learn(const TraceStep& step);
  void append_snapshot(const TraceStep& step, std::string& out) const;
  static void append_request(const TracedRequest& request, const Known& known, const TraceStep& step, std::string& out);

  const TraceFacts facts_;
  std::vector<Known> known_;  // by place
};

}  // namespace quire
