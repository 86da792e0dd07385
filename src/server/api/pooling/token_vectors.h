#pragma once
// Implements /pooling as in vLLM: returns the vector of a text or a conversation, or the vectors of all its tokens.
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Parses the body and frees it immediately afterwards. Called on any thread.
Result<PreparedPooling> prepare_pooling(std::string body, const RequestContext& context);

}  // namespace quire
