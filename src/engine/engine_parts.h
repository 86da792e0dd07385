#pragma once
// What an engine is put together of, and who does that.
#include <memory>

#include "engine/adapters/adapter_registry.h"
#include "engine/adapters/live_adapters.h"
#include "engine/requests/live_encoder_inputs.h"
#include "engine/tiers/kv_swap.h"
#include "engine/tiers/kv_tier.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"
#include "runtime/worker/worker.h"

namespace quire {

// Adapters of an engine.
struct EngineAdapters {
  std::shared_ptr<AdapterRegistry> registry = {};  // null: none are served
  std::shared_ptr<LiveAdapters> live = {};         // where the worker finds them; null with it
};

struct EngineParts {
  std::unique_ptr<WorkerBase> worker;  // has the transport of `seams` already
  EngineSeams seams = {};
  KvTiers tiers = {};                                      // behind the connector and the transport of `seams`, the nearest first
  std::shared_ptr<KvSwap> swap = {};                       // where the worker's transport moves preempted requests to; may be null
  EngineAdapters adapters = {};                            // what the worker finds by lora_id
  std::shared_ptr<LiveEncoderInputs> encoder_inputs = {};  // what its encoder reads; null: it has none
};

// `options` are resolved (resolve_options.h) and are those the worker was built for. Starts the engine thread. Errors: a trace that cannot
// be written, what the worker cannot carry out.
Result<std::unique_ptr<Engine>> make_engine(const EngineOptions& options, const ModelInfo& model, EngineParts parts);

}  // namespace quire
