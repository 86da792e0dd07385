#include "engine/stats/histogram.h"

namespace quire {

EngineStats make_engine_stats() {
  EngineStats stats;
  stats.time_to_first_token_s = make_histogram(
      {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0});
  stats.inter_token_latency_s = make_histogram(
      {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0});
  const std::initializer_list<double> request_bounds = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                                        30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
  stats.e2e_latency_s = make_histogram(request_bounds);
  stats.queue_time_s = make_histogram(request_bounds);
  stats.step_time_s =
      make_histogram({0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0});
  stats.forward_time_s = stats.sample_time_s = stats.step_time_s;
  stats.scheduler_time_s =
      make_histogram({1e-6, 2e-6, 5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 5e-2, 0.1, 0.5, 1.0});
  return stats;
}

KvResidencyStats make_residency_stats() {
  const HistogramSnapshot empty = make_histogram(
      {0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0});
  return {.lifetime_s = empty, .idle_before_evict_s = empty, .reuse_gap_s = empty};
}

HistogramSnapshot make_block_histogram() {
  return make_histogram({0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0});
}

}  // namespace quire
