#pragma once
// Starts the engine for a command.
#include <memory>

#include "quire/base/error.h"
#include "quire/engine_builder.h"

namespace quire {

// Loads the model and shows a progress bar on a terminal. Errors name flags instead of options.
Result<std::unique_ptr<Engine>> start_engine(const EngineBuilder& builder);

}  // namespace quire
