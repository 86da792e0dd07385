#pragma once
// Divides the work on states among the threads of a pass. Each thread processes some requests and some channels, and the tokens of a
// request in order.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "runtime/model/layers/layer.h"
#include "runtime/model/layers/pass.h"

namespace quire {

// Calls body(step, part, from, to) for every step of every run. One thread handles the steps of one run and part, in order. `from`: the
// state before the step's first row, null at the start of a request. `to`: receives the state after the last row. `work`: operations per
// part and row.
template <class Body>
void for_state_steps(Pass& pass, const LayerCache& cache, std::uint32_t parts, std::uint64_t work, Body body) {
  constexpr std::uint64_t kWorthSharing = 100'000;
  const GroupPass& group = *cache.recurrence;
  const auto units = static_cast<std::uint32_t>(group.runs.size()) * parts;
  const bool is_small = work * parts * pass.rows < kWorthSharing;
  const std::uint32_t grain = is_small ? units : std::max(1U, units / (pass.pool.num_threads() * 8));
  pass.pool.parallel_for(units, grain, [&](std::uint32_t begin, std::uint32_t end, std::uint32_t) {
    for (std::uint32_t unit = begin; unit < end; ++unit) {
      const StateRun& run = group.runs[unit / parts];
      for (std::uint32_t i = run.first; i < run.first + run.count; ++i) {
        const StateStep& step = group.steps[i];
        body(step, unit % parts, step.from == kNullBlock ? nullptr : cache.states.of(step.from), cache.states.of(step.to));
      }
    }
  });
}

// Returns log(1 + exp(x)), computed as torch does.
inline double softplus(double x) {
  return x > 20.0 ? x : std::log1p(std::exp(x));
}

// Runs the convolution of a layer in place. The convolution's state is the first part of the layer's state. Row r of the pass is at x + r *
// stride.
void run_conv(Pass& pass, const LayerCache& cache, const LayerConfig& config, const LayerWeights& weights, float* x, std::size_t stride);

}  // namespace quire
