// The worker's memory of requests between steps, and the pass that a plan asks of it. Called by the worker on the thread that leads a step.
// The core keeps no tokens in flight and names none in plans, so this history is what later tokens depend on: a plan that does not fit it
// stops the program, since passing over it would change an answer.
#include "runtime/worker/batch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// The core holds a place for a draft that the worker itself has proposed.
constexpr TokenId kOwnDraft = -1;  // ScheduledRequest::drafts

}  // namespace

Batch::Batch(std::uint32_t max_num_seqs, std::uint32_t max_model_len, std::uint32_t max_num_batched_tokens, std::uint32_t num_spec_tokens,
             bool has_encoder)
    : max_model_len_(max_model_len),
      max_num_batched_tokens_(max_num_batched_tokens),
      num_spec_tokens_(num_spec_tokens),
      has_encoder_(has_encoder),
      histories_(max_num_seqs),
      prompt_rows_(max_num_seqs),
      pooling_(max_num_seqs),
      tells_experts_(max_num_seqs),
      adapters_(max_num_seqs),
      inputs_(max_num_seqs),
      outlooks_(max_num_seqs) {
  tokens_.reserve(max_num_batched_tokens);
  rope_positions_.reserve(max_num_batched_tokens);
  last_seen_.reserve(max_num_batched_tokens);
  sequences_.reserve(max_num_seqs);
  output_rows_.reserve(max_num_batched_tokens);
  sampled_outputs_.reserve(std::size_t{max_num_seqs} * (num_spec_tokens + 1));
  prompt_runs_.reserve(max_num_seqs);
  pool_runs_.reserve(max_num_seqs);
  routed_runs_.reserve(max_num_seqs);
  scheduled_.reserve(max_num_seqs);
  for (Outlook& outlook : outlooks_) outlook.drafts.reserve(num_spec_tokens);
}

void Batch::release(Slot slot) {
  QUIRE_CHECK(slot.value < histories_.size() && !histories_[slot.value].empty(), "the slot is free already");
  histories_[slot.value].clear();
  adapters_[slot.value].reset();
  inputs_[slot.value].reset();
}

void Batch::admit(const AdmittedRequest& request, std::shared_ptr<const Adapter> adapter, std::shared_ptr<const RequestInputs> inputs) {
  QUIRE_CHECK(request.slot.value < histories_.size() && histories_[request.slot.value].empty(), "the slot is taken");
  QUIRE_CHECK(!request.tokens.empty() && request.tokens.size() <= max_model_len_);
  QUIRE_CHECK(request.num_prompt_tokens > 0 && request.num_prompt_tokens <= request.tokens.size());
  std::vector<TokenId>& history = histories_[request.slot.value];
  history.reserve(std::min<std::uint64_t>(max_model_len_, std::uint64_t{request.num_prompt_tokens} + request.sampling->max_tokens));
  history.assign(request.tokens.begin(), request.tokens.end());
  // One with outputs has been preempted after its prompt: that has been answered for.
  const bool is_prompt = request.tokens.size() == request.num_prompt_tokens;
  prompt_rows_[request.slot.value] = {is_prompt && request.sampling->prompt_logprobs ? request.num_prompt_tokens - 1 : 0,
                                      request.sampling->prompt_logprobs.value_or(0)};
  pooling_[request.slot.value] = request.sampling->pooling.kind;
  tells_experts_[request.slot.value] = request.sampling->routed_experts;
  QUIRE_CHECK((request.lora_id != 0) == (adapter != nullptr), "a request runs with its adapter");
  adapters_[request.slot.value] = std::move(adapter);
  inputs_[request.slot.value] = std::move(inputs);
  outlooks_[request.slot.value].num_tokens = history.size();
  outlooks_[request.slot.value].drafts.clear();
}

void Batch::append(Slot slot, TokenId token) {
  std::vector<TokenId>& history = histories_[slot.value];
  QUIRE_CHECK(!history.empty() && history.size() < max_model_len_, "a token beyond max_model_len");
  history.push_back(token);
}

void Batch::expect(Slot slot, std::span<const TokenId> drafts) {
  QUIRE_CHECK(drafts.size() <= num_spec_tokens_);
  outlooks_[slot.value].drafts.assign(drafts.begin(), drafts.end());
}

// What a worker would have to do and does not know how: passing over it would change answers.
void Batch::refuse_unserved(const StepPlan& plan) const {
  for (const ScheduledRequest& request : plan.scheduled) {
    QUIRE_CHECK(request.drafts.size() <= num_spec_tokens_ && request.drafts.size() < request.num_tokens, "more drafts than it verifies");
    QUIRE_CHECK(has_encoder_ || request.encoder_inputs.empty() || pictures(request.slot) != nullptr,
                "this worker runs no encoder for such a request");
    QUIRE_CHECK(request.new_tokens.empty(), "this worker is no stage of a pipeline");
  }
}

// With asynchronous scheduling the plan counted on all drafts of the step before. Where some were wrong the history is shorter than
// planned: positions move back by as many, and the drafts that are expected now take the places in the plan.
ScheduledRequest Batch::as_known(const ScheduledRequest& planned) {
  ScheduledRequest known = planned;
  if (!planned.samples) return known;
  Outlook& outlook = outlooks_[planned.slot.value];
  const std::size_t num_tokens = history(planned.slot).size();
  const auto num_places = static_cast<std::uint32_t>(planned.drafts.size());
  const std::size_t planned_end = std::size_t{planned.num_computed_tokens} + planned.num_tokens - num_places;
  if (planned_end > num_tokens && planned_end == outlook.num_tokens) {
    const auto num_wrong = static_cast<std::uint32_t>(planned_end - num_tokens);
    QUIRE_CHECK(num_wrong <= num_spec_tokens_ && num_wrong <= planned.num_computed_tokens, "as many tokens as drafts were wrong");
    known.num_computed_tokens -= num_wrong;
  }
  if (num_places > 0 && planned.drafts.front() == kOwnDraft) {
    known.drafts = std::span(outlook.drafts).first(std::min<std::size_t>(num_places, outlook.drafts.size()));
    known.num_tokens -= num_places - static_cast<std::uint32_t>(known.drafts.size());
  }
  outlook.num_tokens = num_tokens + 1 + num_places;
  return known;
}

BatchInput Batch::build(const StepPlan& plan) {
  refuse_unserved(plan);
  scheduled_.clear();
  for (const ScheduledRequest& request : plan.scheduled) scheduled_.push_back(as_known(request));
  tokens_.clear();
  sequences_.clear();
  output_rows_.clear();
  embedded_.clear();
  rope_positions_.clear();
  last_seen_.clear();
  const auto any_shows = [this](auto what) {
    return std::ranges::any_of(scheduled_, [&](const ScheduledRequest& request) {
      const PromptPictures* const shown = pictures(request.slot);
      return shown != nullptr && what(*shown);
    });
  };
  const bool has_grids = any_shows([](const PromptPictures& shown) { return !shown.grids.empty(); });
  const bool sees_ahead = any_shows([](const PromptPictures& shown) { return shown.attend_whole; });
  sampled_outputs_.clear();
  prompt_runs_.clear();
  pool_runs_.clear();
  routed_runs_.clear();
  for (const ScheduledRequest& request : scheduled_) {
    const std::span<const TokenId> tokens = history(request.slot);
    const std::size_t num_known = request.num_tokens - request.drafts.size();
    const std::size_t end = request.num_computed_tokens + num_known;
    QUIRE_CHECK(num_known > 0 && end <= tokens.size(), "tokens that the worker does not know");
    const bool is_last = request.samples || request.pools;
    QUIRE_CHECK(is_last == (end == tokens.size()), "a token is sampled after the last known one, and only there");
    sequences_.push_back({.slot = request.slot,
                          .first_position = request.num_computed_tokens,
                          .num_tokens = request.num_tokens,
                          .adapter = adapters_[request.slot.value].get(),
                          .num_drafts = static_cast<std::uint32_t>(request.drafts.size())});
    const std::span<const TokenId> scheduled = tokens.subspan(request.num_computed_tokens, num_known);
    tokens_.insert(tokens_.end(), scheduled.begin(), scheduled.end());
    tokens_.insert(tokens_.end(), request.drafts.begin(), request.drafts.end());
    if (pictures(request.slot) != nullptr) add_embedded(request);
    if (has_grids) add_positions(request);
    if (sees_ahead) add_last_seen(request);
    add_outputs(request);
  }
  QUIRE_CHECK(tokens_.size() <= plan.num_scheduled_tokens && tokens_.size() <= max_num_batched_tokens_);
  return {tokens_, sequences_, output_rows_, embedded_, rope_positions_, last_seen_};
}

// Of the request whose tokens are the last ones.
void Batch::add_embedded(const ScheduledRequest& request) {
  const PromptPictures& shown = *pictures(request.slot);
  const std::uint32_t begin = request.num_computed_tokens, end = begin + request.num_tokens;
  const auto first_row = static_cast<std::uint32_t>(tokens_.size()) - request.num_tokens;
  for (std::size_t i = 0; i < shown.features.size(); ++i) {
    const PlaceholderRange& position = shown.features[i].position;
    const EncodedPicture& picture = *shown.pictures[i];
    for (std::uint32_t at = std::max(begin, position.offset()); at < std::min(end, position.end()); ++at) {
      const std::int64_t within = std::int64_t{at} - position.offset();
      const auto [embed, next] = position.embeds_in_range(within, within + 1);
      if (embed == next) continue;
      QUIRE_CHECK(picture.is_done && picture.embeds.size() >= static_cast<std::size_t>(next) * shown.width, "an embedding is not there");
      embedded_.push_back({first_row + at - begin, picture.embeds.data() + static_cast<std::size_t>(embed) * shown.width});
    }
  }
}

// Of the request whose tokens are the last ones. Drafts, too, stand behind all pictures.
void Batch::add_positions(const ScheduledRequest& request) {
  const PromptPictures* const shown = pictures(request.slot);
  rope_positions_.resize(tokens_.size());
  place_rows(shown == nullptr ? std::span<const PlacedGrid>() : std::span(shown->grids), request.num_computed_tokens,
             std::span(rope_positions_).last(request.num_tokens));
}

// The same. The core cuts no prompt within such a picture.
void Batch::add_last_seen(const ScheduledRequest& request) {
  const std::uint32_t begin = request.num_computed_tokens, end = begin + request.num_tokens;
  const auto first_row = last_seen_.size();
  for (std::uint32_t at = begin; at < end; ++at) last_seen_.push_back(at);
  const PromptPictures* const shown = pictures(request.slot);
  if (shown == nullptr || !shown->attend_whole) return;
  for (const MultimodalFeature& feature : shown->features) {
    const std::uint32_t from = std::max(begin, feature.position.offset()), to = feature.position.end();
    if (from >= end || from >= to) continue;
    QUIRE_CHECK(to <= end, "a picture that attends to all of itself is computed in one step");
    std::fill_n(last_seen_.begin() + static_cast<std::ptrdiff_t>(first_row + from - begin), to - from, to - 1);
  }
}

// Of the request whose tokens are the last ones.
// Rows of the pass whose hidden state somebody reads: for log probabilities of the prompt, for a pooled vector, for sampling. The last
// layer's output is kept for these only.
void Batch::add_outputs(const ScheduledRequest& request) {
  const auto end = static_cast<std::uint32_t>(tokens_.size());
  const std::uint32_t begin = end - request.num_tokens;
  if (tells_experts_[request.slot.value]) return add_all(request, begin);
  const PromptRows wanted = prompt_rows_[request.slot.value];
  if (wanted.end > request.num_computed_tokens) {
    const std::uint32_t num_rows = std::min(request.num_tokens, wanted.end - request.num_computed_tokens);
    add_prompt_run(request, num_rows);
    for (std::uint32_t i = 0; i < num_rows; ++i) output_rows_.push_back(begin + i);
  }
  if (request.pools || pooling_[request.slot.value] != PoolingKind::last) add_pool_run(request, begin);
  if (!request.samples) return;
  for (std::uint32_t row = end - 1 - static_cast<std::uint32_t>(request.drafts.size()); row < end; ++row) {
    sampled_outputs_.push_back(static_cast<std::uint32_t>(output_rows_.size()));
    output_rows_.push_back(row);
  }
}

// Its next output rows are these of the prompt.
void Batch::add_prompt_run(const ScheduledRequest& request, std::uint32_t num_rows) {
  prompt_runs_.push_back({.id = request.id,
                          .slot = request.slot,
                          .first_token = request.num_computed_tokens + 1,
                          .num_rows = num_rows,
                          .first_output = static_cast<std::uint32_t>(output_rows_.size()),
                          .num_logprobs = prompt_rows_[request.slot.value].num_logprobs});
}

// The experts of the last layer are chosen for output rows alone, so all rows are some; those that others ask for are among them.
void Batch::add_all(const ScheduledRequest& request, std::uint32_t begin) {
  const PromptRows wanted = prompt_rows_[request.slot.value];
  if (wanted.end > request.num_computed_tokens)
    add_prompt_run(request, std::min(request.num_tokens, wanted.end - request.num_computed_tokens));
  const auto first_output = static_cast<std::uint32_t>(output_rows_.size());
  routed_runs_.push_back({request.id, request.slot, request.num_computed_tokens, begin, request.num_tokens});
  for (std::uint32_t i = 0; i < request.num_tokens; ++i) output_rows_.push_back(begin + i);
  const auto num_sampled = request.samples ? 1 + static_cast<std::uint32_t>(request.drafts.size()) : 0;
  for (std::uint32_t i = request.num_tokens - num_sampled; i < request.num_tokens; ++i) sampled_outputs_.push_back(first_output + i);
}

void Batch::add_pool_run(const ScheduledRequest& request, std::uint32_t begin) {
  const PoolingKind kind = pooling_[request.slot.value];
  std::uint32_t first = 0, end = request.num_tokens;
  // The first row is in the pass that begins at position 0, and in no other.
  if (kind == PoolingKind::first) end = request.num_computed_tokens == 0 ? 1 : 0;
  if (kind == PoolingKind::last) first = end - 1;
  pool_runs_.push_back({.slot = request.slot,
                        .num_rows = end - first,
                        .first_output = static_cast<std::uint32_t>(output_rows_.size()),
                        .first_position = request.num_computed_tokens + first,
                        .is_last = request.pools});
  for (std::uint32_t i = first; i < end; ++i) output_rows_.push_back(begin + i);
}

}  // namespace quire
