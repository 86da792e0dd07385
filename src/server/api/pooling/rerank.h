#pragma once
// /v1/score and /v1/rerank, as in vLLM, Jina and Cohere: how well documents answer a query. An embedding model scores with the cosine of
// the vectors, a cross-encoder with the probability of its "yes".
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Each function consumes the body and frees it as soon as it is parsed. Called on any thread.
Result<PreparedPooling> prepare_score(std::string body, const RequestContext& context);
Result<PreparedPooling> prepare_rerank(std::string body, const RequestContext& context);

}  // namespace quire
