#pragma once
// For every command that has an engine.
#include <memory>

#include "quire/base/error.h"
#include "quire/engine_builder.h"

namespace quire {

// Loads the model with a progress bar on a terminal.
Result<std::unique_ptr<Engine>> start_engine(const EngineBuilder& builder);

}  // namespace quire
