// Keeps the histories of requests between steps and builds the pass that a plan describes. Called by the worker on the thread that leads a
// step. Plans do not contain the tokens of the steps in flight, so later tokens depend on these histories. A plan that does not match the
// histories ends the program, because ignoring the difference would change an output.
#include "runtime/worker/batch.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Value in ScheduledRequest::drafts for a position that the core reserves for a draft token of the worker.
constexpr TokenId kWorkerDraft = -1;  // no token id

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
      returns_experts_(max_num_seqs),
      adapters_(max_num_seqs),
      inputs_(max_num_seqs),
      expected_histories_(max_num_seqs) {
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
  for (ExpectedHistory& expected : expected_histories_) expected.drafts.reserve(num_spec_tokens);
}

void Batch::release(Slot slot) {
  QUIRE_CHECK(slot.value < histories_.size() && !histories_[slot.value].empty(), "a released slot is in use");
  histories_[slot.value].clear();
  adapters_[slot.value].reset();
  inputs_[slot.value].reset();
}

void Batch::admit(const AdmittedRequest& request, std::shared_ptr<const Adapter> adapter, std::shared_ptr<const RequestInputs> inputs) {
  QUIRE_CHECK(request.slot.value < histories_.size() && histories_[request.slot.value].empty(), "an admitted request gets a free slot");
  QUIRE_CHECK(!request.tokens.empty() && request.tokens.size() <= max_model_len_);
  QUIRE_CHECK(request.num_prompt_tokens > 0 && request.num_prompt_tokens <= request.tokens.size());
  std::vector<TokenId>& history = histories_[request.slot.value];
  history.reserve(std::min<std::uint64_t>(max_model_len_, std::uint64_t{request.num_prompt_tokens} + request.sampling->max_tokens));
  history.assign(request.tokens.begin(), request.tokens.end());
  // A request with outputs was preempted after its prompt was complete, so the prompt's log probabilities were already reported.
  const bool is_prompt = request.tokens.size() == request.num_prompt_tokens;
  prompt_rows_[request.slot.value] = {is_prompt && request.sampling->prompt_logprobs ? request.num_prompt_tokens - 1 : 0,
                                      request.sampling->prompt_logprobs.value_or(0)};
  pooling_[request.slot.value] = request.sampling->pooling.kind;
  returns_experts_[request.slot.value] = request.sampling->routed_experts;
  QUIRE_CHECK((request.lora_id != 0) == (adapter != nullptr), "a request has an adapter if and only if it has a LoRA ID");
  adapters_[request.slot.value] = std::move(adapter);
  inputs_[request.slot.value] = std::move(inputs);
  expected_histories_[request.slot.value].num_tokens = history.size();
  expected_histories_[request.slot.value].drafts.clear();
}

void Batch::append(Slot slot, TokenId token) {
  std::vector<TokenId>& history = histories_[slot.value];
  QUIRE_CHECK(!history.empty() && history.size() < max_model_len_, "the sequence is shorter than max_model_len");
  history.push_back(token);
}

void Batch::expect(Slot slot, std::span<const TokenId> drafts) {
  QUIRE_CHECK(drafts.size() <= num_spec_tokens_);
  expected_histories_[slot.value].drafts.assign(drafts.begin(), drafts.end());
}

// Checks that the worker supports everything that the plan contains. Ignoring a part would change outputs.
void Batch::check_supported(const StepPlan& plan) const {
  for (const ScheduledRequest& request : plan.scheduled) {
    QUIRE_CHECK(request.drafts.size() <= num_spec_tokens_ && request.drafts.size() < request.num_tokens,
                "a request has at most num_spec_tokens draft tokens, and fewer draft tokens than scheduled tokens");
    QUIRE_CHECK(has_encoder_ || request.encoder_inputs.empty() || pictures(request.slot) != nullptr,
                "a request with encoder inputs has an encoder");
    QUIRE_CHECK(request.new_tokens.empty(), "the plan has no tokens from another pipeline stage");
  }
}

// Returns the request with corrected positions and draft tokens. With asynchronous scheduling, the plan assumed that all draft tokens of
// the previous step are accepted. Each rejected draft token moves the positions back by one. The draft tokens that are expected now take
// the reserved positions.
ScheduledRequest Batch::without_rejected_drafts(const ScheduledRequest& planned) {
  ScheduledRequest known = planned;
  if (!planned.samples) return known;
  ExpectedHistory& expected = expected_histories_[planned.slot.value];
  const std::size_t num_tokens = history(planned.slot).size();
  const auto num_places = static_cast<std::uint32_t>(planned.drafts.size());
  const std::size_t planned_end = std::size_t{planned.num_computed_tokens} + planned.num_tokens - num_places;
  if (planned_end > num_tokens && planned_end == expected.num_tokens) {
    const auto num_wrong = static_cast<std::uint32_t>(planned_end - num_tokens);
    QUIRE_CHECK(num_wrong <= num_spec_tokens_ && num_wrong <= planned.num_computed_tokens,
                "the tokens rolled back are rejected draft tokens");
    known.num_computed_tokens -= num_wrong;
  }
  if (num_places > 0 && planned.drafts.front() == kWorkerDraft) {
    known.drafts = std::span(expected.drafts).first(std::min<std::size_t>(num_places, expected.drafts.size()));
    known.num_tokens -= num_places - static_cast<std::uint32_t>(known.drafts.size());
  }
  expected.num_tokens = num_tokens + 1 + num_places;
  return known;
}

BatchInput Batch::build(const StepPlan& plan) {
  check_supported(plan);
  scheduled_.clear();
  for (const ScheduledRequest& request : plan.scheduled) scheduled_.push_back(without_rejected_drafts(request));
  tokens_.clear();
  sequences_.clear();
  output_rows_.clear();
  embedded_.clear();
  rope_positions_.clear();
  last_seen_.clear();
  const auto any_shows = [this](auto what) {
    return std::ranges::any_of(scheduled_, [&](const ScheduledRequest& request) {
      const PromptImages* const shown = pictures(request.slot);
      return shown != nullptr && what(*shown);
    });
  };
  const bool has_grids = any_shows([](const PromptImages& shown) { return !shown.grids.empty(); });
  const bool sees_ahead = any_shows([](const PromptImages& shown) { return shown.is_bidirectional; });
  sampled_outputs_.clear();
  prompt_runs_.clear();
  pool_runs_.clear();
  routed_runs_.clear();
  for (const ScheduledRequest& request : scheduled_) {
    const std::span<const TokenId> tokens = history(request.slot);
    const std::size_t num_known = request.num_tokens - request.drafts.size();
    const std::size_t end = request.num_computed_tokens + num_known;
    QUIRE_CHECK(num_known > 0 && end <= tokens.size(), "the worker has all tokens that are scheduled");
    const bool is_last = request.samples || request.pools;
    QUIRE_CHECK(is_last == (end == tokens.size()), "a request samples if and only if its last known token is scheduled");
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

// Adds the rows that take image embeddings. The tokens of `request` are the last ones in `tokens_`.
void Batch::add_embedded(const ScheduledRequest& request) {
  const PromptImages& shown = *pictures(request.slot);
  const std::uint32_t begin = request.num_computed_tokens, end = begin + request.num_tokens;
  const auto first_row = static_cast<std::uint32_t>(tokens_.size()) - request.num_tokens;
  for (std::size_t i = 0; i < shown.features.size(); ++i) {
    const PlaceholderRange& position = shown.features[i].position;
    const EncodedImage& picture = *shown.pictures[i];
    for (std::uint32_t at = std::max(begin, position.offset()); at < std::min(end, position.end()); ++at) {
      const std::int64_t within = std::int64_t{at} - position.offset();
      const auto [embed, next] = position.embeds_in_range(within, within + 1);
      if (embed == next) continue;
      QUIRE_CHECK(picture.is_done && picture.embeds.size() >= static_cast<std::size_t>(next) * shown.width,
                  "the embeddings of a scheduled image token are computed");
      embedded_.push_back({first_row + at - begin, picture.embeds.data() + static_cast<std::size_t>(embed) * shown.width});
    }
  }
}

// Adds rotary positions. The tokens of `request` are the last tokens in `tokens_`. Draft tokens follow all images, like other text.
void Batch::add_positions(const ScheduledRequest& request) {
  const PromptImages* const shown = pictures(request.slot);
  rope_positions_.resize(tokens_.size());
  compute_rope_positions(shown == nullptr ? std::span<const ImageGrid>() : std::span(shown->grids), request.num_computed_tokens,
                         std::span(rope_positions_).last(request.num_tokens));
}

// Adds the last position that each row attends to. The tokens of `request` are the last tokens in `tokens_`. The core never splits a prompt
// within an image whose tokens attend to each other in both directions.
void Batch::add_last_seen(const ScheduledRequest& request) {
  const std::uint32_t begin = request.num_computed_tokens, end = begin + request.num_tokens;
  const auto first_row = last_seen_.size();
  for (std::uint32_t at = begin; at < end; ++at) last_seen_.push_back(at);
  const PromptImages* const shown = pictures(request.slot);
  if (shown == nullptr || !shown->is_bidirectional) return;
  for (const MultimodalFeature& feature : shown->features) {
    const std::uint32_t from = std::max(begin, feature.position.offset()), to = feature.position.end();
    if (from >= end || from >= to) continue;
    QUIRE_CHECK(to <= end, "an image with bidirectional attention is computed in one step");
    std::fill_n(last_seen_.begin() + static_cast<std::ptrdiff_t>(first_row + from - begin), to - from, to - 1);
  }
}

// Adds the request's output rows: the rows that are read for log probabilities of the prompt, for a pooled vector or for sampling. If the
// request returns its routed experts, all its rows of the step are output rows. The model keeps the output of its last layer for output
// rows only. The tokens of `request` are the last tokens in `tokens_`.
void Batch::add_outputs(const ScheduledRequest& request) {
  const auto end = static_cast<std::uint32_t>(tokens_.size());
  const std::uint32_t begin = end - request.num_tokens;
  if (returns_experts_[request.slot.value]) return add_routed_rows(request, begin);
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

// Adds a run of prompt tokens for the next `num_rows` output rows.
void Batch::add_prompt_run(const ScheduledRequest& request, std::uint32_t num_rows) {
  prompt_runs_.push_back({.id = request.id,
                          .slot = request.slot,
                          .first_token = request.num_computed_tokens + 1,
                          .num_rows = num_rows,
                          .first_output = static_cast<std::uint32_t>(output_rows_.size()),
                          .num_logprobs = prompt_rows_[request.slot.value].num_logprobs});
}

// Makes every row of the request an output row, because the model chooses experts of the last layer only for output rows. Also registers
// the rows that are read for log probabilities of the prompt and for sampling.
void Batch::add_routed_rows(const ScheduledRequest& request, std::uint32_t begin) {
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
  // Only the pass that begins at position 0 contains the first row.
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
