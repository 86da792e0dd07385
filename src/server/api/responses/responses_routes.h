#pragma once
// OpenAI's /v1/responses: answers with items and events of their own, which are kept for the next turn.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes responses_routes(Serving& serving);

}  // namespace quire
