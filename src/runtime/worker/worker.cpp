#include "runtime/worker/worker.h"

#include "runtime/worker/token_masks.h"

namespace quire {

Worker::Worker(const WorkerLimits& limits, std::unique_ptr<ThreadPool> pool, std::unique_ptr<Model> model, KvCache cache,
               std::shared_ptr<Transport> transport, LogitsObserver* observer)
    : max_num_seqs_(limits.max_num_seqs),
      pool_(std::move(pool)),
      model_(std::move(model)),
      cache_(std::move(cache)),
      transfers_(std::move(transport), cache_.pages()),
      tables_(cache_.layout(), limits.max_num_seqs, limits.max_model_len),
      sampler_(model_->info().vocab_size, limits.max_num_seqs, model_->info().tokenizer->eog, pool_.get()),
      batch_(limits.max_num_seqs, limits.max_model_len, limits.max_num_batched_tokens),
      prompt_scorer_(model_->info().vocab_size),
      logits_(std::make_unique_for_overwrite<float[]>(std::size_t{limits.max_num_seqs} * model_->info().vocab_size)),
      observer_(observer),
      task_(*pool_, limits.max_num_seqs, *this) {
  rows_.reserve(limits.max_num_seqs);
}

Worker::~Worker() = default;

WorkerCapabilities Worker::capabilities() const {
  return {.num_cache_groups = static_cast<std::uint32_t>(cache_.layout().groups.size()),
          .transfers = transfers_.has_transport(),
          .token_masks = true,
          .prompt_logprobs = true,
          .pooling = true};
}

void Worker::forward(const StepPlan& plan) {
  update_batch(plan);
  rows_.clear();
  const std::size_t vocab_size = model_->info().vocab_size;
  for (const ScheduledRequest& request : plan.scheduled)
    if (request.samples) rows_.push_back({request.slot, {logits_.get() + rows_.size() * vocab_size, vocab_size}});
  const BatchInput input = batch_.build(plan);
  if (!input.tokens.empty()) model_->forward(input, cache_, tables_, {}, this);
  model_->read_logits(batch_.sampled_outputs(), {logits_.get(), rows_.size() * vocab_size});
  if (observer_ != nullptr) show_logits(plan);
}

void Worker::sample(const StepPlan& plan, std::span<const TokenMask> masks, StepResults& results) {
  std::size_t row = 0;
  MaskReader reader(masks);
  for (const ScheduledRequest& request : plan.scheduled)
    if (request.samples) rows_[row++].allowed = reader.of(request.id);
  reader.check_all_read();
  results.outcomes.resize(rows_.size());
  sampler_.sample(rows_, results.outcomes);
  prompt_scorer_.score(batch_, *model_, sampler_, results.prompt_logprobs);
  const std::uint32_t hidden_size = model_->info().hidden_size;
  results.pooled.resize(batch_.pooled_outputs().size() * hidden_size);
  model_->read_hidden(batch_.pooled_outputs(), results.pooled);
  results.give_out(plan, batch_.prompt_runs(), hidden_size);
  for (row = 0; row < rows_.size(); ++row) batch_.append(rows_[row].slot, results.outcomes[row].token);
  transfers_.collect(results.transfers);
}

void Worker::update_batch(const StepPlan& plan) {
  for (const Slot slot : plan.released) {
    batch_.release(slot);
    sampler_.release(slot);
    tables_.release(slot);
  }
  for (const AdmittedRequest& request : plan.admitted) {
    batch_.admit(request);
    sampler_.admit(request);
  }
  for (const BlockTableDelta& delta : plan.table_deltas) tables_.apply(delta);
  tables_.commit(max_num_seqs_);
  transfers_.store(plan);
  for (const BlockId block : plan.blocks_to_zero) cache_.zero(block);
  for (const BlockCopy& copy : plan.copies) cache_.copy(copy.source, copy.destination);
  transfers_.load(plan);
}

void Worker::show_logits(const StepPlan& plan) const {
  std::size_t i = 0;
  for (const ScheduledRequest& request : plan.scheduled) {
    if (request.samples) {
      observer_->see(request.id, request.num_computed_tokens + request.num_tokens, rows_[i].logits);
      ++i;
    }
  }
}

}  // namespace quire
