#pragma once
// Reads the bodies of Ollama's /api/embed and of its older route /api/embeddings.
#include <string>

#include "quire/base/error.h"
#include "server/answers/pooling_call.h"
#include "server/request/request_context.h"

namespace quire {

// Parse the body and free it immediately afterwards. Called on any thread. /api/embed accepts several texts, shortens texts that do not fit
// unless `truncate` is false, and returns vectors of length 1. /api/embeddings accepts one text, and does not scale the vector.
Result<PreparedPooling> prepare_ollama_embed(std::string body, const RequestContext& context);
Result<PreparedPooling> prepare_ollama_embeddings(std::string body, const RequestContext& context);

}  // namespace quire
