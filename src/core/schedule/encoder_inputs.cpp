// Which encoder inputs (images, sounds) are computed in this step, and when their outputs may go.
//
// Asking has effects, as in vLLM: a cached output that is found is referenced by the request, and room for a new one is made by evicting
// outputs that nobody needs.
#include <algorithm>

#include "base/check.h"
#include "core/schedule/state.h"

namespace quire {

// The tokens [num_computed_tokens, + num_new_tokens) need the outputs of the inputs they overlap. Where one cannot be had, the tokens end
// before it.
EncoderGrant Core::State::schedule_encoder_inputs(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) {
  encoder_to_compute.clear();
  encoder_to_load.clear();
  encoder_identifiers.clear();
  EncoderStep step{.num_computed_tokens = num_computed_tokens,
                   .num_new_tokens = num_new_tokens,
                   .shift = config.speculation.use_eagle ? 1 : 0,
                   .compute_budget = encoder_budget};
  for (std::uint32_t input = 0; input < request.features.size(); ++input)
    if (!take_encoder_input(request, input, step)) break;
  QUIRE_CHECK(step.num_new_tokens >= 0 && step.num_new_tokens <= num_new_tokens, "inputs only shorten a chunk");
  return {step.num_new_tokens, step.compute_budget, encoder_to_compute, encoder_to_load};
}

// False: no later input can be taken.
bool Core::State::take_encoder_input(const Request& request, std::uint32_t input, EncoderStep& step) {
  const MultimodalFeature& feature = request.features[input];
  const auto begin = static_cast<std::int32_t>(feature.position.offset());
  const auto length = static_cast<std::int32_t>(feature.position.length());
  const std::int32_t computed = step.num_computed_tokens;
  if (begin >= computed + step.num_new_tokens + step.shift) return false;
  // Cross-attention has what it needs as soon as one token is computed; otherwise an input that lies before is in the KV cache.
  if ((config.encoder.is_encoder_decoder && computed > 0) || begin + length <= computed) return true;
  if (!config.encoder.is_encoder_decoder) {
    const bool in_this_step = std::ranges::find(encoder_identifiers, feature.identifier) != encoder_identifiers.end();
    if (in_this_step || encoder_cache.check_and_reference(encoder_inputs(request), input)) return true;
  }
  if (config.encoder.disable_chunked_mm_input && computed < begin && computed + step.num_new_tokens < begin + length) {
    step.num_new_tokens = std::max(0, begin - (computed + step.shift));
    return false;
  }
  if (!encoder_cache.can_allocate(encoder_inputs(request), input, step.compute_budget, step.num_planned_embeds)) {
    // After a prefix hit the input may begin before the first token: then none can run.
    step.num_new_tokens = computed + step.shift < begin ? begin - (computed + step.shift) : 0;
    return false;
  }
  const auto [first, last] =
      feature.position.embeds_in_range(std::max(0, computed - begin), std::min(length, computed + step.num_new_tokens - begin));
  if (last - first == 0) return true;
  const std::int64_t num_embeds = feature.position.num_embeds();
  step.num_planned_embeds += num_embeds;
  encoder_identifiers.push_back(feature.identifier);
  if (seams.encoder_connector != nullptr && seams.encoder_connector->has(feature.identifier)) {
    encoder_to_load.push_back(input);
    return true;
  }
  step.compute_budget -= num_embeds;
  QUIRE_CHECK(step.compute_budget >= 0, "a step keeps to the encoder's budget");
  encoder_to_compute.push_back(input);
  return true;
}

// For the request scheduled last.
void Core::State::allocate_encoder_inputs(const Request& request, const EncoderGrant& grant, PlanArena& arena) {
  QUIRE_CHECK(arena.requests().back() == &request, "inputs go to the request scheduled last");
  const auto allocate = [&](std::uint32_t input) {
    encoder_cache.allocate(encoder_inputs(request), input);
    if (seams.encoder_connector != nullptr) seams.encoder_connector->allocated(view(request), input);
  };
  if (!grant.to_compute.empty()) {
    arena.set_encoder_inputs(grant.to_compute);
    std::ranges::for_each(grant.to_compute, allocate);
    encoder_budget = grant.compute_budget;
  }
  std::ranges::for_each(grant.to_load, allocate);
}

// Outputs whose tokens are computed are in the KV cache.
void Core::State::free_encoder_inputs(const Request& request) {
  encoder_cache.cached_inputs(encoder_inputs(request), cached_inputs);
  for (const std::uint32_t input : cached_inputs) {
    const auto end = static_cast<std::int32_t>(request.features[input].position.end());
    if ((config.encoder.is_encoder_decoder && request.num_computed_tokens > 0) || end <= request.num_computed_tokens)
      encoder_cache.release(encoder_inputs(request), input);
  }
}

}  // namespace quire
