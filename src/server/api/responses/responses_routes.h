#pragma once
// Routes of OpenAI's /v1/responses: create, read and delete a response, list its input items, and count input tokens. Each item of an
// answer has separate events, and answers are stored for the next turn.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes responses_routes(Serving& serving);

}  // namespace quire
