#pragma once
// /v1/embeddings, as OpenAI and vLLM have it.
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Takes the body, and frees it as soon as it is read. Any thread.
Result<PreparedPooling> prepare_embeddings(std::string body, const RequestContext& context);

}  // namespace quire
