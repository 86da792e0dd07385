#pragma once
// Computes cache groups, tensors and the number of blocks from the cache specs of a model's layers and the available memory. The functions
// are pure and equal vLLM V1's (v0.19.0, v1/core/kv_cache_utils.py and kv_cache_interface.py).
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

// Options that decide how much memory one request can need and how many blocks there are.
struct KvMemoryOptions {
  std::uint32_t max_model_len = 0;      // in tokens; the model's limit if auto_fit_max_model_len is set
  bool auto_fit_max_model_len = false;  // use the longest length that fits (vLLM: max_model_len = -1)
  std::uint32_t max_num_batched_tokens = 0;
  std::uint32_t max_num_encoder_input_tokens = 0;
  MambaCacheMode mamba_cache_mode = MambaCacheMode::none;
  std::uint32_t dcp_world_size = 1, pcp_world_size = 1;
  std::optional<std::uint32_t> num_blocks_override;  // vLLM: num_gpu_blocks_override
  bool disable_hybrid_kv_cache_manager = false;
};

// Returns the bytes of one block of the layer, padding included. The spec must pass check_layers.
std::uint64_t page_size_bytes(const LayerKvSpec& spec);
// Returns the bytes of one block of the group: the sum over all layers if each layer has a separate tensor (layer_specs), else the bytes of
// one layer.
std::uint64_t page_size_bytes(const KvCacheGroup& group);
// Returns the maximum number of bytes that one request can need in a layer of this kind; for a group with layer_specs, in all its layers
// together.
std::uint64_t max_memory_usage_bytes(const LayerKvSpec& spec, const KvMemoryOptions& options);
std::uint64_t max_memory_usage_bytes(const KvCacheGroup& group, const KvMemoryOptions& options);

// Checks that names are unique, sizes are positive and representable, and padding is at least the size of a block. The error's field is the
// layer's name.
Result<void> check_layers(const LayerSpecs& layers);

// Gathers layers into groups with one block table each. Returns no groups for no layers. Error: `unsupported` if a layer fits into no
// group.
Result<std::vector<KvCacheGroup>> kv_cache_groups(const LayerSpecs& layers, bool disable_hybrid_kv_cache_manager);

// Computes blocks and tensors for groups that kv_cache_groups() returned. Without groups, the result has one block: the null block.
Result<KvCacheConfig> kv_cache_config(std::vector<KvCacheGroup> groups, std::int64_t available_bytes, const KvMemoryOptions& options);

struct KvCachePlan {
  std::vector<KvCacheConfig> workers;  // one per worker, all with the same number of blocks
  std::uint32_t max_model_len = 0;     // as given, or found by auto_fit_max_model_len
};

// Plans the cache for one or more workers, each with its available memory. Pipeline stages have different layers; tensor-parallel ranks
// have equal ones. Additional error: `too_large` if one request of max_model_len tokens does not fit; its remedy states the longest request
// that fits.
Result<KvCachePlan> plan_kv_cache(std::span<const LayerSpecs> workers, std::span<const std::int64_t> available_bytes,
                                  const KvMemoryOptions& options);

// Returns the core's configuration: a worker's configuration with one spec per group instead of one per layer.
KvCacheConfig scheduler_kv_cache_config(const KvCacheConfig& worker);

// Adds layers without a spec that read the cache of another layer (`first` reads the cache of `second`). Each joins the group of the layer
// that it reads.
Result<void> add_shared_layers(KvCacheConfig& config, std::span<const std::pair<std::string, std::string>> shared);

// Returns how many requests of max_model_len tokens fit at the same time. The configuration must have groups.
double max_concurrency(const KvCacheConfig& config, const KvMemoryOptions& options);
// Returns the number of tokens that fit into the cache, over all ranks of context parallelism.
std::uint64_t num_cache_tokens(const KvCacheConfig& config, const KvMemoryOptions& options);

}  // namespace quire
