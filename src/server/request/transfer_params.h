#pragma once
// "kv_transfer_params" of a completion, as vLLM's clients and proxies send them, and as their answers carry them.
#include <string>

#include "quire/base/kv_transfer_params.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

// Hidden states of the prompt, or where its blocks go or come from.
void read_transfer_params(ObjectReader& reader, CompletionRequest& request);

[[nodiscard]] std::string transfer_params_json(const KvTransferParams& params);

}  // namespace quire
