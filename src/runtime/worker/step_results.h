#pragma once
// What a step has computed, request by request.
#include <span>
#include <vector>

#include "quire/base/plan.h"
#include "runtime/worker/batch.h"
#include "runtime/worker/worker_base.h"

namespace quire {

struct StepResults {
  // The memory behind the views in `requests`: of all that sample, of all rows of prompt runs, and of all that pool, in the plan's order.
  std::vector<SampleOutcome> outcomes;
  std::vector<std::uint32_t> num_outcomes;  // of each that samples; empty: one
  std::vector<TokenId> drafts;
  std::vector<std::uint32_t> num_drafts;  // of each that samples; empty: none
  std::vector<PositionLogprobs> prompt_logprobs;
  std::vector<std::vector<float>> pooled;
  std::vector<std::uint16_t> experts;  // of all rows of routed runs
  std::uint32_t experts_per_token = 0;
  std::vector<RequestResult> requests;
  CollectedTransfers transfers;
  ExpertReads expert_reads;
  StepTimings timings;

  // Makes `requests` of those above.
  void give_out(const Batch& batch);

 private:
  std::span<const RoutedRun> give_experts(RequestResult& result, std::span<const RoutedRun> left,
                                          std::span<const std::uint16_t>& rows) const;
};

}  // namespace quire
