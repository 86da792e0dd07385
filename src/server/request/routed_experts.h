#pragma once
// The experts that an answer's tokens have gone through, where requests may ask for them (--enable-return-routed-experts).
#include <cstdint>

#include "quire/base/error.h"
#include "quire/server_options.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

struct PreparedCompletion;
class ServedModel;

// return_routed_experts and vLLM's routed_experts_prompt_start. As in vLLM, all answers that are not streamed tell them where `may_ask`;
// of a request that cannot have them it must be said to be refused. Behind the other fields.
void read_routed_experts(ObjectReader& reader, bool may_ask, CompletionRequest& request);

// Those of the prompts wait in memory for each choice, and a prompt has a token from which on they are told.
Result<void> check_routed_experts(const PreparedCompletion& prepared, const ServedModel& model, const ServerOptions& options);

}  // namespace quire
