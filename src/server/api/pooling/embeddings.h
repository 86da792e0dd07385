#pragma once
// /v1/embeddings, as in the APIs of OpenAI and vLLM.
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Consumes the body and frees it as soon as it is parsed. Called on any thread.
Result<PreparedPooling> prepare_embeddings(std::string body, const RequestContext& context);

}  // namespace quire
