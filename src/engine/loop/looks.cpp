// Implements the read-only queries of the step loop: explanations, the watch frame, the hit-rate curve and probes. Called on the engine
// thread between two steps. A query may not change a scheduling decision.
#include <algorithm>
#include <utility>

#include "engine/loop/step_loop.h"

namespace quire {

Result<std::vector<RequestExplanation>> StepLoop::explain(std::string_view name) const {
  if (options_.explainer == nullptr)
    return fail(ErrorCode::unsupported, "explained_requests", "is 0, so no request is recorded",
                "start the server with --explained-requests");
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

Result<EngineHitRateCurve> StepLoop::cache_curve(const std::optional<std::string>& tenant) const {
  if (options_.curve.sampler == nullptr) return std::unexpected(options_.curve.refusal);
  EngineHitRateCurve answer{.curve = options_.curve.sampler->curve(tenant), .costs = options_.curve.costs};
  answer.costs.prefill_tokens_per_s = compute_tokens_per_s();
  return answer;
}

// Reduces `found` to the leading blocks that requests of the tenant have computed or found before.
Result<void> StepLoop::limit_to_tenant(const Submission& submission, CacheProbe& found) const {
  if (options_.explainer == nullptr)
    return fail(ErrorCode::unsupported, "explained_requests", "is 0, so the owners of cached blocks are not recorded",
                "start the server with --explained-requests or --tenant-secret");
  const TenantPrefix own = options_.explainer->tenant_prefix(submission.request.tags.tenant, submission.names());
  std::uint32_t num_left = own.num_known_tokens - std::min(own.num_known_tokens, found.num_local_tokens);
  if (own.num_cached_tokens < found.num_local_tokens) {
    found.num_local_tokens = own.num_cached_tokens;
    num_left = 0;
  }
  for (TierMatch& match : found.external) {
    match.num_tokens = std::min(match.num_tokens, num_left);
    num_left -= match.num_tokens;
  }
  std::erase_if(found.external, [](const TierMatch& match) { return match.num_tokens == 0; });
  return {};
}

Result<EngineProbe> StepLoop::probe(const Submission& submission) const {
  NewRequest request;
  request.prompt = submission.request.prompt;
  request.max_tokens = 1;
  request.pooling = submission.request.pooling;
  request.cache_salt = submission.request.cache_salt;
  request.skip_reading_prefix_cache = request.loads_nothing = needs_all_rows(submission.request.sampling);
  request.block_hashes = submission.names();
  std::vector<MultimodalFeature> features;
  features.reserve(submission.request.pictures.size());
  for (const PromptImage& picture : submission.request.pictures) features.push_back({picture.identifier, picture.position});
  request.multimodal = features;
  set_lora_fields(submission.adapter.get(), request);
  auto found = core_->probe(request);
  if (!found) return std::unexpected(std::move(found.error()));
  EngineProbe probe;
  probe.cache = *std::move(found);
  if (submission.request.probes_tenant_blocks)
    if (auto hidden = limit_to_tenant(submission, probe.cache); !hidden) return std::unexpected(std::move(hidden.error()));
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
