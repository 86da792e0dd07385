#pragma once
// EngineBuilder::build with a view of what the model computes, which the facade does not give.
#include <memory>

#include "quire/engine_builder.h"
#include "runtime/worker/worker.h"

namespace quire {

// As EngineBuilder::build. `observer` is called on the engine thread; it may be null, and must outlive the engine.
Result<std::unique_ptr<Engine>> create_engine(const EngineOptions& options, void (*progress)(double), LogitsObserver* observer,
                                              const EngineSeams& seams = {});

}  // namespace quire
