// Runs a small model for speculative decoding next to the served model. Called by the worker after sampling. Draft tokens cannot change an
// output: a request without free blocks or context merely gets no draft tokens.
#include "runtime/worker/draft_model.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace quire {
namespace {

// Number of missing tokens after accepted draft tokens: the last draft token and the sampled token after it. Requests with at most this
// many need no catch-up pass.
constexpr std::uint32_t kTypicalNumMissing = 2;

class Stopwatch {
 public:
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count(); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace

DraftModel::DraftModel(const DraftLimits& limits, std::unique_ptr<Model> model, KvCache cache, ThreadPool& pool)
    : limits_(limits),
      pool_(&pool),
      model_(std::move(model)),
      cache_(std::move(cache)),
      tables_(cache_.layout(), limits.max_num_seqs, limits.max_model_len),
      num_tokens_(std::min(limits.vocab_size, model_->info().vocab_size)),
      cached_tokens_(std::make_unique_for_overwrite<TokenId[]>(std::size_t{limits.max_num_seqs} * limits.max_model_len)),
      num_cached_tokens_(limits.max_num_seqs),
      drafts_(std::size_t{limits.max_num_seqs} * limits.max_drafts),
      num_drafts_(limits.max_num_seqs),
      logits_(std::make_unique_for_overwrite<float[]>(std::size_t{limits.max_num_seqs} * model_->info().vocab_size)),
      greedy_tokens_(limits.max_num_seqs) {
  QUIRE_CHECK(limits.max_rows >= kTypicalNumMissing * limits.max_num_seqs, "max_rows is large enough for a pass over all requests");
  for (const KvGroupLayout& group : cache_.layout().groups) {
    QUIRE_CHECK(!group.keeps_states() && !group.keeps_encoder_output(),
                "all cache groups of a draft model hold keys and values of its tokens");
    QUIRE_CHECK(group.kernel_blocks_per_block() == 1, "a block of a draft model is one kernel block");
  }
  // Block 0 is the null block.
  for (std::uint32_t block = cache_.layout().num_blocks; block-- > 1;) free_.push_back(BlockId{block});
  running_.reserve(limits.max_num_seqs);
  tokens_.reserve(limits.max_rows);
  sequences_.reserve(limits.max_num_seqs);
  output_rows_.reserve(limits.max_num_seqs);
}

std::span<TokenId> DraftModel::cached_tokens(Slot slot) const {
  return {cached_tokens_.get() + std::size_t{slot.value} * limits_.max_model_len, limits_.max_model_len};
}

std::uint32_t DraftModel::num_missing(Slot slot, std::span<const TokenId> history) const {
  const std::span<const TokenId> known = std::span<const TokenId>(cached_tokens(slot)).first(num_cached_tokens_[slot.value]);
  const auto parted = std::ranges::mismatch(known, history).in2;
  return static_cast<std::uint32_t>(history.end() - parted);
}

std::span<const TokenId> DraftModel::drafts(std::size_t request) const {
  return std::span(drafts_).subspan(request * limits_.max_drafts, num_drafts_[request]);
}

void DraftModel::release(Slot slot) {
  num_cached_tokens_[slot.value] = 0;
  bool had_any = false;
  for (std::uint32_t group = 0; group < tables_.num_groups(); ++group) {
    const std::span<const BlockId> blocks = tables_.row(group, slot);
    free_.insert(free_.end(), blocks.begin(), blocks.end());
    had_any |= !blocks.empty();
  }
  if (!had_any) return;
  tables_.release(slot);
  tables_.commit(limits_.max_num_seqs);
}

// Returns how many draft tokens the request can get. The last draft token is never an input of the draft model, so the context is full one
// token later.
std::uint32_t DraftModel::num_possible(const DraftRequest& request) const {
  const auto size = static_cast<std::uint32_t>(request.history.size());
  if (size == 0 || size >= limits_.max_model_len) return 0;
  return std::min({request.num_drafts, limits_.max_drafts, limits_.max_model_len - size});
}

bool DraftModel::is_in_vocabulary(std::span<const TokenId> tokens) const {
  return std::ranges::all_of(tokens,
                             [this](TokenId token) { return token >= 0 && static_cast<std::uint32_t>(token) < model_->info().vocab_size; });
}

bool DraftModel::reserve(Slot slot, std::uint32_t num_tokens) {
  const std::span<const KvGroupLayout> groups = cache_.layout().groups;
  const auto num_lacking = [&](std::uint32_t group) {
    const std::size_t needed = (num_tokens + groups[group].block_size - 1) / groups[group].block_size;
    const std::size_t held = tables_.row(group, slot).size();
    return needed - std::min(needed, held);
  };
  std::size_t lacking = 0;
  for (std::uint32_t group = 0; group < groups.size(); ++group) lacking += num_lacking(group);
  if (lacking > free_.size()) return false;
  for (std::uint32_t group = 0; group < groups.size(); ++group) {
    const std::size_t count = num_lacking(group);
    if (count == 0) continue;
    tables_.apply({.slot = slot,
                   .group = group,
                   .id = {},
                   .update = TableUpdate::append,
                   .index = 0,
                   .blocks = std::span<const BlockId>(free_).last(count)});
    free_.resize(free_.size() - count);
  }
  return true;
}

DraftTimes DraftModel::propose(std::span<const DraftRequest> requests) {
  QUIRE_CHECK(requests.size() <= limits_.max_num_seqs, "each slot has at most one draft request");
  running_.clear();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    num_drafts_[i] = 0;
    const DraftRequest& request = requests[i];
    const std::uint32_t possible = num_possible(request);
    if (possible == 0) continue;
    // The last token is always an input, because its row predicts the first draft token.
    const auto size = static_cast<std::uint32_t>(request.history.size());
    const std::uint32_t missing = std::max(num_missing(request.slot, request.history), 1U);
    num_cached_tokens_[request.slot.value] = size - missing;
    if (!is_in_vocabulary(request.history.last(missing)) || !reserve(request.slot, size + possible - 1)) {
      release(request.slot);
      continue;
    }
    running_.push_back({.request = i, .num_drafts = possible});
  }
  tables_.commit(limits_.max_num_seqs);
  DraftTimes times;
  catch_up(requests, times);
  draft(requests, times);
  return times;
}

void DraftModel::add(Slot slot, std::span<const TokenId> tokens) {
  const std::uint32_t begin = num_cached_tokens_[slot.value];
  sequences_.push_back({.slot = slot, .first_position = begin, .num_tokens = static_cast<std::uint32_t>(tokens.size())});
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  std::ranges::copy(tokens, cached_tokens(slot).begin() + begin);
  num_cached_tokens_[slot.value] = begin + static_cast<std::uint32_t>(tokens.size());
}

void DraftModel::pass() {
  const std::span logits(logits_.get(), output_rows_.size() * model_->info().vocab_size);
  model_->forward({.tokens = tokens_, .sequences = sequences_, .output_rows = output_rows_}, cache_, tables_, {.logits = logits});
  tokens_.clear();
  sequences_.clear();
}

// Catches up on missing tokens with at most one pass, which limits the delay of other requests by a long prompt.
void DraftModel::catch_up(std::span<const DraftRequest> requests, DraftTimes& times) {
  output_rows_.clear();
  std::erase_if(running_, [&](const Running& running) {
    const DraftRequest& request = requests[running.request];
    const auto room = static_cast<std::uint32_t>(limits_.max_rows - tokens_.size());
    const std::span<const TokenId> missing = request.history.subspan(num_cached_tokens_[request.slot.value]);
    if (missing.size() <= kTypicalNumMissing) return false;
    const std::span<const TokenId> fed = missing.first(std::min<std::size_t>(missing.size() - 1, room));
    if (!fed.empty()) add(request.slot, fed);
    return fed.size() + kTypicalNumMissing < missing.size();
  });
  if (tokens_.empty()) return;
  const Stopwatch watch;
  times.num_catch_up_rows = static_cast<std::uint32_t>(tokens_.size());
  pass();
  times.catch_up_s = watch.seconds();
}

void DraftModel::draft(std::span<const DraftRequest> requests, DraftTimes& times) {
  const Stopwatch watch;
  times.num_requests = static_cast<std::uint32_t>(running_.size());
  while (!running_.empty()) {
    output_rows_.clear();
    for (const Running& running : running_) {
      const DraftRequest& request = requests[running.request];
      const std::span<const TokenId> drafted = drafts(running.request);
      add(request.slot, drafted.empty() ? request.history.subspan(num_cached_tokens_[request.slot.value]) : drafted.last(1));
      output_rows_.push_back(static_cast<std::uint32_t>(tokens_.size()) - 1);
    }
    pass();
    select_greedy_tokens();
    for (std::size_t i = 0; i < running_.size(); ++i) {
      const std::size_t request = running_[i].request;
      drafts_[request * limits_.max_drafts + num_drafts_[request]++] = greedy_tokens_[i];
    }
    std::erase_if(running_, [this](const Running& running) { return num_drafts_[running.request] == running.num_drafts; });
    ++times.num_passes;
  }
  times.pass_s = watch.seconds();
}

void DraftModel::select_greedy_tokens() {
  const std::size_t width = model_->info().vocab_size;
  pool_->parallel_for(static_cast<std::uint32_t>(running_.size()), 1, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (; begin < end; ++begin) {
      const std::span row(logits_.get() + begin * width, num_tokens_);
      greedy_tokens_[begin] = static_cast<TokenId>(std::ranges::max_element(row) - row.begin());
    }
  });
}

}  // namespace quire
