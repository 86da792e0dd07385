// What is asked of the loop and changes nothing: why requests are where they are, what a page shows, what a request or another size of the
// cache would find. Called by the engine between two steps, on its thread. None of it may move a decision.
#include <algorithm>
#include <utility>

#include "engine/loop/step_loop.h"

namespace quire {

Result<std::vector<RequestExplanation>> StepLoop::explain(std::string_view name) const {
  if (options_.explainer == nullptr)
    return fail(ErrorCode::unsupported, "explained_requests", "is 0: nothing is remembered of requests", "serve with --explained-requests");
  std::vector<RequestExplanation> explanations;
  for (const RequestId id : options_.explainer->find(name))
    if (auto known = options_.explainer->explain(id, clock_->now_s())) explanations.push_back(*std::move(known));
  return explanations;
}

void StepLoop::watch(WatchFrame& frame) {
  frame.now_s = clock_->now_s();
  watched_s_ = frame.now_s;
  core_->watch(frame);
  if (options_.explainer == nullptr) return;
  for (WatchedRequest& request : frame.requests)
    if (request.state < WatchedState::prefill) request.waits_for = options_.explainer->waits_for(request.id);
}

Result<EngineCurve> StepLoop::cache_curve(const std::optional<std::string>& tenant) const {
  if (options_.curve.sampler == nullptr) return std::unexpected(options_.curve.refusal);
  EngineCurve answer{.curve = options_.curve.sampler->curve(tenant), .costs = options_.curve.costs};
  answer.costs.prefill_tokens_per_s = compute_tokens_per_s();
  return answer;
}

Result<EngineProbe> StepLoop::probe(const Submission& submission) const {
  NewRequest request;
  request.prompt = submission.request.prompt;
  request.max_tokens = 1;
  request.pooling = submission.request.pooling;
  request.cache_salt = submission.request.cache_salt;
  request.skip_reading_prefix_cache = request.loads_nothing = needs_rows(submission.request.sampling);
  request.block_hashes = submission.names();
  std::vector<MultimodalFeature> features;
  features.reserve(submission.request.pictures.size());
  for (const PromptPicture& picture : submission.request.pictures) features.push_back({picture.identifier, picture.position});
  request.multimodal = features;
  name_adapter(submission.adapter.get(), request);
  auto found = core_->probe(request);
  if (!found) return std::unexpected(std::move(found.error()));
  EngineProbe probe;
  probe.cache = *std::move(found);
  const double rate = compute_tokens_per_s();
  if (rate <= 0.0) return probe;
  std::uint64_t num_before = 0;
  core_->visit([&](QueueKind queue, const RequestView& other) {
    const auto num_known = std::min<std::uint64_t>(other.num_prompt_tokens, other.tokens.size());
    if (queue != QueueKind::pinned) num_before += num_known - std::min<std::uint64_t>(num_known, other.num_computed_tokens);
  });
  probe.wait_s = static_cast<double>(num_before) / rate;
  probe.compute_s = static_cast<double>(probe.cache.num_missed_tokens()) / rate;
  return probe;
}

}  // namespace quire
