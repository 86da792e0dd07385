#pragma once
// Checks that the worker can execute everything that may be planned. The configuration is checked once per engine, a request on its
// client's thread.
#include "quire/base/error.h"
#include "quire/core.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"
#include "runtime/worker/worker_base.h"

namespace quire {

// Errors: `unsupported`, with the field of the configuration that exceeds the worker's capabilities.
Result<void> check_served(const CoreConfig& config, const WorkerCapabilities& worker);
// Errors: `unsupported`, with the field of the request.
Result<void> check_served(const EngineRequest& request, const WorkerCapabilities& worker);
// Errors: `invalid_argument` or `unsupported`, with the name of the seam.
Result<void> check_seams(const EngineSeams& seams, const CoreConfig& config, const WorkerCapabilities& worker);

}  // namespace quire
