#pragma once
// Routes for vectors of texts: /v1/embeddings, /pooling, /score, /rerank and their other names.
#include "server/api/routes.h"

namespace quire {

[[nodiscard]] ApiRoutes pooling_routes(Serving& serving);

}  // namespace quire
