#pragma once
// Anthropic's API: /v1/messages and /v1/messages/count_tokens.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes messages_routes(Serving& serving);

}  // namespace quire
