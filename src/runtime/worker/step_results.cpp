#include "runtime/worker/step_results.h"

namespace quire {

// Cuts the flat lists into one record per request. They were filled in the plan's order, so each record takes the next part of each list.
void StepResults::give_out(std::span<const ScheduledRequest> scheduled, std::span<const PromptRun> prompt_runs) {
  requests.clear();
  std::span<SampleOutcome> samples(outcomes);
  std::span<const std::uint32_t> counts(num_outcomes);
  std::span<const TokenId> proposed(drafts);
  std::span<const std::uint32_t> draft_counts(num_drafts);
  std::span<PositionLogprobs> rows(prompt_logprobs);
  std::span<std::vector<float>> vectors(pooled);
  for (const ScheduledRequest& request : scheduled) {
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
    if (!result.samples.empty() || !result.prompt_logprobs.empty() || result.pooled != nullptr) requests.push_back(result);
  }
}

}  // namespace quire
