#pragma once
// OpenAI's /v1/responses: each item of an answer has separate events, and answers are stored for the next turn.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes responses_routes(Serving& serving);

}  // namespace quire
