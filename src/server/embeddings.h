#pragma once
// /v1/embeddings, as OpenAI and vLLM have it.
#include <span>
#include <string>

#include "quire/error.h"
#include "server/pooling_request.h"

namespace quire {

// Takes the body, and frees it as soon as it is read. Any thread.
Result<PreparedPooling> prepare_embeddings(std::string body, const PoolingContext& context);

// Its first `size` numbers (0: all), brought to length 1 if so wanted.
PooledVector finished_vector(std::span<const float> row, std::uint32_t size, bool normalize);

}  // namespace quire
