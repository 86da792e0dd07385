// Samples tokens from the logits of all rows of a step. The worker calls the sampler after each pass; the threads of the pool share the
// rows. Results of a request must not depend on other requests in the batch, so each row uses only the request's state and a counter-based
// random number (philox.h). Scratch memory is per thread and carries no data from row to row.
#include "runtime/sample/sampler.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/thread_pool.h"
#include "runtime/sample/candidates.h"
#include "runtime/sample/philox.h"
#include "runtime/sample/row_math.h"
#include "runtime/sample/timestamp_state.h"

namespace quire {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
// Least number of rows that are worth waking the pool: one row takes tens of microseconds.
constexpr std::size_t kParallelRows = 4;

// Number of occurrences of each token in the request's outputs; 0: the token is only in the prompt. A map, because one array of the
// vocabulary's size per slot would take tens of megabytes.
using TokenCounts = boost::unordered_flat_map<TokenId, std::uint32_t>;

bool wants_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0F || params.presence_penalty != 0.0F || params.frequency_penalty != 0.0F;
}

void apply_penalties(const SamplingParams& params, const TokenCounts& counts, std::span<float> logits) {
  for (const auto& [token, num_outputs] : counts) {
    float& logit = logits[static_cast<std::size_t>(token)];
    logit = logit > 0.0F ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    if (num_outputs > 0) {
      logit -= params.frequency_penalty * static_cast<float>(num_outputs);
      logit -= params.presence_penalty;
    }
  }
}

bool ends_with(std::span<const TokenId> tokens, std::span<const TokenId> end) {
  return end.size() <= tokens.size() && std::ranges::equal(tokens.last(end.size()), end);
}

void write_logprobs(std::span<const float> logits, float max, TokenId token, std::span<const Scored> top, PositionLogprobs& out) {
  const double log_sum = static_cast<double>(max) + std::log(exp_sum(logits, max, 1.0F));
  const float sampled = logits[static_cast<std::size_t>(token)];
  const auto logprob = [&](float logit) { return static_cast<float>(static_cast<double>(logit) - log_sum); };
  out.entries.reserve(top.size() + 1);
  out.entries.push_back({token, logprob(sampled), count_greater(logits, sampled) + 1});
  for (std::uint32_t i = 0; i < top.size(); ++i) out.entries.push_back({top[i].token, logprob(top[i].score), i + 1});
}

}  // namespace

// The sampler's state of a request, from admit() to release(). After a preemption, admit() rebuilds the counts and kept outputs from the
// request's outputs, so sampling continues as without the preemption.
struct Sampler::SlotState {
  bool taken = false;
  bool has_penalties = false;
  std::uint64_t seed = 0;
  std::uint32_t num_outputs = 0;
  SamplingParams params;
  TokenCounts counts;            // used only with penalties
  std::vector<TokenId> outputs;  // the latest outputs, used only with bad_words
  TimestampState timestamps;     // used only with timestamp rules
  std::size_t num_kept = 0;      // least number of kept outputs, for the words of bad_words
};

// Memory for one row of logits; each thread of the pool has one.
struct Sampler::Scratch {
  std::vector<float> masked, logits;
  DrawScratch draw;
};

Sampler::Sampler(std::uint32_t vocab_size, std::uint32_t max_num_seqs, std::vector<TokenId> eos_ids, ThreadPool* pool)
    : vocab_size_(vocab_size),
      eos_ids_(std::move(eos_ids)),
      pool_(pool),
      slots_(max_num_seqs),
      scratch_(pool == nullptr ? 1 : pool->num_threads()) {
  std::erase_if(eos_ids_, [&](TokenId id) { return id < 0 || static_cast<std::uint32_t>(id) >= vocab_size; });
  for (Scratch& scratch : scratch_) {
    scratch.masked.reserve(vocab_size);
    scratch.logits.reserve(vocab_size);
    scratch.draw.reserve(vocab_size);
  }
}

Sampler::~Sampler() = default;

void Sampler::admit(const AdmittedRequest& request) {
  SlotState& state = slots_[request.slot.value];
  QUIRE_CHECK(!state.taken, "an admitted request gets a free slot");
  state.taken = true;
  state.params = *request.sampling;
  const auto known = [&](TokenId id) { return id >= 0 && static_cast<std::uint32_t>(id) < vocab_size_; };
  QUIRE_CHECK(std::ranges::all_of(state.params.stop_token_ids, known), "stop_token_ids are token IDs of the model");
  QUIRE_CHECK(std::ranges::all_of(state.params.logit_bias, [&](const auto& entry) { return known(entry.first); }));
  QUIRE_CHECK(std::ranges::all_of(state.params.allowed_token_ids, known));
  QUIRE_CHECK(std::ranges::all_of(state.params.bad_words, [&](const auto& word) { return !word.empty() && known(word.back()); }));
  // A request without a seed uses its id as the seed of its stream.
  state.seed = state.params.seed.value_or(request.id.value);
  // Continues the count of existing outputs, because the n-th output of a request always uses the n-th random number of its stream.
  state.num_outputs = static_cast<std::uint32_t>(request.tokens.size()) - request.num_prompt_tokens;
  state.num_kept = 0;
  for (const std::vector<TokenId>& word : state.params.bad_words) state.num_kept = std::max(state.num_kept, word.size() - 1);
  const auto outputs = request.tokens.last(std::min<std::size_t>(state.num_outputs, state.num_kept));
  state.outputs.assign(outputs.begin(), outputs.end());
  state.outputs.reserve(2 * state.num_kept);  // so that no step allocates
  const TimestampRules& times = state.params.timestamps;
  QUIRE_CHECK(std::cmp_less(times.first_time, vocab_size_) && std::ranges::all_of(times.not_first, known));
  for (const std::vector<TokenId>& choice : times.begins) QUIRE_CHECK(!choice.empty() && std::ranges::all_of(choice, known));
  if (times.first_time > 0) state.timestamps.begin(times, request.tokens.last(state.num_outputs));
  state.has_penalties = wants_penalties(state.params);
  if (state.has_penalties) {
    const std::uint64_t most = request.num_prompt_tokens + std::uint64_t{state.params.max_tokens};
    state.counts = {};
    state.counts.reserve(static_cast<std::size_t>(std::min<std::uint64_t>(most, vocab_size_)));  // so that no step allocates
    std::ranges::for_each(request.tokens.first(request.num_prompt_tokens), [&](TokenId token) { state.counts.try_emplace(token); });
    std::ranges::for_each(request.tokens.subspan(request.num_prompt_tokens), [&](TokenId token) { ++state.counts[token]; });
  }
}

void Sampler::release(Slot slot) {
  QUIRE_CHECK(slots_[slot.value].taken, "a released slot is in use");
  slots_[slot.value].taken = false;
}

template <class Body>
void Sampler::for_rows(std::size_t count, Body body) {
  if (pool_ == nullptr || count < kParallelRows) {
    for (std::size_t i = 0; i < count; ++i) body(i, scratch_[0]);
    return;
  }
  pool_->parallel_for(static_cast<std::uint32_t>(count), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t thread) {
    for (std::uint32_t i = begin; i < end; ++i) body(i, scratch_[thread]);
  });
}

void Sampler::sample(std::span<const SampleRow> rows, std::vector<SampleOutcome>& outcomes, std::vector<std::uint32_t>& counts) {
  first_outcomes_.clear();
  std::uint32_t num_places = 0;
  for (const SampleRow& row : rows) {
    first_outcomes_.push_back(num_places);
    num_places += 1 + static_cast<std::uint32_t>(row.drafts.size());
  }
  outcomes.resize(num_places);
  counts.resize(rows.size());
  for_rows(rows.size(), [&](std::size_t i, Scratch& scratch) {
    counts[i] = sample_row(rows[i], std::span(outcomes).subspan(first_outcomes_[i], 1 + rows[i].drafts.size()), scratch);
  });
  // Without draft tokens, each row has exactly one outcome. Otherwise the used outcomes are moved together.
  if (num_places == rows.size()) return;
  std::size_t num_taken = 0;
  for (std::size_t i = 0; i < rows.size(); ++i)
    for (std::uint32_t j = 0; j < counts[i]; ++j, ++num_taken)
      if (num_taken != first_outcomes_[i] + j) std::swap(outcomes[num_taken], outcomes[first_outcomes_[i] + j]);
  outcomes.resize(num_taken);
}

// Samples the rows of a request in order, as long as the sampled token equals the draft token before the next row.
std::uint32_t Sampler::sample_row(const SampleRow& row, std::span<SampleOutcome> outcomes, Scratch& scratch) {
  QUIRE_CHECK(row.logits.size() == outcomes.size() * vocab_size_);
  const std::size_t num_words = row.allowed.empty() ? 0 : (vocab_size_ + 31) / 32;
  QUIRE_CHECK(row.allowed.size() == outcomes.size() * num_words, "a mask has one bit per token of the vocabulary");
  for (std::uint32_t i = 0;; ++i) {
    sample_one({row.slot, row.logits.subspan(i * std::size_t{vocab_size_}, vocab_size_), row.allowed.subspan(i * num_words, num_words)},
               outcomes[i], scratch);
    const bool is_ok = outcomes[i].status == SampleOutcome::Status::ok;
    if (i > 0 && !is_ok) return i;
    if (!is_ok || i == row.drafts.size() || outcomes[i].token != row.drafts[i]) return i + 1;
  }
}

void Sampler::score(std::span<const PromptLogprobRow> rows, std::span<PositionLogprobs> logprobs) {
  QUIRE_CHECK(rows.size() == logprobs.size());
  for_rows(rows.size(), [&](std::size_t i, Scratch& scratch) { score_row(rows[i], logprobs[i], scratch); });
}

void Sampler::score_row(const PromptLogprobRow& row, PositionLogprobs& logprobs, Scratch& scratch) const {
  QUIRE_CHECK(row.logits.size() == vocab_size_ && row.token >= 0 && static_cast<std::uint32_t>(row.token) < vocab_size_);
  logprobs.entries.clear();
  const float max = finite_row_max(row.logits);
  if (std::isnan(max)) return;
  top_entries(row.logits, row.num_logprobs, scratch.draw.candidates);
  write_logprobs(row.logits, max, row.token, scratch.draw.candidates, logprobs);
}

std::span<const float> Sampler::masked(const SampleRow& row, Scratch& scratch) const {
  if (row.allowed.empty()) return row.logits;
  scratch.masked.assign(row.logits.begin(), row.logits.end());
  for (std::uint32_t token = 0; token < vocab_size_; ++token)
    if ((row.allowed[token / 32] >> token % 32 & 1U) == 0) scratch.masked[token] = kMasked;
  return scratch.masked;
}

std::span<const float> Sampler::adjusted(const SlotState& state, std::span<const float> logits, Scratch& scratch) const {
  const SamplingParams& params = state.params;
  const bool masks = state.num_outputs < params.min_tokens;
  const bool has_rules = params.timestamps.first_time > 0;
  if (!masks && !has_rules && params.logit_bias.empty() && !state.has_penalties && params.allowed_token_ids.empty() &&
      params.bad_words.empty())
    return logits;
  const std::vector<TokenId>* only = has_rules ? state.timestamps.choice(params.timestamps) : nullptr;
  if (only != nullptr || !params.allowed_token_ids.empty()) {
    scratch.logits.assign(logits.size(), kMasked);
    for (const TokenId token : only != nullptr ? *only : params.allowed_token_ids)
      scratch.logits[static_cast<std::size_t>(token)] = logits[static_cast<std::size_t>(token)];
    if (only != nullptr) return scratch.logits;
  } else {
    scratch.logits.assign(logits.begin(), logits.end());
  }
  for (const std::vector<TokenId>& word : params.bad_words)
    if (ends_with(state.outputs, std::span(word).first(word.size() - 1))) scratch.logits[static_cast<std::size_t>(word.back())] = kMasked;
  for (const auto& [token, bias] : params.logit_bias) scratch.logits[static_cast<std::size_t>(token)] += bias;
  if (masks) {
    std::ranges::for_each(eos_ids_, [&](TokenId token) { scratch.logits[static_cast<std::size_t>(token)] = kMasked; });
    std::ranges::for_each(params.stop_token_ids, [&](TokenId token) { scratch.logits[static_cast<std::size_t>(token)] = kMasked; });
  }
  if (state.has_penalties) apply_penalties(params, state.counts, scratch.logits);
  if (has_rules) state.timestamps.apply(params.timestamps, scratch.logits);
  return scratch.logits;
}

void Sampler::sample_one(const SampleRow& row, SampleOutcome& outcome, Scratch& scratch) {
  SlotState& state = slots_[row.slot.value];
  QUIRE_CHECK(state.taken, "the slot of a sampled row is in use");
  outcome.token = 0;
  outcome.logprobs.entries.clear();
  const float given_max = finite_row_max(row.logits);
  if (std::isnan(given_max)) {
    outcome.status = SampleOutcome::Status::not_finite;
    return;
  }
  const std::span<const float> raw = masked(row, scratch);
  const float raw_max = row.allowed.empty() ? given_max : row_max(raw);
  const std::span<const float> logits = adjusted(state, raw, scratch);
  const float max = logits.data() == raw.data() ? raw_max : row_max(logits);
  if (std::isnan(max)) {
    outcome.status = SampleOutcome::Status::all_masked;
    return;
  }
  outcome.status = SampleOutcome::Status::ok;
  const bool has_choice = state.timestamps.choice(state.params.timestamps) != nullptr;  // taken without a draw
  if (has_choice || state.params.temperature < kGreedyTemperature) {
    outcome.token = first_index_of(logits, max);
  } else {
    const DrawParams draw{state.params.temperature, state.params.min_p, state.params.top_k, state.params.top_p};
    outcome.token = draw_token(logits, max, draw, random_uniform(state.seed, state.num_outputs), scratch.draw);
  }
  if (state.params.logprobs.has_value()) {
    const TimestampRules& times = state.params.timestamps;
    const bool is_ruled = times.first_time > 0 && !has_choice;
    const std::span<const float> told = is_ruled ? logits : raw;
    top_entries(told, *state.params.logprobs, scratch.draw.candidates);
    write_logprobs(told, is_ruled ? max : raw_max, outcome.token, scratch.draw.candidates, outcome.logprobs);
  }
  ++state.num_outputs;
  if (state.has_penalties) ++state.counts[outcome.token];
  if (state.params.timestamps.first_time > 0) state.timestamps.add(state.params.timestamps, outcome.token);
  if (state.num_kept > 0) record_output(state, outcome.token);
}

void Sampler::record_output(SlotState& state, TokenId token) {
  if (state.outputs.size() == 2 * state.num_kept)
    state.outputs.erase(state.outputs.begin(), state.outputs.end() - static_cast<std::ptrdiff_t>(state.num_kept - 1));
  state.outputs.push_back(token);
}

}  // namespace quire
