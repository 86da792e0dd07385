#pragma once
// The results of a step, request by request.
#include <span>
#include <vector>

#include "quire/base/plan.h"
#include "runtime/worker/batch.h"
#include "runtime/worker/worker_base.h"

namespace quire {

struct StepResults {
  // Memory of the views in `requests`. Each list is in the plan's order: entries of all requests that sample, of all rows of prompt runs,
  // or of all requests that pool.
  std::vector<SampleOutcome> outcomes;
  std::vector<std::uint32_t> num_outcomes;  // per request that samples; empty: one each
  std::vector<TokenId> drafts;
  std::vector<std::uint32_t> num_drafts;  // per request that samples; empty: none
  std::vector<PositionLogprobs> prompt_logprobs;
  std::vector<std::vector<float>> pooled;
  std::vector<std::uint16_t> experts;  // for all rows of routed runs
  std::uint32_t experts_per_token = 0;
  std::vector<RequestResult> requests;
  CollectedTransfers transfers;
  ExpertReads expert_reads;
  StepTimings timings;

  // Fills `requests` from the members above.
  void assign_to_requests(const Batch& batch);

 private:
  std::span<const RoutedRun> assign_experts(RequestResult& result, std::span<const RoutedRun> left,
                                            std::span<const std::uint16_t>& rows) const;
};

}  // namespace quire
