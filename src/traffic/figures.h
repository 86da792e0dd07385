#pragma once
// The results of a load run. Definitions follow `vllm bench serve`.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/error.h"
#include "quire/simulation.h"
#include "traffic/traffic_run.h"

namespace quire {

// Limits in milliseconds that a request must meet to count as good.
struct GoodputLimits {
  std::optional<double> ttft_ms{}, tpot_ms{}, e2el_ms{};

  [[nodiscard]] bool any() const { return ttft_ms || tpot_ms || e2el_ms; }
};

// Parses limits such as "ttft:500". Errors name --goodput.
Result<GoodputLimits> parse_goodput(std::span<const std::string> texts);

// Statistics of one latency, in milliseconds.
struct LatencyFigures {
  Distribution values;
  double deviation = 0.0;  // standard deviation
};

// The load in one of up to 200 equal intervals of the run.
struct TrafficSample {
  double time_s = 0.0;       // end of the interval
  double num_running = 0.0;  // mean number of requests in progress
  double output_tokens_per_s = 0.0;
};

struct TrafficFigures {
  std::uint64_t num_completed = 0, num_failed = 0, num_unfinished = 0;  // unfinished: not sent or in progress at the end
  // Reasons of failures with their counts, the most frequent first. Reasons that differ only in numbers count as one.
  std::vector<std::pair<std::string, std::uint64_t>> failures;
  double duration_s = 0.0;
  std::uint32_t peak_concurrency = 0;
  std::uint64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;  // of completed requests
  bool has_usage = true;           // the server reported the number of tokens of each completed request
  bool has_cached_tokens = false;  // and of cached tokens, of at least one
  std::optional<double> goodput_per_s{};
  double max_output_tokens_per_s = 0.0;              // in the best second
  LatencyFigures ttft_ms, tpot_ms, itl_ms, e2el_ms;  // TPOT: of requests with two or more output tokens
  std::vector<TrafficSample> timeline;

  [[nodiscard]] double per_s(std::uint64_t count) const { return duration_s > 0.0 ? static_cast<double>(count) / duration_s : 0.0; }
};

TrafficFigures figures_of(const TrafficResult& result, const GoodputLimits& limits);

}  // namespace quire
