#pragma once
// Writes a traced step as lines of JSON; docs/trace.md has the schema. The field names are as in hungchun0201/vllm-pace (Apache-2.0), a
// fork of vLLM 0.19. quire's additional fields are under "quire".
#include <string>
#include <vector>

#include "engine/trace/trace_step.h"
#include "quire/base/options.h"

namespace quire {

// Properties of the engine that are the same in every step.
struct TraceFacts {
  SchedulingPolicy policy = SchedulingPolicy::fcfs;
  std::uint32_t max_num_seqs = 0, max_num_batched_tokens = 0;
  std::string connector{};  // name of the connector; empty: none
  bool counts_common_prefix = false;
};

class TraceText {
 public:
  explicit TraceText(const TraceFacts& facts) : facts_(facts) {}

  // Appends the lines for PATH.steps.jsonl and PATH.requests.jsonl. Must be called for each recorded step, in order.
  void append(const TraceStep& step, std::string& steps, std::string& requests);

 private:
  // The facts about the request in a slot that earlier steps contained.
  struct Known {
    TracedFacts facts;
    std::vector<TokenId> output_tail{};
  };
  void learn(const TraceStep& step);
  void append_snapshot(const TraceStep& step, std::string& out) const;
  static void append_request(const TracedRequest& request, const Known& known, const TraceStep& step, std::string& out);

  const TraceFacts facts_;
  std::vector<Known> known_;  // by slot
};

}  // namespace quire
