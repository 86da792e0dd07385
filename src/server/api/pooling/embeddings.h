#pragma once
// Implements /v1/embeddings as in the APIs of OpenAI and vLLM.
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Parses the body and frees it immediately afterwards. Called on any thread.
Result<PreparedPooling> prepare_embeddings(std::string body, const RequestContext& context);

}  // namespace quire
