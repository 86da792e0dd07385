#include "core/schedule/requests/encoder_inputs.h"

#include <algorithm>

#include "base/check.h"
#include "core/schedule/requests/requests.h"

namespace quire {

EncoderGrant EncoderScheduler::schedule(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) {
  QUIRE_CHECK(num_computed_tokens >= 0 && num_new_tokens > 0, "a chunk has tokens");
  to_compute_.clear();
  to_load_.clear();
  identifiers_.clear();
  Step step{.num_computed_tokens = num_computed_tokens,
            .num_new_tokens = num_new_tokens,
            .shift = context_.config.speculation.use_eagle ? 1 : 0,
            .compute_budget = budget_};
  for (std::uint32_t input = 0; input < request.features.size(); ++input)
    if (!take(request, input, step)) break;
  QUIRE_CHECK(step.num_new_tokens >= 0 && step.num_new_tokens <= num_new_tokens, "inputs only shorten a chunk");
  return {step.num_new_tokens, step.compute_budget, to_compute_, to_load_};
}

// False: no later input can be taken.
// The order of the questions is vLLM's. Some of them have effects (a reference, an eviction), so none may be asked earlier or left out.
bool EncoderScheduler::take(const Request& request, std::uint32_t input, Step& step) {
  const MultimodalFeature& feature = request.features[input];
  const auto begin = static_cast<std::int32_t>(feature.position.offset());
  const auto length = static_cast<std::int32_t>(feature.position.length());
  const std::int32_t computed = step.num_computed_tokens;
  if (begin >= computed + step.num_new_tokens + step.shift) return false;
  // Cross-attention has what it needs as soon as one token is computed; otherwise an input that lies before is in the KV cache.
  if ((context_.config.encoder.is_encoder_decoder && computed > 0) || begin + length <= computed) return true;
  if (!context_.config.encoder.is_encoder_decoder) {
    // (What an encoder-decoder hears lies beside its tokens.)
    if (context_.config.encoder.uncut_items && computed + step.num_new_tokens < begin + length) {
      step.num_new_tokens = std::max(0, begin - (computed + step.shift));
      return false;
    }
    const bool in_this_step = std::ranges::find(identifiers_, feature.identifier) != identifiers_.end();
    if (in_this_step || cache_.check_and_reference(inputs_of(request), input)) return true;
  }
  if (context_.config.encoder.disable_chunked_mm_input && computed < begin && computed + step.num_new_tokens < begin + length) {
    step.num_new_tokens = std::max(0, begin - (computed + step.shift));
    return false;
  }
  if (!cache_.can_allocate(inputs_of(request), input, step.compute_budget, step.num_planned_embeds)) {
    // After a prefix hit the input may begin before the first token: then none can run.
    step.num_new_tokens = computed + step.shift < begin ? begin - (computed + step.shift) : 0;
    return false;
  }
  const auto [first, last] =
      feature.position.embeds_in_range(std::max(0, computed - begin), std::min(length, computed + step.num_new_tokens - begin));
  if (last - first == 0) return true;
  const std::int64_t num_embeds = feature.position.num_embeds();
  step.num_planned_embeds += num_embeds;
  identifiers_.push_back(feature.identifier);
  if (context_.seams.encoder_connector != nullptr && context_.seams.encoder_connector->has(feature.identifier)) {
    to_load_.push_back(input);
    return true;
  }
  step.compute_budget -= num_embeds;
  to_compute_.push_back(input);
  return true;
}

void EncoderScheduler::allocate(const Request& request, const EncoderGrant& grant, PlanArena& arena) {
  QUIRE_CHECK(arena.requests().back() == &request, "inputs go to the request scheduled last");
  const auto allocate = [&](std::uint32_t input) {
    cache_.allocate(inputs_of(request), input);
    if (context_.seams.encoder_connector != nullptr) context_.seams.encoder_connector->allocated(Requests::view(request), input);
  };
  if (!grant.to_compute.empty()) {
    arena.set_encoder_inputs(grant.to_compute);
    std::ranges::for_each(grant.to_compute, allocate);
    budget_ = grant.compute_budget;
    QUIRE_CHECK(budget_ >= 0, "no more embeds are computed than a step may");
  }
  std::ranges::for_each(grant.to_load, allocate);
}

void EncoderScheduler::take_back(const Request& request, const PlanArena& arena) {
  for (const std::uint32_t input : arena.encoder_inputs(request)) budget_ += request.features[input].position.num_embeds();
  QUIRE_CHECK(budget_ <= std::int64_t{context_.config.encoder.max_encoder_tokens}, "no more embeds come back than were given");
}

void EncoderScheduler::release_computed(const Request& request) {
  cache_.cached_inputs(inputs_of(request), cached_inputs_);
  for (const std::uint32_t input : cached_inputs_) {
    QUIRE_CHECK(input < request.features.size(), "a cached input is one of the request");
    const auto end = static_cast<std::int32_t>(request.features[input].position.end());
    if ((context_.config.encoder.is_encoder_decoder && request.num_computed_tokens > 0) || end <= request.num_computed_tokens)
      cache_.release(inputs_of(request), input);
  }
}

}  // namespace quire
