#pragma once
// Checks options, replaces automatic values (0), and translates the options for the core and the worker. Called before anything large is
// allocated.
#include <cstdint>

#include "quire/base/error.h"
#include "quire/base/kv_layout.h"
#include "quire/base/model_info.h"
#include "quire/base/options.h"
#include "quire/core.h"
#include "runtime/worker/worker.h"

namespace quire {

// The machine's resources, from which automatic options are computed.
struct Machine {
  std::uint32_t num_cores = 1;
  std::uint64_t available_bytes = 0;  // free memory before the model is loaded
  std::uint64_t draft_bytes = 0;      // part of available_bytes for the draft model's weights; 0: no draft model
  std::uint64_t tier_bytes = 0;       // part of available_bytes for tiers in host memory
};

// The configuration of one engine. It is computed once per start, and all parts of the engine read it.
struct ResolvedEngine {
  EngineOptions options;  // without automatic values (0)
  ModelInfo model;
  KvLayout layout;  // layout of the worker's KV cache
  CoreConfig core;  // make_engine() adds the fixes that depend on tiers
  WorkerLimits limits;
};

// Replaces every automatic value (0 or empty) of `options` for this model and machine, such as num_threads, kv_cache_bytes, num_blocks,
// max_model_len, served_model_name and max_cpu_loras. Errors name the option.
Result<ResolvedEngine> resolve_options(EngineOptions options, ModelInfo model, const Machine& machine);

}  // namespace quire
