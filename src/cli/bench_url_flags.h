#pragma once
// The flags of quire bench --url. Names are the names of `vllm bench serve` where that command has the flag.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "quire/base/error.h"
#include "quire/simulation.h"
#include "traffic/workloads.h"

namespace quire {

struct BenchUrlFlags {
  enum class Workload : std::uint8_t { random, prefix, sharegpt, trace };

  std::string url{}, api_key{}, model{}, endpoint = "/v1/completions", dataset{}, extra_body{}, json{}, plot{};
  Workload workload = Workload::random;
  std::optional<std::uint32_t> input_len{}, output_len{}, max_concurrency{};
  double range_ratio = 0.0;
  PrefixLengths prefix;
  WorkloadOptions trace;
  std::uint32_t num_prompts = 1000, num_warmups = 0;
  std::optional<double> request_rate{};
  double burstiness = 1.0, timeout_s = 600.0;
  // quire bench has these two flags also without --url.
  std::optional<double> temperature{};
  std::uint64_t seed = 0;
  std::optional<bool> ignore_eos{};  // empty: the workload decides
  std::vector<std::string> goodput{};
  bool has_details = false;

  [[nodiscard]] bool is_chat() const { return endpoint.ends_with("/chat/completions"); }
};

// Adds --url and the flags that need it, in one group. `flags` must outlive parsing.
void add_bench_url_flags(CLI::App& command, BenchUrlFlags& flags);

// Returns an error if the user mixed the two groups of flags: flags that need --url without it, or flags of the engine with it.
Result<void> check_flag_groups(const CLI::App& command);

// Returns an error if a value is out of range. Errors name the flag.
Result<void> check_bench_url_flags(const BenchUrlFlags& flags);

}  // namespace quire
