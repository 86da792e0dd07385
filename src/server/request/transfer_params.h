#pragma once
// Reads and writes "kv_transfer_params" of a completion, in the format that vLLM's clients and proxies send and expect in answers.
#include <string>

#include "quire/base/kv_transfer_params.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

// Reads whether the prompt's hidden states are requested, and whether its blocks go to another server or come from one.
void read_transfer_params(ObjectReader& reader, CompletionRequest& request);

[[nodiscard]] std::string transfer_params_json(const KvTransferParams& params);

}  // namespace quire
