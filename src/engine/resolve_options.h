#pragma once
// Options are checked, and their zeros resolved, before anything large is made.
#include <cstdint>

#include "quire/base/error.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "quire/core.h"
#include "runtime/worker/worker.h"

namespace quire {

// What options left open are filled from.
struct Machine {
  std::uint32_t num_cores = 1;
  std::uint64_t available_bytes = 0;  // of memory, before the model is loaded
  std::uint64_t draft_bytes = 0;      // of these for the weights of the draft model, if there is one
};

// `options` with every 0 default written out for this model and machine: num_threads, kv_cache_bytes, num_blocks, max_model_len,
// served_model_name, num_speculative_tokens with a draft model. Errors name the option.
Result<EngineOptions> resolve_options(EngineOptions options, const ModelInfo& model, const Machine& machine);

// What the core and the worker take from resolved options.
CoreConfig core_config(const EngineOptions& options, const ModelInfo& model);
WorkerLimits worker_limits(const EngineOptions& options);

}  // namespace quire
