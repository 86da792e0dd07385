#pragma once
// "kv_transfer_params" of a completion, in the form that vLLM's clients and proxies send, and that their answers contain.
#include <string>

#include "quire/base/kv_transfer_params.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

// Reads whether hidden states of the prompt are requested, or where its blocks go or come from.
void read_transfer_params(ObjectReader& reader, CompletionRequest& request);

[[nodiscard]] std::string transfer_params_json(const KvTransferParams& params);

}  // namespace quire
