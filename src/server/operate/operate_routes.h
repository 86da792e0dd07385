#pragma once
// What a server tells of itself and lets its operator do: pages, health, version, metrics, cache, pause, resume, reset.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes operate_routes(Serving& serving);

}  // namespace quire
