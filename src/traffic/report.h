#pragma once
// Writes the results of a load run for a terminal and for programs.
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "traffic/figures.h"
#include "traffic/request_record.h"

namespace quire {

// The settings of a run that its results repeat.
struct TrafficSetup {
  std::string url, path, model, workload;
  std::uint32_t num_prompts = 0;
  std::optional<std::uint32_t> max_concurrency{};
  std::optional<double> request_rate{};  // empty: the arrivals of a trace
  double burstiness = 1.0;
  std::uint64_t seed = 0;
  GoodputLimits limits{};
};

// Returns the results as a text table.
std::string traffic_table(const TrafficFigures& figures, const TrafficSetup& setup);

// Returns the results as JSON, with the keys of `vllm bench serve` where it has them. `details` adds its lists with one value per request.
std::string traffic_json(const TrafficFigures& figures, const TrafficSetup& setup, std::span<const RequestRecord> details);

}  // namespace quire
