#pragma once
// Checks that the worker can execute everything that may be planned. A configuration is checked once per engine, and a request on its
// client's thread.
#include "quire/base/error.h"
#include "quire/core.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"
#include "runtime/worker/worker_base.h"

namespace quire {

// Returns `unsupported` if the configuration exceeds the worker's capabilities. The error names the field of the configuration.
Result<void> check_served(const CoreConfig& config, const WorkerCapabilities& worker);
// Returns `unsupported` if the request exceeds the worker's capabilities. The error names the field of the request.
Result<void> check_served(const EngineRequest& request, const WorkerCapabilities& worker);
// Returns `invalid_argument` or `unsupported` if a seam does not fit the worker or the configuration. The error names the seam.
Result<void> check_seams(const EngineSeams& seams, const CoreConfig& config, const WorkerCapabilities& worker);

}  // namespace quire
