#pragma once
// Routes of OpenAI's API (/v1/completions, /v1/chat/completions, /v1/models), of vLLM (/tokenize, /detokenize, /tokenizer_info), and of
// quire (/v1/cache/probe, /v1/cache/warm, forks of requests, inputs of sessions).
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes openai_routes(Serving& serving);

}  // namespace quire
