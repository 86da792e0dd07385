// Generates synthetic workloads.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/random.h"
#include "lab/workload/formats.h"

namespace quire {
namespace {

constexpr std::uint32_t kGeneratedIdTokens = 16, kMostGenerated = 50'000'000;

// Returns a length from a log-normal distribution with this mean and a standard deviation of `spread` times the mean (Box-Muller).
std::uint32_t draw_length(Random& random, double mean, double spread) {
  const double variance = std::log1p(spread * spread);
  const double normal = std::sqrt(-2.0 * std::log(1.0 - random.unit())) * std::cos(2.0 * std::numbers::pi * random.unit());
  const double length = std::exp(std::log(mean) - variance / 2.0 + std::sqrt(variance) * normal);
  return static_cast<std::uint32_t>(std::clamp(std::round(length), 1.0, static_cast<double>(kMostTokens)));
}

Result<void> check_generator(const GeneratorOptions& options) {
  const auto wrong = [](const char* field, auto value, const char* remedy) {
    return fail(ErrorCode::invalid_argument, field, fmt::format("is {}", value), remedy);
  };
  const auto is_length = [](double value) { return value >= 1.0 && value <= 1e8; };
  if (options.num_requests == 0 || options.num_requests > kMostGenerated)
    return wrong("requests", options.num_requests, "use 1 to 50000000");
  if (!(options.rate_per_s > 0.0)) return wrong("rate", options.rate_per_s, "use requests per second, or inf for all at the same time");
  if (!is_length(options.input_tokens)) return wrong("input-tokens", options.input_tokens, "use a mean of 1 to 1e8");
  if (!is_length(options.output_tokens)) return wrong("output-tokens", options.output_tokens, "use a mean of 1 to 1e8");
  if (!(options.spread >= 0.0 && options.spread <= 100.0)) return wrong("spread", options.spread, "use 0 to 100");
  if (options.num_prefixes == 0) return wrong("prefixes", options.num_prefixes, "use 1 or more");
  return {};
}

}  // namespace

Result<Workload> generate_workload(const GeneratorOptions& options) {
  if (auto valid = check_generator(options); !valid) return std::unexpected(valid.error());
  Workload workload{.name = "generated", .id_tokens = kGeneratedIdTokens, .requests = {}, .runs = {}, .tokens = {}, .notes = {}};
  Random random(options.seed);
  double now_s = 0.0;
  for (std::uint32_t i = 0; i < options.num_requests; ++i) {
    WorkloadRequest request;
    request.start_s = now_s;
    request.session = i;
    request.ends_session = true;
    request.prompt_tokens = std::max(draw_length(random, options.input_tokens, options.spread), options.shared_tokens + 1);
    request.output_tokens = draw_length(random, options.output_tokens, options.spread);
    request.first_run = static_cast<std::uint32_t>(workload.runs.size());
    request.num_runs = 2;
    const std::uint32_t num_shared = options.shared_tokens / kGeneratedIdTokens;
    workload.runs.push_back({random.below(options.num_prefixes) << 32U, num_shared});
    workload.runs.push_back({(std::uint64_t{i} + 1) << 32U | 1U << 31U, request.prompt_tokens / kGeneratedIdTokens - num_shared});
    workload.requests.push_back(request);
    now_s += -std::log(1.0 - random.unit()) / options.rate_per_s;
  }
  workload.notes.push_back(fmt::format("Poisson arrivals at {}/s, log-normal lengths (seed {})", options.rate_per_s, options.seed));
  return workload;
}

}  // namespace quire
