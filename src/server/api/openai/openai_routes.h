#pragma once
// OpenAI's API and vLLM's additions: /v1/completions, /v1/chat/completions, /v1/models, tokenization, forks and sessions.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes openai_routes(Serving& serving);

}  // namespace quire
