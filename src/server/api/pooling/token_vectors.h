#pragma once
// /pooling, as in vLLM: the vector of a text or of a conversation, or the vectors of all its tokens.
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Consumes the body and frees it as soon as it is parsed. Called on any thread.
Result<PreparedPooling> prepare_pooling(std::string body, const RequestContext& context);

}  // namespace quire
