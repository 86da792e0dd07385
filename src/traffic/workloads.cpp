#include "traffic/workloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxLength = 1U << 24U;

Result<void> check_length(const char* flag, std::uint32_t value, std::uint32_t low) {
  if (value >= low && value <= kMaxLength) return {};
  return fail(ErrorCode::invalid_argument, flag, fmt::format("is {}", value), fmt::format("use {} to {} tokens", low, kMaxLength));
}

std::uint32_t draw_length(Random& random, std::uint32_t length, double range_ratio) {
  const auto low = static_cast<std::uint64_t>(std::max(1.0, std::floor(length * (1.0 - range_ratio))));
  const auto high = static_cast<std::uint64_t>(std::max(1.0, std::ceil(length * (1.0 + range_ratio))));
  return static_cast<std::uint32_t>(random.between(low, high));
}

// Adds a request whose prompt consists of the tokens of `runs`. Each id is one token.
void append(Workload& workload, std::initializer_list<IdRun> runs, std::uint32_t output_tokens) {
  WorkloadRequest& request = workload.requests.emplace_back();
  request.session = static_cast<std::uint32_t>(workload.requests.size() - 1);
  request.first_run = static_cast<std::uint32_t>(workload.runs.size());
  request.num_runs = static_cast<std::uint32_t>(runs.size());
  request.output_tokens = output_tokens;
  for (const IdRun& run : runs) request.prompt_tokens += run.count;
  workload.runs.insert(workload.runs.end(), runs);
}

// Returns the first id of a text that no other text has.
std::uint64_t ids_of(std::uint64_t number) {
  return number << 32U;
}

}  // namespace

Result<TrafficWorkload> random_workload(const RandomLengths& lengths, std::uint32_t num_prompts, std::uint64_t seed) {
  if (const auto valid = check_length("--input-len", lengths.input, 1); !valid) return std::unexpected(valid.error());
  if (const auto valid = check_length("--output-len", lengths.output, 1); !valid) return std::unexpected(valid.error());
  if (!(lengths.range_ratio >= 0.0 && lengths.range_ratio < 1.0))
    return fail(ErrorCode::invalid_argument, "--range-ratio", fmt::format("is {}", lengths.range_ratio), "use 0 or more, and less than 1");
  TrafficWorkload made;
  made.workload.name = "random";
  made.workload.id_tokens = 1;
  Random random(seed);
  for (std::uint32_t i = 0; i < num_prompts; ++i) {
    const std::uint32_t input = draw_length(random, lengths.input, lengths.range_ratio);
    append(made.workload, {{ids_of(i), input}}, draw_length(random, lengths.output, lengths.range_ratio));
  }
  return made;
}

Result<TrafficWorkload> prefix_workload(const PrefixLengths& lengths, std::uint32_t num_prompts, std::uint64_t seed) {
  if (const auto valid = check_length("--prefix-len", lengths.prefix, 1); !valid) return std::unexpected(valid.error());
  if (const auto valid = check_length("--suffix-len", lengths.suffix, 1); !valid) return std::unexpected(valid.error());
  if (const auto valid = check_length("--output-len", lengths.output, 1); !valid) return std::unexpected(valid.error());
  if (lengths.num_prefixes == 0 || lengths.num_prefixes > num_prompts)
    return fail(ErrorCode::invalid_argument, "--num-prefixes", fmt::format("is {}", lengths.num_prefixes),
                fmt::format("use 1 to {}, the number of prompts (--num-prompts)", num_prompts));
  std::vector<std::uint32_t> prefixes(num_prompts);
  for (std::uint32_t i = 0; i < num_prompts; ++i) prefixes[i] = i % lengths.num_prefixes;
  Random random(seed);
  for (std::uint32_t i = num_prompts; i > 1; --i) std::swap(prefixes[i - 1], prefixes[random.below(i)]);
  TrafficWorkload made;
  made.workload.name = "prefix";
  made.workload.id_tokens = 1;
  for (std::uint32_t i = 0; i < num_prompts; ++i)
    append(made.workload, {{ids_of(prefixes[i]), lengths.prefix}, {ids_of(std::uint64_t{lengths.num_prefixes} + i), lengths.suffix}},
           lengths.output);
  return made;
}

Result<TrafficWorkload> trace_workload(const WorkloadOptions& options) {
  auto workload = read_workload(options);
  if (!workload) return std::unexpected(std::move(workload.error()));
  // A session is read as a whole, so there may be more requests than the limit. `after` names earlier requests only.
  if (options.max_requests != 0 && workload->requests.size() > options.max_requests) workload->requests.resize(options.max_requests);
  return TrafficWorkload{.workload = *std::move(workload)};
}

}  // namespace quire
