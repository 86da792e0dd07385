// A worker that uses a hash of the history as its model. The hashes in its KV cache show whether a plan was right. Used by tests, fuzzers
// and simulations in virtual time. A step runs on the thread that calls finish(), or on a separate thread. The worker detects errors that
// would only change the output of a real model: reads of a block that was never written, or was written for another history.
#include "runtime/worker/simulated_worker.h"

#include <algorithm>
#include <iterator>
#include <ranges>

#include "base/check.h"
#include "runtime/worker/token_masks.h"

namespace quire {
namespace {

constexpr std::uint64_t kEmptyHistory = 0x243F6A8885A308D3;

// Returns the hash of a history from the hash of the history without its last token. Mixes 64 bits (as SplitMix64), so that different
// histories have different hashes in practice.
std::uint64_t extend(std::uint64_t name, TokenId token) {
  std::uint64_t x = (name ^ static_cast<std::uint32_t>(token)) * 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 29U)) * 0xBF58476D1CE4E5B9;
  return x ^ (x >> 32U);
}

std::uint64_t history_hash(std::span<const TokenId> history) {
  std::uint64_t name = kEmptyHistory;
  for (const TokenId token : history) name = extend(name, token);
  return extend(name, -1);
}

// Returns the value that a group stores for a history. Groups store different values, so a block of one group is wrong in another.
std::uint64_t in_group(std::uint64_t name, std::uint32_t group) {
  return name + group;
}

std::vector<BlockTableLimits> table_limits(const SimulatedWorkerOptions& options) {
  return std::vector<BlockTableLimits>(std::max<std::size_t>(options.windows.size(), 1), {.num_rows = options.limits.max_num_seqs,
                                                                                          .max_model_len = options.limits.max_model_len,
                                                                                          .num_blocks = options.num_blocks,
                                                                                          .block_size = options.block_size,
                                                                                          .kernel_block_size = options.block_size});
}

// Each group has one layer; all layers share one tensor.
KvCache make_cache(const SimulatedWorkerOptions& options) {
  KvLayout layout;
  layout.num_blocks = options.num_blocks;
  layout.page_bytes = {std::uint64_t{options.block_size} * sizeof(std::uint64_t)};
  for (std::uint32_t group = 0; group < std::max<std::size_t>(options.windows.size(), 1); ++group) {
    layout.groups.push_back(
        {.spec = FullAttentionSpec{}, .block_size = options.block_size, .kernel_block_size = options.block_size, .layers = {group}});
    layout.layers.push_back({.group = group});
  }
  auto cache = KvCache::create(std::move(layout));
  QUIRE_CHECK(cache.has_value(), "allocation of the simulated KV cache succeeds");
  return std::move(*cache);
}

std::shared_ptr<const Clock> step_clock(const SimulatedWorkerOptions& options) {
  if (options.clock != nullptr) return options.clock;
  return std::make_shared<SteadyClock>();
}

std::span<std::uint64_t> tags_of(const KvCache& cache) {
  return {reinterpret_cast<std::uint64_t*>(cache.keys(0)), cache.layout().total_bytes() / sizeof(std::uint64_t)};
}

bool is_allowed(std::uint64_t token, std::span<const std::uint32_t> allowed) {
  return allowed.empty() || (allowed[token / 32] >> token % 32 & 1U) != 0;
}

// Returns the logit of a token: a multiple of 1/1024 in [0, 16), so that sums are exact.
float simulated_logit(std::span<const TokenId> history, TokenId token) {
  return static_cast<float>(extend(history_hash(history), token) >> 50U) / 1024.0F;
}

}  // namespace

TokenId simulated_token(std::span<const TokenId> history, std::uint32_t vocab_size) {
  return static_cast<TokenId>(history_hash(history) % vocab_size);
}

std::vector<TokenLogprob> simulated_top_logprobs(std::span<const TokenId> history, std::uint32_t vocab_size, std::uint32_t count,
                                                 std::span<const std::uint32_t> allowed) {
  const std::uint64_t hash = history_hash(history);
  std::vector<TokenLogprob> likeliest;
  float logprob = -1.0F / static_cast<float>(history.size());
  for (std::uint32_t i = 0; i < vocab_size && likeliest.size() < count; ++i) {
    const auto token = static_cast<std::uint32_t>((hash % vocab_size + i) % vocab_size);
    if (!is_allowed(token, allowed)) continue;
    const auto rank = static_cast<std::uint32_t>(likeliest.size());
    likeliest.push_back({static_cast<TokenId>(token), logprob, rank + 1});
    logprob -= static_cast<float>(hash >> (rank % 20U * 3U) & 3U) / 4.0F;
  }
  return likeliest;
}

std::array<float, kSimulatedWidth> simulated_hidden(std::span<const TokenId> history) {
  const std::uint64_t hash = history_hash(history);
  std::array<float, kSimulatedWidth> hidden;
  for (std::uint32_t i = 0; i < kSimulatedWidth; ++i) hidden[i] = static_cast<float>(hash >> 16 * i & 0xFFFFU) / 65536.0F;
  return hidden;
}

std::array<std::uint16_t, kSimulatedExperts> simulated_experts(std::span<const TokenId> history) {
  const std::uint64_t hash = history_hash(history);
  std::array<std::uint16_t, kSimulatedExperts> experts;
  for (std::uint32_t i = 0; i < kSimulatedExperts; ++i) experts[i] = static_cast<std::uint16_t>(hash >> 16 * i & 0xFFU);
  return experts;
}

std::vector<float> simulated_pooled(std::span<const TokenId> prompt, const PoolingParams& params) {
  std::vector<float> pooled;
  pooled.reserve(std::max<std::size_t>(params.logits_of.size(), kSimulatedWidth));
  for (const TokenId token : params.logits_of) pooled.push_back(simulated_logit(prompt, token));
  if (!pooled.empty()) return pooled;
  if (params.kind == PoolingKind::all) {
    for (std::size_t end = 1; end <= prompt.size(); ++end)
      std::ranges::copy(simulated_hidden(prompt.first(end)), std::back_inserter(pooled));
    return pooled;
  }
  const std::size_t begin = params.kind == PoolingKind::last ? prompt.size() - 1 : 0;
  const std::size_t end = params.kind == PoolingKind::first ? 1 : prompt.size();
  std::array<double, kSimulatedWidth> sums{};
  for (std::size_t position = begin; position < end; ++position) {
    const auto row = simulated_hidden(prompt.first(position + 1));
    for (std::size_t i = 0; i < row.size(); ++i) sums[i] += static_cast<double>(row[i]);
  }
  for (const double sum : sums) pooled.push_back(static_cast<float>(sum / static_cast<double>(end - begin)));
  return pooled;
}

std::vector<TokenId> simulated_drafts(std::span<const TokenId> history, std::uint32_t vocab_size, std::uint32_t count) {
  std::vector<TokenId> guessed(history.begin(), history.end());
  while (guessed.size() < history.size() + count) {
    const std::uint64_t hash = history_hash(guessed);
    const bool is_wrong = (hash >> 32U) % 4 == 0;
    guessed.push_back(static_cast<TokenId>((hash % vocab_size + (is_wrong ? 1 : 0)) % vocab_size));
  }
  return {guessed.end() - count, guessed.end()};
}

PositionLogprobs simulated_logprobs(std::span<const TokenId> history, std::uint32_t vocab_size, TokenId token, std::uint32_t count) {
  const std::uint32_t first = static_cast<std::uint32_t>(simulated_token(history, vocab_size));
  const std::uint32_t rank = (static_cast<std::uint32_t>(token) + vocab_size - first) % vocab_size + 1;
  PositionLogprobs logprobs{{simulated_top_logprobs(history, vocab_size, rank).back()}};
  std::ranges::copy(simulated_top_logprobs(history, vocab_size, count), std::back_inserter(logprobs.entries));
  return logprobs;
}

namespace {

// Returns the first token that the mask allows, from `first` on in cyclic order, or -1 if it allows none.
TokenId next_allowed(std::uint32_t first, std::uint32_t vocab_size, std::span<const std::uint32_t> allowed) {
  for (std::uint32_t i = 0; i < vocab_size; ++i) {
    const std::uint32_t token = (first + i) % vocab_size;
    if (is_allowed(token, allowed)) return static_cast<TokenId>(token);
  }
  return -1;
}

}  // namespace

TokenId simulated_token(std::span<const TokenId> history, std::uint32_t vocab_size, std::span<const std::uint32_t> allowed) {
  return next_allowed(static_cast<std::uint32_t>(simulated_token(history, vocab_size)), vocab_size, allowed);
}

SimulatedWorker::SimulatedWorker(SimulatedWorkerOptions options)
    : options_(std::move(options)),
      tables_(table_limits(options_)),
      batch_(options_.limits.max_num_seqs, options_.limits.max_model_len, options_.limits.max_num_batched_tokens, options_.num_spec_tokens),
      cache_(make_cache(options_)),
      kv_(tags_of(cache_)),
      transfers_(std::move(options_.transport), cache_.pages()),
      params_(options_.limits.max_num_seqs, nullptr),
      pooler_(options_.limits.max_num_seqs, kSimulatedWidth),
      pool_(options_.num_threads),
      task_(pool_, options_.limits.max_num_seqs, *this, step_clock(options_)) {}

void SimulatedWorker::update_batch(const StepPlan& plan) {
  for (const Slot slot : plan.released) {
    batch_.release(slot);
    tables_.release(slot);
  }
  for (AdmittedRequest request : plan.admitted) {
    request.lora_id = 0;  // the simulated model has no weights
    batch_.admit(request);
    params_[request.slot.value] = request.sampling;
    pooler_.admit(request);
  }
  std::ranges::for_each(plan.table_deltas, [&](const BlockTableDelta& delta) { tables_.apply(delta); });
  tables_.commit(options_.limits.max_num_seqs);
  transfers_.store(plan);
  for (const BlockCopy& copy : plan.copies) cache_.copy(copy.source, copy.destination);
  for (const BlockId block : plan.blocks_to_zero) cache_.zero(block);
  transfers_.load(plan);
}

WorkerCapabilities SimulatedWorker::capabilities() const {
  return {.num_cache_groups = tables_.num_groups(),
          .num_spec_tokens = options_.num_spec_tokens,
          .transfers = transfers_.has_transport(),
          .token_masks = true,
          .prompt_logprobs = true,
          .routed_experts = true,
          .pooling = true};
}

void SimulatedWorker::forward(const StepPlan& plan) {
  if (options_.before_step) options_.before_step(plan);
  update_batch(plan);
  batch_.build(plan);
  // Writes all rows before any row attends, like a layer.
  transfers_.before_attention(0);
  std::ranges::for_each(batch_.scheduled(), [&](const ScheduledRequest& request) { write(request); });
  transfers_.after_kv_write(0);
  route_all();
  is_corrupted_.assign(options_.limits.max_num_seqs, false);
  std::ranges::for_each(batch_.scheduled(), [&](const ScheduledRequest& request) { verify(request); });
  if (options_.clock != nullptr) options_.clock->now += options_.step_time(plan);
}

void SimulatedWorker::sample(const StepPlan& /*plan*/, std::span<const TokenMask> masks, StepResults& results) {
  const auto samples = [](const ScheduledRequest& request) { return request.samples; };
  results.outcomes.clear();
  results.num_outcomes.clear();
  results.drafts.clear();
  results.num_drafts.clear();
  MaskReader reader(masks);
  for (const ScheduledRequest& request : batch_.scheduled() | std::views::filter(samples))
    sample_outputs(request, reader.of(request.id), results);
  results.prompt_logprobs.clear();
  for (const PromptRun& run : batch_.prompt_runs())
    for (std::uint32_t i = 0; i < run.num_rows; ++i) results.prompt_logprobs.push_back(score(run, run.first_token + i));
  pooler_.pool(batch_.pool_runs(), *this, results);
  results.experts = experts_;
  results.experts_per_token = kSimulatedExperts;
  results.assign_to_requests(batch_);
  reader.check_all_read();
  transfers_.collect(results.transfers);
}

std::span<const TokenId> SimulatedWorker::history(const ScheduledRequest& request) {
  const std::span<const TokenId> known = batch_.history(request.slot);
  if (request.drafts.empty()) return known;
  history_.assign(known.begin(), known.end());
  history_.insert(history_.end(), request.drafts.begin(), request.drafts.end());
  return history_;
}

// Writes the hash of the history up to each position to every group, like the keys and values of a layer.
void SimulatedWorker::write(const ScheduledRequest& request) {
  const std::span<const TokenId> history = this->history(request);
  std::uint64_t name = kEmptyHistory;
  for (std::uint32_t position = 0; position < request.num_computed_tokens + request.num_tokens; ++position) {
    name = extend(name, history[position]);
    for (std::uint32_t group = 0; position >= request.num_computed_tokens && group < tables_.num_groups(); ++group) {
      const auto place = static_cast<std::size_t>(tables_.kv_slot(group, request.slot, position));
      QUIRE_CHECK(place / options_.block_size != kNullBlock.value, "the null block is never written");
      kv_[place] = in_group(name, group);
    }
  }
}

void SimulatedWorker::route_all() {
  experts_.clear();
  auto run = batch_.routed_runs().begin();
  for (const ScheduledRequest& request : batch_.scheduled()) {
    if (run == batch_.routed_runs().end() || run->id != request.id) continue;
    const std::span<const TokenId> history = this->history(request);
    for (std::uint32_t i = 1; i <= run->num_rows; ++i)
      std::ranges::copy(simulated_experts(history.first(run->first_token + i)), std::back_inserter(experts_));
    ++run;
  }
}

std::uint32_t SimulatedWorker::window_begin(std::uint32_t group, std::uint32_t position) const {
  const std::uint32_t window = options_.windows.empty() ? 0 : options_.windows[group];
  return window == 0 || position < window ? 0 : position + 1 - window;
}

// Checks the values of all positions that the scheduled tokens attend to. Blocks before the window of a group are skipped, because they may
// be freed already.
void SimulatedWorker::verify(const ScheduledRequest& request) {
  const std::span<const TokenId> history = this->history(request);
  std::uint64_t name = kEmptyHistory;
  for (std::uint32_t position = 0; position < request.num_computed_tokens + request.num_tokens; ++position) {
    name = extend(name, history[position]);
    for (std::uint32_t group = 0; group < tables_.num_groups(); ++group) {
      if (position < window_begin(group, request.num_computed_tokens)) continue;
      const auto place = static_cast<std::size_t>(tables_.kv_slot(group, request.slot, position));
      const bool is_right = kv_[place] == in_group(name, group);
      QUIRE_CHECK(is_right || options_.tolerates_garbage, "a block contains the tokens that the plan expects");
      if (!is_right) return mark_corrupted(request);
    }
  }
}

void SimulatedWorker::mark_corrupted(const ScheduledRequest& request) {
  is_corrupted_[request.slot.value] = true;
  for (std::uint32_t position = request.num_computed_tokens; position < request.num_computed_tokens + request.num_tokens; ++position)
    for (std::uint32_t group = 0; group < tables_.num_groups(); ++group)
      kv_[static_cast<std::size_t>(tables_.kv_slot(group, request.slot, position))] = 0;
}

// Samples a token, and a further token as long as the sampled token equals the draft token. The tokens do not depend on the draft tokens.
void SimulatedWorker::sample_outputs(const ScheduledRequest& request, std::span<const std::uint32_t> allowed, StepResults& results) {
  const std::size_t num_words = allowed.empty() ? 0 : (options_.vocab_size + 31) / 32;
  QUIRE_CHECK(allowed.size() == num_words * (1 + request.drafts.size()), "there is one mask per row");
  const std::size_t first = results.outcomes.size();
  bool goes_on = true;
  for (std::size_t i = 0; goes_on && i <= request.drafts.size(); ++i) {
    SampleOutcome outcome = sample_one_output(request, allowed.subspan(i * num_words, num_words));
    if (i > 0 && outcome.status != SampleOutcome::Status::ok) break;
    batch_.append(request.slot, outcome.token);
    goes_on = i < request.drafts.size() && outcome.status == SampleOutcome::Status::ok && outcome.token == request.drafts[i];
    results.outcomes.push_back(std::move(outcome));
  }
  results.num_outcomes.push_back(static_cast<std::uint32_t>(results.outcomes.size() - first));
  const auto drafts = simulated_drafts(batch_.history(request.slot), options_.vocab_size, options_.num_spec_tokens);
  batch_.expect(request.slot, drafts);
  std::ranges::copy(drafts, std::back_inserter(results.drafts));
  results.num_drafts.push_back(options_.num_spec_tokens);
}

SampleOutcome SimulatedWorker::sample_one_output(const ScheduledRequest& request, std::span<const std::uint32_t> allowed) const {
  const std::span<const TokenId> history = batch_.history(request.slot);
  SampleOutcome outcome;
  if (history.back() == options_.poison) {
    outcome.status = SampleOutcome::Status::not_finite;
    return outcome;
  }
  const TokenId said = options_.next_token ? options_.next_token(history) : simulated_token(history, options_.vocab_size);
  const TokenId token = next_allowed(static_cast<std::uint32_t>(said), options_.vocab_size, allowed);
  if (token < 0) {
    outcome.status = SampleOutcome::Status::all_masked;
    return outcome;
  }
  outcome.token = token;
  if (is_corrupted_[request.slot.value]) {
    outcome.token = (token + 1) % static_cast<TokenId>(options_.vocab_size);
    if (history.size() % 3 == 0) outcome.status = SampleOutcome::Status::not_finite;
    return outcome;
  }
  if (const auto count = params_[request.slot.value]->logprobs; count.has_value()) {
    outcome.logprobs.entries.push_back({token, -1.0F / static_cast<float>(history.size()), 1});
    std::ranges::copy(simulated_top_logprobs(history, options_.vocab_size, *count, allowed), std::back_inserter(outcome.logprobs.entries));
  }
  return outcome;
}

void SimulatedWorker::read_hidden(std::span<const std::uint32_t> outputs, const PoolRun& run, std::span<float> rows) {
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const std::uint32_t position = run.first_position + outputs[i] - run.first_output;
    const std::span<const TokenId> history = batch_.history(run.slot).first(position + 1);
    std::array<float, kSimulatedWidth> hidden = simulated_hidden(history);
    if (history.back() == options_.poison) hidden.fill(std::numeric_limits<float>::quiet_NaN());
    std::ranges::copy(hidden, rows.begin() + static_cast<std::ptrdiff_t>(i * kSimulatedWidth));
  }
}

void SimulatedWorker::read_logits(std::uint32_t /*output*/, const PoolRun& run, std::span<const TokenId> tokens, std::span<float> logits) {
  for (std::size_t i = 0; i < tokens.size(); ++i) logits[i] = simulated_logit(batch_.history(run.slot), tokens[i]);
}

PositionLogprobs SimulatedWorker::score(const PromptRun& run, std::uint32_t token) const {
  const std::span<const TokenId> history = batch_.history(run.slot);
  if (history[token - 1] == options_.poison) return {};
  return simulated_logprobs(history.first(token), options_.vocab_size, history[token], run.num_logprobs);
}

}  // namespace quire
