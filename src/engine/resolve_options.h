#pragma once
// Options are checked, and their zeros resolved, before anything large is made.
#include <cstdint>

#include "quire/core.h"
#include "quire/error.h"
#include "quire/model_info.h"
#include "quire/options.h"
#include "runtime/worker/worker.h"

namespace quire {

// `options` with every 0 default written out for this model and machine: num_threads (`num_cores`), num_blocks, max_model_len,
// served_model_name. Errors name the option.
Result<EngineOptions> resolve_options(EngineOptions options, const ModelInfo& model, std::uint32_t num_cores);

// What the core and the worker take from resolved options.
CoreConfig core_config(const EngineOptions& options);
WorkerLimits worker_limits(const EngineOptions& options);

// Tokens that the KV cache of resolved options holds.
std::uint64_t kv_capacity_tokens(const CacheOptions& cache);

}  // namespace quire
