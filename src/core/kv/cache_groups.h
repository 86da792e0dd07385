#pragma once
// From the cache specs of a model's layers and the memory there is to cache groups, tensors and a number of blocks. Pure functions, equal
// to those of vLLM V1 (v0.19.0, v1/core/kv_cache_utils.py and kv_cache_interface.py).
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quire/base/error.h"
#include "quire/base/kv_spec.h"

namespace quire {

struct LayerSpec {
  std::string name;
  LayerKvSpec spec;
};
using LayerSpecs = std::vector<LayerSpec>;  // in the model's order, which decides the groups; names are unique

// What decides how much one request may need, and how many blocks there are.
struct KvMemoryOptions {
  std::uint32_t max_model_len = 0;      // tokens; the model's own limit where auto_fit_max_model_len is set
  bool auto_fit_max_model_len = false;  // the longest that fits instead (vLLM: max_model_len = -1)
  std::uint32_t max_num_batched_tokens = 0;
  std::uint32_t max_num_encoder_input_tokens = 0;
  MambaCacheMode mamba_cache_mode = MambaCacheMode::none;
  std::uint32_t dcp_world_size = 1, pcp_world_size = 1;
  std::optional<std::uint32_t> num_blocks_override;  // vLLM: num_gpu_blocks_override
  bool disable_hybrid_kv_cache_manager = false;
};

// Bytes of one block of the layer, padding included. The spec must pass check_layers.
std::uint64_t page_size_bytes(const LayerKvSpec& spec);
// Of all layers of the group together where each has a tensor of its own (layer_specs), else of one layer.
std::uint64_t page_size_bytes(const KvCacheGroup& group);
// The most that one request can need in one such layer, or in the layers of such a group.
std::uint64_t max_memory_usage_bytes(const LayerKvSpec& spec, const KvMemoryOptions& options);
std::uint64_t max_memory_usage_bytes(const KvCacheGroup& group, const KvMemoryOptions& options);

// Names unique, sizes positive and representable, padding no smaller than what it pads. The error's field is the layer's name.
Result<void> check_layers(const LayerSpecs& layers);

// Gathers layers into groups with one block table each. No layers: no groups. Errors: `unsupported`, with the layers that fit nowhere.
Result<std::vector<KvCacheGroup>> kv_cache_groups(const LayerSpecs& layers, bool disable_hybrid_kv_cache_manager);

// Blocks and tensors for groups that kv_cache_groups made. No groups: one block, the null block.
Result<KvCacheConfig> kv_cache_config(std::vector<KvCacheGroup> groups, std::int64_t available_bytes, const KvMemoryOptions& options);

struct KvCachePlan {
  std::vector<KvCacheConfig> workers;  // one per worker, all with the same number of blocks
  std::uint32_t max_model_len = 0;     // as given, or what auto_fit_max_model_len found
};

// The whole way for one or more workers (stages of a pipeline have different layers, tensor-parallel ranks the same), each with its memory.
// Errors besides those above: `too_large` where one request of max_model_len tokens does not fit; the remedy says what would.
Result<KvCachePlan> plan_kv_cache(std::span<const LayerSpecs> workers, std::span<const std::int64_t> available_bytes,
                                  const KvMemoryOptions& options);

// What the core is configured with: a worker's configuration without the differences between layers of one group.
KvCacheConfig scheduler_kv_cache_config(const KvCacheConfig& worker);

// Layers that read the cache of another layer (first reads second's) have no spec; afterwards they are in its group.
Result<void> add_shared_layers(KvCacheConfig& config, std::span<const std::pair<std::string, std::string>> shared);

// Requests of max_model_len tokens that fit at once. There must be groups.
double max_concurrency(const KvCacheConfig& config, const KvMemoryOptions& options);
// Tokens that fit, over all ranks of context parallelism.
std::uint64_t num_cache_tokens(const KvCacheConfig& config, const KvMemoryOptions& options);

}  // namespace quire
