#include "runtime/worker/pooler.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace quire {
namespace {

// Number of rows that are read at a time. A long prompt has too many hidden rows to copy together.
constexpr std::uint32_t kSliceRows = 64;

}  // namespace

Pooler::Pooler(std::uint32_t max_num_seqs, std::uint32_t width) : width_(width), states_(max_num_seqs) {
  outputs_.reserve(kSliceRows);
  rows_.reserve(std::size_t{kSliceRows} * width);
}

void Pooler::admit(const AdmittedRequest& request) {
  State& state = states_[request.slot.value];
  state.params = &request.sampling->pooling;
  const PoolingKind kind = state.params->kind;
  state.num_required = kind == PoolingKind::mean || kind == PoolingKind::all ? request.num_prompt_tokens : 1;
  state.num_rows = 0;
  state.all = {};
  if (kind == PoolingKind::all) state.all.reserve(std::size_t{state.num_required} * width_);
}

void Pooler::pool(std::span<const PoolRun> runs, PooledRows& rows, StepResults& results) {
  results.pooled.clear();
  for (const PoolRun& run : runs) {
    State& state = states_[run.slot.value];
    const std::span<const TokenId> tokens = state.params->logits_of;
    if (tokens.empty()) add(run, rows, state);
    if (!run.is_last) continue;
    if (tokens.empty()) {
      results.pooled.push_back(take(state));
      continue;
    }
    results.pooled.emplace_back(tokens.size());
    rows.read_logits(run.first_output, run, tokens, results.pooled.back());
  }
}

std::vector<float> Pooler::take(State& state) const {
  QUIRE_CHECK(state.num_rows == state.num_required, "all rows of a pooling request are computed");
  if (state.params->kind == PoolingKind::all) return std::exchange(state.all, {});
  std::vector<float> pooled(width_);
  for (std::size_t i = 0; i < pooled.size(); ++i) pooled[i] = static_cast<float>(state.sum[i] / state.num_rows);
  return pooled;
}

void Pooler::add(const PoolRun& run, PooledRows& rows, State& state) {
  for (std::uint32_t done = 0; done < run.num_rows;) {
    const std::uint32_t count = std::min(kSliceRows, run.num_rows - done);
    outputs_.resize(count);
    std::iota(outputs_.begin(), outputs_.end(), run.first_output + done);
    rows_.resize(std::size_t{count} * width_);
    rows.read_hidden(outputs_, run, rows_);
    for (std::uint32_t row = 0; row < count; ++row, ++state.num_rows) {
      const std::span<const float> values = std::span<const float>(rows_).subspan(std::size_t{row} * width_, width_);
      if (state.params->kind == PoolingKind::all)
        state.all.insert(state.all.end(), values.begin(), values.end());
      else if (state.num_rows == 0)
        state.sum.assign(values.begin(), values.end());
      else
        // Rows are added in double and in order, so the bits of the mean do not depend on how the prompt was split into steps.
        for (std::uint32_t i = 0; i < width_; ++i) state.sum[i] += static_cast<double>(values[i]);
    }
    done += count;
  }
}

}  // namespace quire
