// Runs one step of a real model: the plan's changes, the forward pass, sampling, draft tokens, log probabilities of prompts and pooled
// rows. Each part runs as a task of the pool, led by one of its threads; the engine starts a step and finishes it. The worker does not
// decide which requests run. Sampled tokens are appended directly to the histories that the next pass reads, so no pass waits for the
// engine.
#include "runtime/worker/worker.h"

#include <algorithm>
#include <chrono>
#include <iterator>

#include "runtime/memory/state_slots.h"
#include "runtime/worker/token_masks.h"

namespace quire {

Worker::Worker(const WorkerLimits& limits, std::unique_ptr<ThreadPool> pool, std::unique_ptr<Model> model, KvCache cache,
               WorkerSources sources, std::unique_ptr<DraftModel> draft_model)
    : max_num_seqs_(limits.max_num_seqs),
      pool_(std::move(pool)),
      model_(std::move(model)),
      cache_(std::move(cache)),
      transfers_(std::move(sources.transport), cache_.pages()),
      tables_(cache_.layout(), limits.max_num_seqs, limits.max_model_len, model_->info().encoder.num_positions),
      sampler_(model_->info().vocab_size, limits.max_num_seqs, model_->info().tokenizer->eog, pool_.get()),
      num_spec_tokens_(limits.speculation.num_speculative_tokens),
      batch_(limits.max_num_seqs, limits.max_model_len, limits.max_num_batched_tokens, limits.speculation.num_speculative_tokens,
             model_->info().has_encoder()),
      prompt_scorer_(model_->info().vocab_size),
      pooler_(limits.max_num_seqs, model_->info().hidden_size),
      logits_(std::make_unique_for_overwrite<float[]>(std::size_t{limits.max_num_seqs} * (1 + limits.speculation.num_speculative_tokens) *
                                                      model_->info().vocab_size)),
      pooled_logits_(std::make_unique_for_overwrite<float[]>(model_->info().vocab_size)),
      observer_(sources.observer),
      adapters_(sources.adapters),
      encoder_inputs_(sources.encoder_inputs),
      task_(*pool_, limits.max_num_seqs, *this) {
  rows_.reserve(limits.max_num_seqs);
  if (model_->vision() != nullptr) encoder_.emplace(*model_->vision());
  if (draft_model != nullptr)
    model_proposer_.emplace(std::move(draft_model));
  else if (num_spec_tokens_ > 0)
    proposer_.emplace(limits.speculation, limits.max_model_len);
}

Worker::~Worker() = default;

WorkerCapabilities Worker::capabilities() const {
  return {.num_cache_groups = static_cast<std::uint32_t>(cache_.layout().groups.size()),
          .num_spec_tokens = num_spec_tokens_,
          .transfers = transfers_.has_transport(),
          .token_masks = true,
          .prompt_logprobs = true,
          .routed_experts = model_->info().num_experts > 0,
          .pooling = true,
          .encoder_inputs = encoder_inputs_ != nullptr && (encoder_.has_value() || model_->info().has_encoder())};
}

ImageEncoder& Worker::image_encoder() {
  QUIRE_CHECK(encoder_.has_value(), "the model has an image encoder");
  return *encoder_;
}

// Applies the plan's changes of the encoder cache, and encodes the images that the scheduled rows need.
void Worker::encode_images(const StepPlan& plan) {
  if (!encoder_) return;
  for (const ScheduledRequest& request : plan.scheduled) {
    const PromptImages* const shown = batch_.pictures(request.slot);
    if (shown == nullptr) continue;
    for (const std::uint32_t input : request.encoder_inputs) encoder_->keep(shown->pictures[input]);
    for (std::size_t i = 0; i < shown->pictures.size(); ++i) {
      const PlaceholderRange& position = shown->features[i].position;
      const std::uint32_t end = request.num_computed_tokens + request.num_tokens;
      if (position.offset() < end && position.end() > request.num_computed_tokens) encoder_->encode_now(*shown->pictures[i]);
    }
  }
  encoder_->forget(plan.freed_encoder_outputs);
}

void Worker::forward(const StepPlan& plan) {
  update_batch(plan);
  encode_images(plan);
  encode_inputs(plan);
  rows_.clear();
  const std::size_t vocab_size = model_->info().vocab_size;
  const BatchInput input = batch_.build(plan);
  float* logits = logits_.get();
  for (const ScheduledRequest& request : batch_.scheduled()) {
    if (!request.samples) continue;
    rows_.push_back({.slot = request.slot, .logits = {logits, (1 + request.drafts.size()) * vocab_size}, .drafts = request.drafts});
    logits += rows_.back().logits.size();
  }
  experts_.assign(batch_.routed_runs().empty() ? 0 : input.tokens.size() * experts_per_token(), 0);
  const auto begin = std::chrono::steady_clock::now();
  if (!input.tokens.empty()) model_->forward(input, cache_, tables_, {.experts = experts_}, this);
  const auto seconds = [begin] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(); };
  const double pass_s = seconds();
  // Reads logits only for rows from which tokens are sampled. Logits of prompts are computed later, in slices (prompt_scorer.h).
  model_->read_logits(batch_.sampled_outputs(), {logits_.get(), logits});
  if (model_proposer_)
    model_proposer_->record_pass(static_cast<std::uint32_t>(input.tokens.size()),
                                 static_cast<std::uint32_t>(batch_.sampled_outputs().size()), seconds());
  if (encoder_) encoder_->encode_after_pass(input.tokens.empty() ? 0.0 : pass_s);
}

void Worker::sample(const StepPlan& /*plan*/, std::span<const TokenMask> masks, StepResults& results) {
  std::size_t row = 0;
  MaskReader reader(masks);
  for (const ScheduledRequest& request : batch_.scheduled())
    if (request.samples) rows_[row++].allowed = reader.of(request.id);
  reader.check_all_read();
  sampler_.sample(rows_, results.outcomes, results.num_outcomes);
  auto outcome = results.outcomes.begin();
  for (row = 0; row < rows_.size(); ++row)
    for (std::uint32_t i = 0; i < results.num_outcomes[row]; ++i) batch_.append(rows_[row].slot, (outcome++)->token);
  commit_states(results.num_outcomes);
  if (observer_ != nullptr) notify_observer(results.num_outcomes);
  propose(results);
  prompt_scorer_.score(batch_, *model_, sampler_, results.prompt_logprobs);
  pooler_.pool(batch_.pool_runs(), *this, results);
  gather_experts(results);
  results.assign_to_requests(batch_);
  transfers_.collect(results.transfers);
  results.expert_reads = model_->expert_reads();
}

std::uint32_t Worker::experts_per_token() const {
  return model_->info().num_layers * model_->info().experts_per_token;
}

void Worker::gather_experts(StepResults& results) const {
  results.experts.clear();
  results.experts_per_token = experts_per_token();
  for (const RoutedRun& run : batch_.routed_runs())
    std::ranges::copy(std::span(experts_).subspan(std::size_t{run.first_row} * results.experts_per_token,
                                                  std::size_t{run.num_rows} * results.experts_per_token),
                      std::back_inserter(results.experts));
}

void Worker::propose(StepResults& results) {
  results.drafts.clear();
  results.num_drafts.clear();
  if (num_spec_tokens_ == 0) return;
  if (model_proposer_) model_proposer_->propose(batch_, results.num_outcomes);
  for (const ScheduledRequest& request : batch_.scheduled()) {
    if (!request.samples) continue;
    std::span<const TokenId> drafts;
    if (model_proposer_)
      drafts = model_proposer_->drafts(results.num_drafts.size());
    else if (proposer_)
      drafts = proposer_->propose(batch_.history(request.slot));
    batch_.expect(request.slot, drafts);
    std::ranges::copy(drafts, std::back_inserter(results.drafts));
    results.num_drafts.push_back(static_cast<std::uint32_t>(drafts.size()));
  }
}

void Worker::commit_states(std::span<const std::uint32_t> counts) {
  state_moves_.clear();
  const KvLayout& layout = cache_.layout();
  std::size_t i = 0;
  for (const ScheduledRequest& request : batch_.scheduled()) {
    if (!request.samples) continue;
    const std::uint32_t count = counts[i++];
    const auto num_drafts = static_cast<std::uint32_t>(request.drafts.size());
    if (count == 0 || count > num_drafts) continue;
    const StateRows rows{request.num_computed_tokens, request.num_tokens, num_drafts};
    for (std::uint32_t g = 0; g < layout.groups.size(); ++g) {
      const KvGroupLayout& group = layout.groups[g];
      if (!group.keeps_states()) continue;
      const StateSlots slots(tables_.row(g, request.slot), group.block_size, group.num_spare_blocks(), rows);
      const std::uint32_t row = slots.first_saved_row() + count - 1;
      if (slots.after(row) == slots.final_block(row)) continue;
      for (const std::uint32_t layer : group.layers) state_moves_.push_back({layer, slots.after(row), slots.final_block(row)});
    }
  }
  pool_->parallel_for(static_cast<std::uint32_t>(state_moves_.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (; begin < end; ++begin) cache_.copy_state(state_moves_[begin].layer, state_moves_[begin].from, state_moves_[begin].to);
  });
}

void Worker::update_batch(const StepPlan& plan) {
  for (const Slot slot : plan.released) {
    batch_.release(slot);
    sampler_.release(slot);
    tables_.release(slot);
    if (model_proposer_) model_proposer_->release(slot);
  }
  for (const AdmittedRequest& request : plan.admitted) {
    QUIRE_CHECK(request.lora_id == 0 || adapters_ != nullptr, "a worker that runs adapters has an adapter registry");
    batch_.admit(request, request.lora_id == 0 ? nullptr : adapters_->find(request.lora_id),
                 encoder_inputs_ == nullptr ? nullptr : encoder_inputs_->find(request.id));
    sampler_.admit(request);
    pooler_.admit(request);
  }
  for (const BlockTableDelta& delta : plan.table_deltas) tables_.apply(delta);
  // Comes before stores and copies, because from here on the tables describe this plan.
  tables_.commit(max_num_seqs_);
  // After this call, the blocks that this plan writes may be overwritten: no unfinished store reads them.
  transfers_.store(plan);
  // Copies are made in the plan's order, because a later copy or zeroing may overwrite the source of an earlier copy.
  for (const BlockCopy& copy : plan.copies) cache_.copy(copy.source, copy.destination);
  for (const BlockId block : plan.blocks_to_zero) cache_.zero(block);
  transfers_.load(plan);
}

// Runs the encoder on the plan's inputs, so that its output is in the KV cache before the first token of a request is computed.
void Worker::encode_inputs(const StepPlan& plan) {
  if (!model_->info().has_encoder()) return;
  for (const ScheduledRequest& request : plan.scheduled) {
    if (request.encoder_inputs.empty()) continue;
    const RequestInputs* const inputs = batch_.inputs(request.slot);
    QUIRE_CHECK(inputs != nullptr && inputs->audio != nullptr && request.encoder_inputs.size() == 1,
                "a request of an encoder-decoder model has exactly one encoder input");
    model_->encode(inputs->audio->features, request.slot, cache_, tables_);
  }
}

void Worker::read_hidden(std::span<const std::uint32_t> outputs, const PoolRun& /*run*/, std::span<float> rows) {
  model_->read_hidden(outputs, rows);
}

void Worker::read_logits(std::uint32_t output, const PoolRun& /*run*/, std::span<const TokenId> tokens, std::span<float> logits) {
  model_->read_logits({&output, 1}, {pooled_logits_.get(), model_->info().vocab_size});
  for (std::size_t i = 0; i < tokens.size(); ++i) logits[i] = pooled_logits_[static_cast<std::size_t>(tokens[i])];
}

void Worker::notify_observer(std::span<const std::uint32_t> counts) const {
  const std::uint32_t vocab_size = model_->info().vocab_size;
  std::size_t i = 0;
  for (const ScheduledRequest& request : batch_.scheduled()) {
    if (!request.samples) continue;
    const std::uint32_t num_known = request.num_computed_tokens + request.num_tokens - static_cast<std::uint32_t>(request.drafts.size());
    for (std::uint32_t row = 0; row < counts[i]; ++row)
      observer_->see(request.id, num_known + row, rows_[i].logits.subspan(row * std::size_t{vocab_size}, vocab_size));
    ++i;
  }
}

}  // namespace quire
