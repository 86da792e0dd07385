// States of an output in the shared cache:
//   absent     -> referenced  allocate
//   referenced -> evictable   release of the last reference; with encoder_outputs_held_per_input: of the request's last input
//   evictable  -> referenced  check_and_reference
//   evictable  -> absent      can_allocate, oldest first
//   any state  -> absent      reset
// In encoder_decoder mode there are no outputs, only the counter of free embeddings.
#include "core/kv/encoder_cache.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/rules.h"

namespace quire {

EncoderCache::EncoderCache(EncoderCacheMode mode, std::int64_t capacity_embeds, const DecisionRules& rules)
    : mode_(mode),
      capacity_(capacity_embeds),
      held_per_input_(mode == EncoderCacheMode::shared && rules.encoder_outputs_held_per_input),
      recomputed_not_freed_(rules.recomputed_outputs_not_freed),
      rejects_mismatched_(rules.rejects_mismatched_encoder_sizes),
      num_free_(capacity_embeds),
      num_freeable_(capacity_embeds) {
  QUIRE_CHECK(capacity_embeds >= 0, "the capacity is not negative");
}

bool EncoderCache::check_and_reference(const EncoderInputs& request, std::uint32_t input) {
  QUIRE_CHECK(input < request.features.size(), "the referenced input belongs to the request");
  const auto found = cached_.find(request.features[input].identifier);
  if (found == cached_.end()) return false;
  Output& output = found->second;
  if (output.references.empty()) {
    num_freeable_ -= output.evictable_embeds;
    QUIRE_CHECK(num_freeable_ >= num_free_, "the freeable embeddings include the free ones");
    unlink(output);
  }
  const auto place = std::ranges::lower_bound(output.references, request.id);
  if (place == output.references.end() || *place != request.id) output.references.insert(place, request.id);
  hold(request.id, input);
  return true;
}

bool EncoderCache::can_allocate(const EncoderInputs& request, std::uint32_t input, std::int64_t compute_budget,
                                std::int64_t num_planned_embeds) {
  QUIRE_CHECK(input < request.features.size(), "the queried input belongs to the request");
  const std::int64_t num_embeds = request.features[input].position.num_embeds();
  QUIRE_CHECK(num_planned_embeds >= 0, "the number of planned embeddings is not negative");
  if (num_embeds > compute_budget) return false;
  const std::int64_t num_needed = num_embeds + num_planned_embeds;
  if (num_needed <= num_free_) return true;
  if (mode_ == EncoderCacheMode::encoder_decoder || num_needed > num_freeable_) return false;
  while (num_needed > num_free_) evict_oldest();
  return true;
}

void EncoderCache::allocate(const EncoderInputs& request, std::uint32_t input) {
  QUIRE_CHECK(input < request.features.size(), "the allocated input belongs to the request");
  const MultimodalFeature& feature = request.features[input];
  num_free_ -= feature.position.num_embeds();
  QUIRE_CHECK(num_free_ >= 0, "allocate follows a successful can_allocate");
  if (mode_ == EncoderCacheMode::encoder_decoder) {
    freed_.push_back(feature.identifier);
    return;
  }
  num_freeable_ -= feature.position.num_embeds();
  const auto [node, added] = cached_.try_emplace(feature.identifier);
  QUIRE_CHECK(!node->second.evictable, "a cached output is not allocated again");
  node->second.identifier = &node->first;
  auto& references = node->second.references;
  const auto place = std::ranges::lower_bound(references, request.id);
  if (place == references.end() || *place != request.id) references.insert(place, request.id);
  if (rejects_mismatched_) node->second.evictable_embeds = feature.position.num_embeds();
  hold(request.id, input);
}

void EncoderCache::hold(RequestId request, std::uint32_t input) {
  if (held_per_input_) held_[request].add(input);
}

bool EncoderCache::drop_reference(const EncoderInputs& request, std::uint32_t input) {
  const auto found = held_.find(request.id);
  if (found == held_.end()) return false;
  found->second.discard(input);
  if (found->second.empty()) {
    held_.erase(found);
    return false;
  }
  const std::string& identifier = request.features[input].identifier;
  return found->second.any_of([&](std::uint32_t other) {
    QUIRE_CHECK(other < request.features.size(), "each held input belongs to the request");
    return request.features[other].identifier == identifier;
  });
}

std::optional<std::int64_t> EncoderCache::num_cached_embeds(std::string_view identifier) const {
  const auto found = cached_.find(identifier);
  return found == cached_.end() ? std::nullopt : std::optional(found->second.evictable_embeds);
}

void EncoderCache::cached_inputs(const EncoderInputs& request, std::vector<std::uint32_t>& inputs) {
  inputs.clear();
  if (held_per_input_) {
    if (const auto found = held_.find(request.id); found != held_.end()) found->second.list(inputs);
    return;
  }
  for (std::uint32_t i = 0; i < request.features.size(); ++i)
    if (mode_ == EncoderCacheMode::encoder_decoder || contains(request.features[i].identifier)) inputs.push_back(i);
  order_.apply(inputs);
}

void EncoderCache::release(const EncoderInputs& request, std::uint32_t input) {
  QUIRE_CHECK(input < request.features.size(), "the released input belongs to the request");
  const MultimodalFeature& feature = request.features[input];
  // In this mode nothing is cached, so the following look-up finds no output.
  if (mode_ == EncoderCacheMode::encoder_decoder) num_free_ += feature.position.num_embeds();
  const bool is_held = held_per_input_ && drop_reference(request, input);
  const auto found = cached_.find(feature.identifier);
  if (is_held || found == cached_.end() || found->second.references.empty()) return;
  Output& output = found->second;
  const auto place = std::ranges::lower_bound(output.references, request.id);
  if (place != output.references.end() && *place == request.id) output.references.erase(place);
  if (output.references.empty()) {
    output.evictable_embeds = feature.position.num_embeds();
    QUIRE_CHECK(*output.identifier == feature.identifier, "an output points to its identifier");
    num_freeable_ += output.evictable_embeds;
    link(output);
  }
}

void EncoderCache::release_all(const EncoderInputs& request) {
  cached_inputs(request, inputs_);
  for (std::uint32_t input : inputs_) release(request, input);
}

std::span<const std::string> EncoderCache::take_freed() {
  reported_.clear();
  QUIRE_CHECK(mode_ == EncoderCacheMode::encoder_decoder || to_report_.empty(), "cached outputs are reported when they are evicted");
  if (mode_ == EncoderCacheMode::encoder_decoder) {
    reported_.swap(to_report_);
    to_report_.swap(freed_);
  } else {
    reported_.swap(freed_);
    if (recomputed_not_freed_) std::erase_if(reported_, [this](const std::string& identifier) { return contains(identifier); });
  }
  return reported_;
}

void EncoderCache::reset() {
  cached_.clear();
  held_.clear();
  oldest_ = newest_ = nullptr;
  freed_.clear();
  to_report_.clear();
  num_free_ = num_freeable_ = capacity_;
}

std::span<const RequestId> EncoderCache::references(std::string_view identifier) const {
  const auto found = cached_.find(identifier);
  return found == cached_.end() ? std::span<const RequestId>() : std::span<const RequestId>(found->second.references);
}

std::vector<std::string_view> EncoderCache::evictable() const {
  std::vector<std::string_view> identifiers;
  for (const Output* output = oldest_; output != nullptr; output = output->next) identifiers.emplace_back(*output->identifier);
  return identifiers;
}

void EncoderCache::check_invariants() const {
  check_rules(broken_rule());
}

const Rule* EncoderCache::broken_rule() const {
  std::size_t num_evictable = 0;
  std::int64_t num_embeds = 0;
  const Output* previous = nullptr;
  for (const Output* output = oldest_; output != nullptr; output = output->next) {
    QUIRE_RULE(output->evictable && output->references.empty(), "an evictable output has no references");
    QUIRE_RULE(output->previous == previous, "the list of evictable outputs is linked both ways");
    QUIRE_RULE(contains(*output->identifier), "an evictable output is cached");
    previous = output;
    num_embeds += output->evictable_embeds;
    ++num_evictable;
  }
  QUIRE_RULE(mode_ == EncoderCacheMode::encoder_decoder || num_free_ + num_embeds == num_freeable_,
             "the free and the evictable embeddings add up to the freeable ones");
  QUIRE_RULE(previous == newest_, "the list of evictable outputs ends with the newest");
  const auto unreferenced = std::ranges::count_if(cached_, [](const auto& node) { return node.second.references.empty(); });
  QUIRE_RULE(static_cast<std::size_t>(unreferenced) == num_evictable, "each output without references is evictable");
  return nullptr;
}

std::vector<EncoderCache::SavedOutput> EncoderCache::to_saved_outputs() const {
  std::vector<SavedOutput> kept;
  kept.reserve(cached_.size());
  for (const auto& [identifier, output] : cached_) kept.push_back({identifier, output.references, output.evictable_embeds});
  std::ranges::sort(kept, {}, &SavedOutput::identifier);
  return kept;
}

bool EncoderCache::assign(std::vector<SavedOutput> kept, std::span<const std::string> evictable) {
  cached_.clear();
  oldest_ = newest_ = nullptr;
  for (SavedOutput& one : kept) {
    const auto [node, added] = cached_.try_emplace(std::move(one.identifier));
    const auto& references = one.references;
    if (!added || std::ranges::adjacent_find(references, std::ranges::greater_equal()) != references.end()) return false;
    if (one.evictable_embeds < 0 || one.evictable_embeds > UINT32_MAX) return false;
    node->second.identifier = &node->first;
    node->second.references = std::move(one.references);
    node->second.evictable_embeds = one.evictable_embeds;
  }
  for (const std::string& identifier : evictable) {
    const auto found = cached_.find(identifier);
    if (found == cached_.end() || found->second.evictable) return false;
    link(found->second);
  }
  return true;
}

void EncoderCache::link(Output& output) {
  QUIRE_CHECK(!output.evictable, "the output is not in the list of evictable outputs");
  output.evictable = true;
  output.previous = newest_;
  output.next = nullptr;
  (newest_ == nullptr ? oldest_ : newest_->next) = &output;
  newest_ = &output;
}

void EncoderCache::unlink(Output& output) {
  QUIRE_CHECK(output.evictable, "the output is in the list of evictable outputs");
  output.evictable = false;
  (output.previous == nullptr ? oldest_ : output.previous->next) = output.next;
  (output.next == nullptr ? newest_ : output.next->previous) = output.previous;
}

void EncoderCache::evict_oldest() {
  QUIRE_CHECK(oldest_ != nullptr, "there is an evictable output");
  Output& output = *oldest_;
  unlink(output);
  num_free_ += output.evictable_embeds;
  QUIRE_CHECK(num_free_ <= num_freeable_, "the free embeddings do not exceed the freeable ones");
  auto node = cached_.extract(cached_.find(*output.identifier));
  freed_.push_back(std::move(node.key()));
}

Result<EncoderBudget> encoder_budget(const EncoderBudgetOptions& options, std::span<const std::int64_t> max_tokens_per_item) {
  if (max_tokens_per_item.empty()) return EncoderBudget{};
  const std::int64_t largest = std::ranges::max(max_tokens_per_item);
  if (options.disable_chunked_mm_input && largest > options.max_num_batched_tokens) {
    return fail(ErrorCode::invalid_argument, "max_num_batched_tokens",
                fmt::format("{} is less than the largest multimodal item ({} tokens), which cannot be split",
                            options.max_num_batched_tokens, largest),
                "increase max_num_batched_tokens or allow chunked multimodal input");
  }
  return EncoderBudget{.compute_embeds = std::max(options.max_num_encoder_input_tokens, largest),
                       .cache_embeds = std::max(options.encoder_cache_size, largest)};
}

}  // namespace quire
