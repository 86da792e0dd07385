#pragma once
// The routes of Ollama's API: /api/chat, /api/generate, /api/embed, /api/embeddings, /api/tags, /api/ps, /api/show, /api/version.
#include "server/api/routes.h"

namespace quire {

ApiRoutes ollama_routes(Serving& serving);

}  // namespace quire
