#pragma once
// A histogram of seconds, or of numbers of blocks, with fixed buckets, as Prometheus counts them.
#include <cstddef>
#include <initializer_list>

#include "quire/engine.h"

namespace quire {

inline HistogramSnapshot make_histogram(std::initializer_list<double> bounds) {
  HistogramSnapshot histogram;
  histogram.bounds = bounds;
  histogram.counts.assign(bounds.size() + 1, 0);
  return histogram;
}

// Every bucket whose upper bound is at least `value` counts it, +Inf always. `times` equal observations at once.
inline void observe(HistogramSnapshot& histogram, double value, std::uint64_t times = 1) {
  for (std::size_t i = histogram.counts.size(); i-- > 0;) {
    if (i < histogram.bounds.size() && histogram.bounds[i] < value) break;
    histogram.counts[i] += times;
  }
  histogram.sum += value * static_cast<double>(times);
}

// Zeros, with the buckets of vLLM's metrics where it has them.
EngineStats make_engine_stats();
KvResidencyStats make_residency_stats();
HistogramSnapshot make_block_histogram();

}  // namespace quire
