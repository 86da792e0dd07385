#pragma once
// Implements /v1/embeddings as in the APIs of OpenAI and vLLM.
#include <cstdint>
#include <string>

#include "quire/base/error.h"
#include "server/api/pooling/pooling_request.h"

namespace quire {

// Reads `dimensions`, the number of values of a vector. Returns 0, for all values, if it is absent.
[[nodiscard]] std::uint32_t read_dimensions(ObjectReader& reader, const RequestContext& context);

// Parses the body and frees it immediately afterwards. Called on any thread.
Result<PreparedPooling> prepare_embeddings(std::string body, const RequestContext& context);

}  // namespace quire
