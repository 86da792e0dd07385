#pragma once
// Pooling routes: /v1/embeddings, /pooling, /score, /rerank and their aliases.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes pooling_routes(Serving& serving);

}  // namespace quire
