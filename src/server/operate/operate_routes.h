#pragma once
// Routes for status and control of a server: pages, health, version, metrics, cache, pause, resume, reset.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes operate_routes(Serving& serving);

}  // namespace quire
