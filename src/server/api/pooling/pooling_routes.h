#pragma once
// Pooling routes: /v1/embeddings, /pooling, /score, /rerank and their aliases.
#include <string>

#include "quire/base/error.h"
#include "server/answers/pooling_call.h"
#include "server/api/routes.h"
#include "server/request/request_context.h"

namespace quire {

[[nodiscard]] ApiRoutes pooling_routes(Serving& serving);

// Reads the body of a pooling route. Called on any thread.
using PreparePooling = Result<PreparedPooling> (*)(std::string body, const RequestContext& context);
// Answers a pooling route whose body `prepare` reads. If it prepares no request to the engine, the answer has no vectors.
[[nodiscard]] Reply answer_pooled(Serving& serving, HttpRequest& request, const Wake& wake, PreparePooling prepare);

}  // namespace quire
