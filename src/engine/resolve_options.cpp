#include "engine/resolve_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "quire/engine.h"
#include "runtime/memory/kv_cache.h"

namespace quire {
namespace {

constexpr std::uint32_t kMaxBlocks = 1U << 24U;
constexpr std::uint32_t kMaxBlockSize = 1024;
constexpr std::uint32_t kMaxThreads = 1024;
constexpr std::uint32_t kMaxSeqs = 1U << 16U;
constexpr std::uint32_t kMaxBatchedTokens = 1U << 20U;
constexpr std::uint32_t kMaxWaiting = 1U << 24U;

Result<void> check_range(const char* option, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value < low || value > high)
    return fail(ErrorCode::invalid_argument, option, fmt::format("is {}", value), fmt::format("give a value from {} to {}", low, high));
  return {};
}

Result<void> check_ranges(const EngineOptions& options) {
  const SchedulerOptions& scheduler = options.scheduler;
  for (const auto& result : {check_range("block_size", options.cache.block_size, 1, kMaxBlockSize),
                             check_range("max_num_seqs", scheduler.max_num_seqs, 1, kMaxSeqs),
                             check_range("max_num_batched_tokens", scheduler.max_num_batched_tokens, 1, kMaxBatchedTokens),
                             check_range("max_num_waiting", scheduler.max_num_waiting, 1, kMaxWaiting),
                             check_range("num_threads", options.num_threads, 0, kMaxThreads)}) {
    if (!result) return result;
  }
  return {};
}

// The file's or folder's own name: what its owner calls the model. Names inside GGUF files are often those of a training run.
std::string default_served_name(const std::string& path, const ModelInfo& model) {
  const std::filesystem::path file(path);
  const std::string name = file.extension() == ".gguf" ? file.stem().string() : (file / "").parent_path().filename().string();
  return name.empty() ? model.name : name;
}

Result<void> resolve_blocks(CacheOptions& cache, const ModelInfo& model) {
  if (cache.num_blocks == 0) {
    const std::uint64_t block_bytes = kv_block_bytes(model, cache);
    const std::uint64_t fitting = cache.kv_cache_bytes / std::max<std::uint64_t>(block_bytes, 1);
    if (fitting < 2) {
      return fail(ErrorCode::invalid_argument, "kv_cache_bytes",
                  fmt::format("{} bytes hold {} blocks of {} bytes", cache.kv_cache_bytes, fitting, block_bytes),
                  fmt::format("give at least {} bytes", 2 * block_bytes));
    }
    cache.num_blocks = static_cast<std::uint32_t>(std::min<std::uint64_t>(fitting, kMaxBlocks));
  }
  return check_range("num_blocks", cache.num_blocks, 2, kMaxBlocks);
}

Result<void> resolve_model_len(SchedulerOptions& scheduler, const CacheOptions& cache, const ModelInfo& model) {
  const std::uint64_t capacity = kv_capacity_tokens(cache);
  const std::uint64_t most = std::min<std::uint64_t>(model.context_length, capacity);
  if (scheduler.max_model_len == 0) scheduler.max_model_len = static_cast<std::uint32_t>(most);
  if (scheduler.max_model_len > model.context_length) {
    return fail(ErrorCode::invalid_argument, "max_model_len", fmt::format("is {}", scheduler.max_model_len),
                fmt::format("the context of {} is {} tokens", model.name, model.context_length));
  }
  if (scheduler.max_model_len > capacity) {
    return fail(ErrorCode::invalid_argument, "max_model_len",
                fmt::format("is {}, but the KV cache holds {} tokens", scheduler.max_model_len, capacity),
                "lower it or raise kv_cache_bytes");
  }
  if (scheduler.max_model_len < 2) {
    return fail(ErrorCode::invalid_argument, "max_model_len", fmt::format("is {}", scheduler.max_model_len),
                "a prompt and one output need at least 2");
  }
  return {};
}

}  // namespace

std::uint64_t kv_capacity_tokens(const CacheOptions& cache) {
  return (std::uint64_t{cache.num_blocks} - 1) * cache.block_size;
}

Result<EngineOptions> resolve_options(EngineOptions options, const ModelInfo& model, std::uint32_t num_cores) {
  if (auto valid = check_ranges(options); !valid) return std::unexpected(valid.error());
  if (options.num_threads == 0) options.num_threads = std::clamp<std::uint32_t>(num_cores, 1, kMaxThreads);
  if (options.served_model_name.empty()) options.served_model_name = default_served_name(options.model, model);
  if (auto resolved = resolve_blocks(options.cache, model); !resolved) return std::unexpected(resolved.error());
  if (auto resolved = resolve_model_len(options.scheduler, options.cache, model); !resolved) return std::unexpected(resolved.error());
  if (auto valid = core_config(options).validate(); !valid) return std::unexpected(valid.error());
  return options;
}

CoreConfig core_config(const EngineOptions& options) {
  CoreConfig config;
  config.scheduler = options.scheduler;
  config.max_outstanding_plans = options.scheduler.async_scheduling ? 2 : 1;
  config.forget_unwritten_blocks = true;
  config.discard_only_in_flight = true;
  config.count_common_prefix = false;
  config.log_stats = false;  // the engine counts for itself
  // The inbox bounds what is open: new requests that wait, preempted ones, and the batch. The core never has to refuse one.
  config.scheduler.max_num_waiting += options.scheduler.max_num_seqs;
  config.block_size = options.cache.block_size;
  config.kv.num_blocks = options.cache.num_blocks;
  FullAttentionSpec spec;
  spec.block_size = options.cache.block_size;
  config.kv.groups.push_back({.layer_names = {}, .spec = spec, .layer_specs = {}});
  config.enable_prefix_caching = options.cache.enable_prefix_caching;
  return config;
}

WorkerLimits worker_limits(const EngineOptions& options) {
  return {options.scheduler.max_num_seqs, options.scheduler.max_model_len, options.scheduler.max_num_batched_tokens};
}

}  // namespace quire
