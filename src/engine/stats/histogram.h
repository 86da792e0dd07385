#pragma once
// Histograms of seconds or block counts, with fixed cumulative buckets as in Prometheus.
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

// Adds `times` equal observations to every bucket whose upper bound is at least `value`, and to +Inf.
inline void observe(HistogramSnapshot& histogram, double value, std::uint64_t times = 1) {
  for (std::size_t i = histogram.counts.size(); i-- > 0;) {
    if (i < histogram.bounds.size() && histogram.bounds[i] < value) break;
    histogram.counts[i] += times;
  }
  histogram.sum += value * static_cast<double>(times);
}

// Return statistics of zeros. Histograms have the buckets of vLLM's metric, if vLLM has the metric.
EngineStats make_engine_stats();
KvResidencyStats make_residency_stats();
HistogramSnapshot make_block_histogram();

}  // namespace quire
