#pragma once
// /v1/score and /v1/rerank, as vLLM, Jina and Cohere have them: how well documents answer a query. An embedding model says the cosine of
// their vectors, a judge of pairs the probability of its "yes".
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Each takes the body, and frees it as soon as it is read. Any thread.
Result<PreparedPooling> prepare_score(std::string body, const RequestContext& context);
Result<PreparedPooling> prepare_rerank(std::string body, const RequestContext& context);

}  // namespace quire
