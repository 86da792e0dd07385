#pragma once
// Implements EngineBuilder::build, with an additional observer of the model's logits that the public builder does not offer.
#include <memory>

#include "quire/engine_builder.h"
#include "runtime/worker/worker.h"

namespace quire {

// Builds an engine as EngineBuilder::build does. `observer` is called on the engine thread. It may be null, and must outlive the engine.
Result<std::unique_ptr<Engine>> create_engine(const EngineOptions& options, void (*progress)(double), LogitsObserver* observer,
                                              const EngineSeams& seams = {});

}  // namespace quire
