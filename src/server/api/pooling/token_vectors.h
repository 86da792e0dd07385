#pragma once
// /pooling, as vLLM has it: the vector of a text or of a conversation, or the vectors of all its tokens.
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Takes the body, and frees it as soon as it is read. Any thread.
Result<PreparedPooling> prepare_pooling(std::string body, const RequestContext& context);

}  // namespace quire
