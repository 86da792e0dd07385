#pragma once
// The parts of an engine, and the function that assembles them.
#include <memory>

#include "engine/adapters/adapter_registry.h"
#include "engine/adapters/live_adapters.h"
#include "engine/requests/live_encoder_inputs.h"
#include "engine/resolve_options.h"
#include "engine/tiers/kv_swap.h"
#include "engine/tiers/kv_tier.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"
#include "runtime/worker/worker.h"

namespace quire {

// The LoRA adapters of an engine: the registry of all adapters, and the adapters of open requests.
struct EngineAdapters {
  std::shared_ptr<AdapterRegistry> registry = {};  // null: no adapters are served
  std::shared_ptr<LiveAdapters> live = {};         // the worker looks up adapters here; null if `registry` is null
};

struct EngineParts {
  std::unique_ptr<WorkerBase> worker;  // already has the transport of `seams`
  EngineSeams seams = {};
  KvTiers tiers = {};                                      // the tiers of the connector and transport in `seams`, nearest first
  std::shared_ptr<KvSwap> swap = {};                       // swap space of preempted requests; may be null
  EngineAdapters adapters = {};                            // the worker looks up adapters here by lora_id
  std::shared_ptr<LiveEncoderInputs> encoder_inputs = {};  // inputs of the worker's encoder; null: the worker has no encoder
};

// Builds an engine and starts the engine thread. The worker must have been created for `resolved`. Errors: a trace or journal cannot be
// written, or the worker cannot execute an option.
Result<std::unique_ptr<Engine>> make_engine(ResolvedEngine resolved, EngineParts parts);

}  // namespace quire
