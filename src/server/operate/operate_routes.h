#pragma once
// Routes for status and control of a server: pages and the watch API, OpenAPI description, health, version, metrics, the cache and its
// hit-rate curve, explanations of requests, reset, pause, resume, saved journals, adapters.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes operate_routes(Serving& serving);

}  // namespace quire
