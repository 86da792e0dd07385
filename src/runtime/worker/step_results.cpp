#include "runtime/worker/step_results.h"

namespace quire {

// Splits the flat lists into one record per request. The lists are in the plan's order, so each record takes the next part of each list.
void StepResults::assign_to_requests(const Batch& batch) {
  requests.clear();
  std::span<const PromptRun> prompt_runs = batch.prompt_runs();
  std::span<const RoutedRun> routed_runs = batch.routed_runs();
  std::span<const std::uint16_t> routed(experts);
  std::span<SampleOutcome> samples(outcomes);
  std::span<const std::uint32_t> counts(num_outcomes);
  std::span<const TokenId> proposed(drafts);
  std::span<const std::uint32_t> draft_counts(num_drafts);
  std::span<PositionLogprobs> rows(prompt_logprobs);
  std::span<std::vector<float>> vectors(pooled);
  for (const ScheduledRequest& request : batch.scheduled()) {
    RequestResult result{.id = request.id, .num_verified = static_cast<std::uint32_t>(request.drafts.size())};
    if (!prompt_runs.empty() && prompt_runs.front().id == request.id) {
      result.prompt_logprobs = rows.first(prompt_runs.front().num_rows);
      result.first_prompt_token = prompt_runs.front().first_token;
      rows = rows.subspan(result.prompt_logprobs.size());
      prompt_runs = prompt_runs.subspan(1);
    }
    if (request.samples) {
      result.samples = samples.first(counts.empty() ? 1 : counts.front());
      samples = samples.subspan(result.samples.size());
      if (!counts.empty()) counts = counts.subspan(1);
      result.drafts = proposed.first(draft_counts.empty() ? 0 : draft_counts.front());
      proposed = proposed.subspan(result.drafts.size());
      if (!draft_counts.empty()) draft_counts = draft_counts.subspan(1);
    }
    if (request.pools) {
      result.pooled = &vectors.front();
      vectors = vectors.subspan(1);
    }
    routed_runs = assign_experts(result, routed_runs, routed);
    const bool says_nothing =
        result.samples.empty() && result.prompt_logprobs.empty() && result.routed.experts.empty() && result.pooled == nullptr;
    if (!says_nothing) requests.push_back(result);
  }
}

// Assigns the experts of the request's run to `result`. Returns the remaining runs, and advances `rows` past this run. Rows of rejected
// draft tokens are left out, because the request does not have these tokens.
std::span<const RoutedRun> StepResults::assign_experts(RequestResult& result, std::span<const RoutedRun> left,
                                                       std::span<const std::uint16_t>& rows) const {
  if (left.empty() || left.front().id != result.id) return left;
  const RoutedRun& run = left.front();
  const std::uint32_t num_wrong = result.samples.empty() ? 0 : result.num_verified + 1 - static_cast<std::uint32_t>(result.samples.size());
  result.routed = {run.first_token, experts_per_token, rows.first(std::size_t{run.num_rows - num_wrong} * experts_per_token)};
  rows = rows.subspan(std::size_t{run.num_rows} * experts_per_token);
  return left.subspan(1);
}

}  // namespace quire
