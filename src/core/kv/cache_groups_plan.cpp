// Computes tensors and the number of blocks from groups and memory, for one or more workers. Called once on the caller's thread while an
// engine is set up. All workers get the block count of the worker with the least memory: the core assigns block ids, and an id must denote
// the same block on each worker.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "core/kv/cache_groups.h"
#include "core/kv/cache_groups_size.h"

namespace quire {
namespace {

using Groups = std::vector<KvCacheGroup>;

double gib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(std::uint64_t{1} << 30);
}

// Returns whether there is one group with a separate tensor per layer (layer_specs).
bool has_own_tensors(const Groups& groups) {
  return groups.size() == 1 && !groups.front().layer_specs.empty();
}

std::size_t layers_per_group(const Groups& groups) {
  std::size_t most = 0;
  for (const KvCacheGroup& group : groups) most = std::max(most, group.layer_names.size());
  return most;
}

// Returns the bytes that one request of options.max_model_len tokens takes, padding layers included.
std::uint64_t needed_bytes(const Groups& groups, const KvMemoryOptions& options) {
  std::uint64_t sum = 0;
  if (has_own_tensors(groups)) {
    for (const LayerKvSpec& spec : groups.front().layer_specs) sum = saturating_sum(sum, max_memory_usage_bytes(spec, options));
    return sum;
  }
  for (const KvCacheGroup& group : groups) sum = saturating_sum(sum, max_memory_usage_bytes(group, options));
  return saturating_product(layers_per_group(groups), sum);
}

// Returns the length of the longest request that fits, at most options.max_model_len tokens. Returns 0 if not even one token fits.
std::uint32_t longest_that_fits(const Groups& groups, KvMemoryOptions options, std::uint64_t available) {
  // Bisection is correct because a longer request never needs less memory.
  std::uint64_t low = 0;
  std::uint64_t high = options.max_model_len;
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    options.max_model_len = static_cast<std::uint32_t>(middle);
    if (needed_bytes(groups, options) <= available)
      low = middle;
    else
      high = middle - 1;
  }
  QUIRE_CHECK(low == high, "the binary search ends at one number");
  return static_cast<std::uint32_t>(low);
}

Result<void> check_fits(const Groups& groups, std::int64_t available, const KvMemoryOptions& options) {
  if (available <= 0)
    return fail(ErrorCode::too_large, "kv_cache_memory", "no memory is left for the KV cache", "increase the memory for the KV cache");
  const auto bytes = static_cast<std::uint64_t>(available);
  const std::uint64_t needed = needed_bytes(groups, options);
  if (needed <= bytes) return {};
  const std::uint32_t longest = longest_that_fits(groups, options, bytes);
  return fail(ErrorCode::too_large, "max_model_len",
              fmt::format("a request of {} tokens needs {:.2f} GiB of KV cache, but {:.2f} GiB are available", options.max_model_len,
                          gib(needed), gib(bytes)),
              longest > 0 ? fmt::format("increase the memory for the KV cache or set max_model_len to at most {}", longest)
                          : "increase the memory for the KV cache");
}

Result<void> check_context_parallel(const Groups& groups, const KvMemoryOptions& options) {
  const auto is_window = [](const KvCacheGroup& group) { return std::holds_alternative<SlidingWindowSpec>(group.spec); };
  if (options.dcp_world_size == 0 || options.pcp_world_size == 0)
    return fail(ErrorCode::invalid_argument, "decode_context_parallel_size", "must be at least 1, got 0", "use 1 or more");
  if (options.dcp_world_size > 1 && std::ranges::any_of(groups, is_window))
    return fail(ErrorCode::unsupported, "decode_context_parallel_size", "must be 1 with sliding windows", "set it to 1");
  return {};
}

// Returns the layers of all workers, each name once. Error: two workers have different specs for a layer.
Result<LayerSpecs> all_layers(std::span<const LayerSpecs> workers) {
  LayerSpecs layers;
  std::unordered_map<std::string_view, const LayerKvSpec*> known;
  for (const LayerSpecs& worker : workers) {
    if (auto valid = check_layers(worker); !valid) return std::unexpected(std::move(valid.error()));
    for (const LayerSpec& layer : worker) {
      const auto [found, added] = known.emplace(layer.name, &layer.spec);
      if (added)
        layers.push_back(layer);
      else if (*found->second != layer.spec)
        return fail(ErrorCode::unsupported, layer.name, "workers have different specs for this layer", "use the same spec on all ranks");
    }
  }
  return layers;
}

// Returns the groups with only this worker's layers. A group can become empty.
Groups project(const Groups& groups, const LayerSpecs& worker) {
  std::unordered_set<std::string_view> own;
  for (const LayerSpec& layer : worker) own.insert(layer.name);
  Groups projected;
  for (const KvCacheGroup& group : groups) {
    KvCacheGroup part{.layer_names = {}, .spec = group.spec, .layer_specs = {}};
    for (std::size_t i = 0; i < group.layer_names.size(); ++i) {
      if (own.contains(group.layer_names[i])) {
        part.layer_names.push_back(group.layer_names[i]);
        if (!group.layer_specs.empty()) part.layer_specs.push_back(group.layer_specs[i]);
      }
    }
    if (part.layer_names.empty())
      part.layer_specs = group.layer_specs;
    else if (!part.layer_specs.empty())
      part.spec = part.layer_specs.front();
    projected.push_back(std::move(part));
  }
  QUIRE_CHECK(projected.size() == groups.size(), "each worker has all groups");
  return projected;
}

Result<std::uint32_t> fitted_model_len(const std::vector<Groups>& workers, std::span<const std::int64_t> available,
                                       const KvMemoryOptions& options) {
  QUIRE_CHECK(workers.size() == available.size(), "each worker has groups and available memory");
  std::uint32_t longest = options.max_model_len;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i].empty()) {
      const auto bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(available[i], 0));
      longest = std::min(longest, longest_that_fits(workers[i], options, bytes));
    }
  }
  if (longest == 0) {
    return fail(ErrorCode::too_large, "max_model_len", "the memory for the KV cache is too small for one token",
                "increase the memory for the KV cache");
  }
  return longest;
}

void shrink_to(KvCacheConfig& config, std::uint32_t num_blocks) {
  QUIRE_CHECK(num_blocks <= config.num_blocks, "the new number of blocks is the minimum over all workers");
  for (KvCacheTensor& tensor : config.tensors) tensor.size = config.num_blocks == 0 ? 0 : tensor.size / config.num_blocks * num_blocks;
  config.num_blocks = num_blocks;
}

Result<std::uint32_t> num_blocks(std::uint64_t bytes_per_block, std::int64_t available, const KvMemoryOptions& options) {
  QUIRE_CHECK(bytes_per_block > 0, "a block has at least one byte");
  if (options.num_blocks_override) return *options.num_blocks_override;
  const std::uint64_t blocks = static_cast<std::uint64_t>(std::max<std::int64_t>(available, 0)) / bytes_per_block;
  if (blocks > UINT32_MAX) {
    return fail(ErrorCode::too_large, "kv_cache_memory", fmt::format("{} blocks are more than the maximum of 4294967295", blocks),
                "use larger blocks or less memory");
  }
  return static_cast<std::uint32_t>(blocks);
}

std::vector<KvCacheTensor> tensors_of(const Groups& groups, std::uint32_t num_blocks) {
  QUIRE_CHECK(!groups.empty(), "there is at least one cache group");
  std::vector<KvCacheTensor> tensors;
  if (has_own_tensors(groups)) {
    const KvCacheGroup& group = groups.front();
    QUIRE_CHECK(group.layer_specs.size() == group.layer_names.size(), "each layer has a spec");
    for (std::size_t i = 0; i < group.layer_names.size(); ++i)
      tensors.push_back({.size = page_size_bytes(group.layer_specs[i]) * num_blocks, .shared_by = {group.layer_names[i]}});
    return tensors;
  }
  // The i-th layers of all groups share a tensor, because the block tables of different groups never contain the same block.
  for (std::size_t i = 0; i < layers_per_group(groups); ++i) {
    KvCacheTensor& tensor = tensors.emplace_back();
    tensor.size = page_size_bytes(groups.front().spec) * num_blocks;
    for (const KvCacheGroup& group : groups)
      if (i < group.layer_names.size()) tensor.shared_by.push_back(group.layer_names[i]);
  }
  return tensors;
}

}  // namespace

Result<KvCacheConfig> kv_cache_config(std::vector<KvCacheGroup> groups, std::int64_t available_bytes, const KvMemoryOptions& options) {
  KvCacheConfig config{.num_blocks = 1, .groups = std::move(groups), .tensors = {}};
  if (config.groups.empty()) return config;
  std::uint64_t bytes_per_block = page_size_bytes(config.groups.front());
  if (!has_own_tensors(config.groups)) {
    const std::size_t num_layers = layers_per_group(config.groups);
    if (num_layers == 0)
      return fail(ErrorCode::invalid_argument, "layers", "a worker has no layer with a KV cache",
                  "give each pipeline stage at least one such layer");
    bytes_per_block = saturating_product(bytes_per_block, num_layers);
  }
  const auto blocks = num_blocks(bytes_per_block, available_bytes, options);
  if (!blocks) return std::unexpected(blocks.error());
  config.num_blocks = *blocks;
  config.tensors = tensors_of(config.groups, *blocks);
  return config;
}

Result<KvCachePlan> plan_kv_cache(std::span<const LayerSpecs> workers, std::span<const std::int64_t> available_bytes,
                                  const KvMemoryOptions& given) {
  QUIRE_CHECK(!workers.empty() && workers.size() == available_bytes.size(), "there are workers, each with its available memory");
  KvMemoryOptions options = given;
  auto layers = all_layers(workers);
  if (!layers) return std::unexpected(std::move(layers.error()));
  auto groups = kv_cache_groups(*layers, options.disable_hybrid_kv_cache_manager);
  if (!groups) return std::unexpected(std::move(groups.error()));
  if (auto valid = check_context_parallel(*groups, options); !valid) return std::unexpected(std::move(valid.error()));
  std::vector<Groups> projected;
  for (const LayerSpecs& worker : workers) projected.push_back(project(*groups, worker));
  if (options.auto_fit_max_model_len) {
    const auto longest = fitted_model_len(projected, available_bytes, options);
    if (!longest) return std::unexpected(longest.error());
    options.max_model_len = *longest;
  }
  KvCachePlan plan{.workers = {}, .max_model_len = options.max_model_len};
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (auto fits = projected[i].empty() ? Result<void>() : check_fits(projected[i], available_bytes[i], options); !fits)
      return std::unexpected(std::move(fits.error()));
    auto config = kv_cache_config(std::move(projected[i]), available_bytes[i], options);
    if (!config) return std::unexpected(std::move(config.error()));
    plan.workers.push_back(std::move(*config));
  }
  QUIRE_CHECK(plan.workers.size() == workers.size(), "there is a configuration for each worker");
  const std::uint32_t fewest = std::ranges::min(plan.workers, {}, &KvCacheConfig::num_blocks).num_blocks;
  for (KvCacheConfig& config : plan.workers) shrink_to(config, fewest);
  return plan;
}

KvCacheConfig scheduler_kv_cache_config(const KvCacheConfig& worker) {
  KvCacheConfig config = worker;
  for (KvCacheGroup& group : config.groups) {
    if (!group.layer_specs.empty()) {
      QUIRE_CHECK(group.layer_names.empty() || group.layer_specs.size() == group.layer_names.size(),
                  "a group has one spec, or one for each layer");
      group.spec = group.layer_specs.front();
      group.layer_specs.clear();
    }
  }
  return config;
}

Result<void> add_shared_layers(KvCacheConfig& config, std::span<const std::pair<std::string, std::string>> shared) {
  std::unordered_map<std::string, std::size_t> group_of;
  for (std::size_t i = 0; i < config.groups.size(); ++i)
    for (const std::string& name : config.groups[i].layer_names) group_of.emplace(name, i);
  for (const auto& [layer, target] : shared) {
    if (!group_of.contains(target)) {
      return fail(ErrorCode::invalid_argument, layer, fmt::format("it shares the KV cache of layer {}, which has no KV cache", target),
                  "name a layer with a KV cache");
    }
    if (group_of.contains(layer))
      return fail(ErrorCode::invalid_argument, layer, "it has a KV cache and also shares the KV cache of another layer", "remove its spec");
  }
  for (const auto& [layer, target] : shared) config.groups[group_of.at(target)].layer_names.push_back(layer);
  return {};
}

double max_concurrency(const KvCacheConfig& config, const KvMemoryOptions& options) {
  QUIRE_CHECK(!config.groups.empty(), "the model has at least one cache group");
  const std::uint64_t num_layers = layers_per_group(config.groups);
  std::uint64_t per_request = 0;
  for (const KvCacheGroup& group : config.groups) per_request = saturating_sum(per_request, max_memory_usage_bytes(group, options));
  const std::uint64_t per_block = page_size_bytes(config.groups.front()) * num_layers;
  return static_cast<double>(config.num_blocks) / static_cast<double>(divide_up(saturating_product(per_request, num_layers), per_block));
}

std::uint64_t num_cache_tokens(const KvCacheConfig& config, const KvMemoryOptions& options) {
  std::uint64_t smallest = UINT64_MAX;
  for (const KvCacheGroup& group : config.groups) smallest = std::min<std::uint64_t>(smallest, block_size_of(group.spec));
  const std::uint64_t per_rank = config.groups.empty() ? 0 : config.num_blocks / config.groups.size() * smallest;
  return per_rank * options.dcp_world_size * options.pcp_world_size;
}

}  // namespace quire
