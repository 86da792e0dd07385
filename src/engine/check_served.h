#pragma once
// Nothing is planned that the worker cannot carry out.
// Asked once for an engine, and for each request on its client's thread.
#include "quire/base/error.h"
#include "quire/core.h"
#include "quire/engine.h"
#include "quire/engine_builder.h"
#include "runtime/worker/worker_base.h"

namespace quire {

// Errors: `unsupported`, and the field of the configuration that asks for more.
Result<void> check_served(const CoreConfig& config, const WorkerCapabilities& worker);
// The same of a request's fields.
Result<void> check_served(const EngineRequest& request, const WorkerCapabilities& worker);
// Errors: `invalid_argument` or `unsupported`, and the seam.
Result<void> check_seams(const EngineSeams& seams, const CoreConfig& config, const WorkerCapabilities& worker);

}  // namespace quire
