#pragma once
// OpenAI's /v1/responses: answers have items with separate events, and are stored for the next turn.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes responses_routes(Serving& serving);

}  // namespace quire
