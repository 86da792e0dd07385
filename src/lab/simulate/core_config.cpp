// Checks the input of a simulation and creates the configuration of its core. Called once per simulation, on its thread. Workloads and
// options come from files and flags. Every value that could break the core or the virtual clock causes an error here that names the field.
#include "lab/simulate/core_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace quire {
namespace {

constexpr std::uint32_t kDefaultBlockSize = 16, kDefaultTokens = 400'000;
constexpr std::uint32_t kMaxTokens = 1U << 28U;  // keeps the sum of two counts within the core's limits
constexpr std::uint32_t kMaxInstances = 4096;
constexpr std::uint64_t kMaxBlocks = 1U << 26U;  // over all instances; about 10 GiB of bookkeeping

Result<void> wrong(const char* field, std::string what, std::string remedy) {
  return fail(ErrorCode::invalid_argument, field, std::move(what), std::move(remedy));
}

Result<void> check_request(const Workload& workload, std::uint32_t index) {
  const WorkloadRequest& request = workload.requests[index];
  const auto field = fmt::format("requests[{}]", index);
  if (request.prompt_tokens == 0 || request.prompt_tokens > kMaxTokens || request.output_tokens == 0 || request.output_tokens > kMaxTokens)
    return wrong(field.c_str(), fmt::format("has {} prompt tokens and {} output tokens", request.prompt_tokens, request.output_tokens),
                 fmt::format("use 1 to {}", kMaxTokens));
  if (!(request.start_s >= 0.0 && std::isfinite(request.start_s)))
    return wrong(field.c_str(), fmt::format("starts at {} s", request.start_s), "use a time of at least 0");
  if (request.after != kNoRequest && request.after >= index)
    return wrong(field.c_str(), fmt::format("follows request {}", request.after), "list a request after the one that it follows");
  if (request.has_tokens && request.first_token + request.prompt_tokens > workload.tokens.size())
    return wrong(field.c_str(), "refers to tokens outside the workload", "add all tokens of its prompt");
  if (std::uint64_t{request.first_run} + request.num_runs > workload.runs.size())
    return wrong(field.c_str(), "refers to runs of ids outside the workload", "add all runs of its ids");
  return {};
}

Result<void> check_tier(const SimulationOptions& options) {
  const TierModel& tier = options.tier;
  const std::pair<const char*, double> speeds[] = {{"load_bytes_per_s", tier.load_bytes_per_s},
                                                   {"store_bytes_per_s", tier.store_bytes_per_s}};
  for (const auto& [name, value] : speeds)
    if (!(value > 0.0 && std::isfinite(value)))
      return wrong(name, fmt::format("is {}", value), "use a positive number of bytes per second");
  if (!(tier.latency_s >= 0.0 && tier.latency_s < 1e6))
    return wrong("latency_s", fmt::format("is {}", tier.latency_s), "use 0 or more seconds");
  if (options.kv_bytes_per_token < 4 || options.kv_bytes_per_token > 1U << 28U)
    return wrong("kv_bytes_per_token", fmt::format("is {}", options.kv_bytes_per_token), "use 4 to 268435456");
  return {};
}

Result<void> check_worker(const WorkerModel& worker) {
  const std::pair<const char*, double> seconds[] = {{"host_s", worker.host_s},
                                                    {"step_s", worker.step_s},
                                                    {"prefill_token_s", worker.prefill_token_s},
                                                    {"decode_row_s", worker.decode_row_s},
                                                    {"context_token_s", worker.context_token_s},
                                                    {"prefill_pair_s", worker.prefill_pair_s}};
  for (const auto& [name, value] : seconds)
    if (!(value >= 0.0 && value < 1e6)) return wrong(name, fmt::format("is {}", value), "use 0 or more seconds");
  if (worker.step_s + worker.host_s + worker.prefill_token_s + worker.decode_row_s <= 0.0)
    return wrong("step_s", "is 0, and no other term is positive: steps would take no time", "set at least one term of the worker model");
  return {};
}

}  // namespace

Result<void> check_simulation(const Workload& workload, const SimulationOptions& options) {
  if (workload.requests.empty()) return wrong("workload", "contains no requests", "use a workload with requests");
  if (workload.requests.size() >= kNoRequest) return wrong("workload", "contains too many requests", "use a part of it");
  for (std::uint32_t i = 0; i < workload.requests.size(); ++i)
    if (auto valid = check_request(workload, i); !valid) return valid;
  if (options.num_instances == 0 || options.num_instances > kMaxInstances)
    return wrong("instances", fmt::format("is {}", options.num_instances), fmt::format("use 1 to {}", kMaxInstances));
  if (const std::uint64_t blocks = std::uint64_t{options.num_blocks} * options.num_instances; blocks > kMaxBlocks)
    return wrong("kv-blocks", fmt::format("is {} over all instances", blocks), fmt::format("use at most {}", kMaxBlocks));
  if (!(options.slo_ttft_s >= 0.0) || !(options.slo_tpot_s >= 0.0))
    return wrong("slo", "must be at least 0", "use 0 or more seconds; 0 turns the limit off");
  if (auto valid = check_tier(options); !valid) return valid;
  return check_worker(options.worker);
}

CoreConfig simulated_core(const Workload& workload, const SimulationOptions& options) {
  CoreConfig config;
  config.scheduler = options.scheduler;
  config.pressure = options.pressure;
  config.continuum = options.continuum;
  config.block_size = options.block_size != 0 ? options.block_size : workload.id_tokens != 0 ? workload.id_tokens : kDefaultBlockSize;
  config.kv.num_blocks = options.num_blocks != 0 ? options.num_blocks : kDefaultTokens / config.block_size + 1;
  FullAttentionSpec attention;
  attention.block_size = config.block_size;
  // Each element of a key or value has two bytes.
  attention.head_size = static_cast<std::uint32_t>(options.kv_bytes_per_token / 4);
  config.kv.groups.push_back({.layer_names = {"all"}, .spec = attention, .layer_specs = {}});
  config.prefix_cache.enable_prefix_caching = options.enable_prefix_caching;
  config.prefix_cache.slru_share = options.slru_share;
  // Without a tier, decisions equal vLLM's, so that results can be compared with vLLM runs.
  if (options.tier.bytes > 0) config.fixes = engine_fixes(true);
  const std::uint64_t block_bytes = options.kv_bytes_per_token * config.block_size;
  if (options.tier.swap_bytes >= block_bytes) {
    config.swap.num_swap_slots = static_cast<std::uint32_t>(std::min<std::uint64_t>(options.tier.swap_bytes / block_bytes, 1U << 24U));
    config.swap.swap_choice = options.tier.swap_choice;
  }
  config.limits.max_outstanding_plans = config.scheduler.async_scheduling ? 2 : 1;
  // The simulator does not read these statistics, so their cost is avoided.
  config.report.log_stats = config.report.count_common_prefix = false;
  if (config.scheduler.max_model_len == 0)
    for (const WorkloadRequest& request : workload.requests)
      config.scheduler.max_model_len = std::max(config.scheduler.max_model_len, request.prompt_tokens + request.output_tokens + 1);
  return config;
}

}  // namespace quire
