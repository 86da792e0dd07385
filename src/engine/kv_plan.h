#pragma once
// Plans the engine's KV cache: computes the core's cache configuration and the worker's layout from the model's layers and the memory for
// the cache.
#include <cstdint>

#include "quire/base/error.h"
#include "quire/base/kv_layout.h"
#include "quire/base/kv_spec.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"

namespace quire {

struct KvPlan {
  KvCacheConfig config;          // for the core
  KvLayout layout;               // layout for the worker
  std::uint32_t block_size = 0;  // tokens of a hashed block: as configured, or more if a state needs a larger block
  MambaCacheMode states = MambaCacheMode::none;
  std::uint32_t max_model_len = 0;  // as configured; if 0, the model's context, or fewer tokens if only fewer fit
};

// Plans the KV cache of `model`. `kv_cache_bytes` must be resolved; `num_blocks` and `max_model_len` may be 0. Errors name the option.
Result<KvPlan> plan_kv(const ModelInfo& model, const EngineOptions& options);

// Plans the KV cache of a draft model. The cache holds as many tokens as the cache of `target`, but takes at most a quarter of its bytes.
// Layers with sliding windows also get blocks for all tokens.
Result<KvLayout> plan_draft_kv(const ModelInfo& draft, const EngineOptions& options, const KvLayout& target);

// Returns the number of prompt tokens that fit into `num_blocks` blocks, with blocks in all cache groups that grow with the prompt.
std::uint64_t num_tokens_in(const KvCacheConfig& config, std::uint64_t num_blocks);

}  // namespace quire
