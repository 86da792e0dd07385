#pragma once
// The engine's KV cache: from the model's layers and the memory for them to what the core is configured with, and how the worker lays it
// out.
#include <cstdint>

#include "quire/base/error.h"
#include "quire/base/kv_layout.h"
#include "quire/base/kv_spec.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"

namespace quire {

struct KvPlan {
  KvCacheConfig config;          // the core's
  KvLayout layout;               // the worker's
  std::uint32_t block_size = 0;  // tokens of a named block: as given, or as many as make a state fit
  MambaCacheMode states = MambaCacheMode::none;
  std::uint32_t max_model_len = 0;  // as given; or the model's context, or what fits beside the null block if less
};

// kv_cache_bytes is resolved; num_blocks and max_model_len may be 0. Errors name the option.
Result<KvPlan> plan_kv(const ModelInfo& model, const EngineOptions& options);

// That of a draft model beside the cache of `target`: as many tokens, as long as it takes no more than a quarter of its bytes; windows keep
// all tokens, too. Errors name the draft model.
Result<KvLayout> plan_draft_kv(const ModelInfo& draft, const EngineOptions& options, const KvLayout& target);

}  // namespace quire
