#pragma once
// Implements /v1/score and /v1/rerank, as in vLLM, Jina and Cohere: scores how well documents answer a query. The score of an embedding
// model is the cosine of two vectors. The score of a cross-encoder is the probability of its "yes".
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Parse the body and free it immediately afterwards. Called on any thread.
Result<PreparedPooling> prepare_score(std::string body, const RequestContext& context);
Result<PreparedPooling> prepare_rerank(std::string body, const RequestContext& context);

}  // namespace quire
