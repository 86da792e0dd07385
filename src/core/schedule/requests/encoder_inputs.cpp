// Chooses the encoder inputs that a step computes. Called on the core's thread by both loops while a step is planned, and by Results to
// release outputs under encoder_outputs_freed_on_results. Queries of the cache have side effects, so they must be the same as vLLM's, in
// the same order. The inputs never exceed the step's encoder budget.
#include "core/schedule/requests/encoder_inputs.h"

#include <algorithm>
#include <optional>
#include <string>

#include "base/check.h"
#include "core/schedule/requests/requests.h"

namespace quire {

namespace {

// Returns the first index in [0, size) for which is_less returns false, by bisection. As with Python's bisect_left, the result is defined
// even if the elements are not in order.
template <class IsLess>
std::uint32_t bisect(std::uint32_t size, IsLess is_less) {
  std::uint32_t low = 0, high = size;
  while (low < high) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (is_less(middle))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

}  // namespace

EncoderGrant EncoderScheduler::schedule(const Request& request, std::int32_t num_computed_tokens, std::int32_t num_new_tokens) {
  QUIRE_CHECK(num_computed_tokens >= 0 && num_new_tokens > 0, "a chunk has at least one token");
  to_compute_.clear();
  to_load_.clear();
  to_share_.clear();
  planned_.clear();
  Step step{.num_computed_tokens = num_computed_tokens,
            .num_new_tokens = num_new_tokens,
            .shift = num_lookahead(),
            .window_end = num_computed_tokens + num_new_tokens + num_lookahead(),
            .compute_budget = budget_};
  const auto [first, last] = find_inputs(request, step);
  for (std::uint32_t input = first; input < last; ++input)
    if (!take(request, input, step)) break;
  QUIRE_CHECK(step.num_new_tokens >= 0 && step.num_new_tokens <= num_new_tokens, "encoder inputs only shorten a chunk");
  return {step.num_new_tokens, step.compute_budget, to_compute_, to_load_, to_share_};
}

std::pair<std::uint32_t, std::uint32_t> EncoderScheduler::find_inputs(const Request& request, const Step& step) const {
  const auto size = static_cast<std::uint32_t>(request.features.size());
  const auto begins_within = [&](std::uint32_t input) {
    return static_cast<std::int32_t>(request.features[input].position.offset()) < step.window_end;
  };
  std::uint32_t first = 0, last = 0;
  if (!context_.rules.inputs_found_by_bisection) {
    while (last < size && begins_within(last)) ++last;
    return {first, last};
  }
  const auto is_computed = [&](std::uint32_t input) {
    return static_cast<std::int32_t>(request.features[input].position.end()) <= step.num_computed_tokens;
  };
  // In encoder-decoder models, the inputs are not part of the tokens, so all inputs are considered.
  if (!context_.config.encoder.is_encoder_decoder) first = bisect(size, is_computed);
  return {first, bisect(size, begins_within)};
}

// Plans one input. Returns false if no later input can be taken. The order of the cache queries is vLLM's. Some queries have side effects
// (a reference, an eviction), so none may be moved or omitted.
bool EncoderScheduler::take(const Request& request, std::uint32_t input, Step& step) {
  const MultimodalFeature& feature = request.features[input];
  const EncoderOptions& options = context_.config.encoder;
  const auto begin = static_cast<std::int32_t>(feature.position.offset());
  const auto length = static_cast<std::int32_t>(feature.position.length());
  const std::int32_t computed = step.num_computed_tokens;
  // In encoder-decoder models, the encoder runs before the first token is computed. In other models, an input before the computed tokens is
  // in the KV cache.
  if (options.is_encoder_decoder && computed > 0) return true;
  if (!context_.rules.inputs_found_by_bisection && begin + length <= computed) return true;
  const auto end_before = [&] {
    step.num_new_tokens = std::max(0, begin - (computed + step.shift));
    return false;
  };
  const bool does_not_end = computed + step.num_new_tokens < begin + length;
  const bool is_torn = options.disable_chunked_mm_input && computed < begin && does_not_end;
  if (is_torn && context_.rules.input_fit_checked_before_cache) return end_before();
  if (!options.is_encoder_decoder) {
    if (options.uncut_items && does_not_end) return end_before();
    if (context_.rules.rejects_mismatched_encoder_sizes && is_mismatched(request, input)) {
      step.num_new_tokens = 0;
      return false;
    }
    if (is_made(request, input)) return true;
  }
  if (is_torn) return end_before();
  // After a prefix hit, the input may begin before the first new token. In this case no token can run.
  if (!cache_.can_allocate(inputs_of(request), input, step.compute_budget, step.num_planned_embeds)) return end_before();
  const std::int32_t seen_end = context_.rules.inputs_include_drafter_lookahead ? step.window_end : computed + step.num_new_tokens;
  const auto [first, last] = feature.position.embeds_in_range(std::max(0, computed - begin), std::min(length, seen_end - begin));
  if (last - first == 0) return true;
  const std::int64_t num_embeds = feature.position.num_embeds();
  step.num_planned_embeds += num_embeds;
  planned_.push_back(input);
  if (context_.seams.encoder_connector != nullptr && context_.seams.encoder_connector->has(feature.identifier)) {
    to_load_.push_back(input);
    return true;
  }
  step.compute_budget -= num_embeds;
  to_compute_.push_back(input);
  return true;
}

bool EncoderScheduler::is_mismatched(const Request& request, std::uint32_t input) {
  const MultimodalFeature& feature = request.features[input];
  std::optional<std::int64_t> known = cache_.num_cached_embeds(feature.identifier);
  for (const std::uint32_t other : planned_)
    if (request.features[other].identifier == feature.identifier) known = request.features[other].position.num_embeds();
  if (!known || *known == std::int64_t{feature.position.num_embeds()}) return false;
  if (std::ranges::find(mismatched_, request.id) == mismatched_.end()) mismatched_.push_back(request.id);
  return true;
}

bool EncoderScheduler::is_made(const Request& request, std::uint32_t input) {
  const std::string& identifier = request.features[input].identifier;
  const auto is_same = [&](std::uint32_t other) { return request.features[other].identifier == identifier; };
  if (std::ranges::none_of(planned_, is_same)) return cache_.check_and_reference(inputs_of(request), input);
  if (context_.rules.encoder_outputs_held_per_input) to_share_.push_back(input);
  return true;
}

void EncoderScheduler::allocate(const Request& request, const EncoderGrant& grant, PlanArena& arena) {
  QUIRE_CHECK(arena.requests().back() == &request, "encoder inputs belong to the request scheduled last");
  const auto allocate = [&](std::uint32_t input) {
    cache_.allocate(inputs_of(request), input);
    if (context_.seams.encoder_connector != nullptr) context_.seams.encoder_connector->allocated(Requests::view(request), input);
  };
  if (!grant.to_compute.empty()) {
    arena.set_encoder_inputs(grant.to_compute);
    std::ranges::for_each(grant.to_compute, allocate);
    budget_ = grant.compute_budget;
    QUIRE_CHECK(budget_ >= 0, "the rest of the encoder budget is not negative");
  }
  std::ranges::for_each(grant.to_load, allocate);
  for (const std::uint32_t input : grant.to_share) {
    const bool is_there = cache_.check_and_reference(inputs_of(request), input);
    QUIRE_CHECK(is_there, "the shared encoder output is cached");
  }
}

void EncoderScheduler::take_back(const Request& request, const PlanArena& arena) {
  for (const std::uint32_t input : arena.encoder_inputs(request)) budget_ += request.features[input].position.num_embeds();
  QUIRE_CHECK(budget_ <= std::int64_t{context_.config.encoder.max_encoder_tokens}, "returned embeddings do not exceed the encoder budget");
}

void EncoderScheduler::release_computed(const Request& request) {
  const bool follows_results = context_.rules.encoder_outputs_freed_on_results;
  const std::int32_t num_sure =
      follows_results ? request.num_computed_tokens - request.num_output_placeholders - num_lookahead() : request.num_computed_tokens;
  cache_.cached_inputs(inputs_of(request), cached_inputs_);
  for (const std::uint32_t input : cached_inputs_) {
    QUIRE_CHECK(input < request.features.size(), "a cached input belongs to the request");
    const auto end = static_cast<std::int32_t>(request.features[input].position.end());
    if ((context_.config.encoder.is_encoder_decoder && request.num_computed_tokens > 0) || end <= num_sure)
      cache_.release(inputs_of(request), input);
  }
}

}  // namespace quire
