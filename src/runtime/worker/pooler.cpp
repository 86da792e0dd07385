#include "runtime/worker/pooler.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace quire {
namespace {

constexpr std::uint32_t kSliceRows = 64;

}  // namespace

Pooler::Pooler(std::uint32_t max_num_seqs, std::uint32_t width) : width_(width), states_(max_num_seqs) {
  outputs_.reserve(kSliceRows);
  rows_.reserve(std::size_t{kSliceRows} * width);
}

void Pooler::admit(const AdmittedRequest& request) {
  State& state = states_[request.slot.value];
  state.params = &request.sampling->pooling;
  state.num_wanted = state.params->kind == PoolingKind::mean ? request.num_prompt_tokens : 1;
  state.num_rows = 0;
}

void Pooler::pool(std::span<const PoolRun> runs, PooledRows& rows, StepResults& results) {
  results.pooled.clear();
  results.pooled_sizes.clear();
  for (const PoolRun& run : runs) {
    State& state = states_[run.slot.value];
    const std::span<const TokenId> tokens = state.params->logits_of;
    if (tokens.empty()) add(run, rows, state);
    if (!run.is_last) continue;
    const std::size_t begin = results.pooled.size();
    const std::size_t size = tokens.empty() ? width_ : tokens.size();
    results.pooled_sizes.push_back(static_cast<std::uint32_t>(size));
    results.pooled.resize(begin + size);
    const std::span<float> out = std::span(results.pooled).subspan(begin);
    if (!tokens.empty()) {
      rows.read_logits(run.first_output, run, tokens, out);
      continue;
    }
    QUIRE_CHECK(state.num_rows == state.num_wanted, "rows of a pooling request were not computed");
    for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<float>(state.sum[i] / state.num_rows);
  }
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
      if (state.num_rows == 0)
        state.sum.assign(values.begin(), values.end());
      else
        for (std::uint32_t i = 0; i < width_; ++i) state.sum[i] += static_cast<double>(values[i]);
    }
    done += count;
  }
}

}  // namespace quire
