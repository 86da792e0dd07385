#pragma once
// Reports the experts that an answer's tokens were routed to, if the server allows it (--enable-return-routed-experts).
#include <cstdint>

#include "quire/base/error.h"
#include "quire/server_options.h"
#include "server/request/completion_request.h"
#include "server/request/object_reader.h"

namespace quire {

struct PreparedCompletion;
class ServedModel;

// Reads return_routed_experts and vLLM's routed_experts_prompt_start. Must be called after the other fields are read. As in vLLM, if
// `may_ask`, all answers that are not streamed report their experts. A request that does not support experts is refused only if it asks for
// them.
void read_routed_experts(ObjectReader& reader, bool may_ask, CompletionRequest& request);

// Checks that the experts of the prompts fit into memory, because each choice stores them, and that each prompt is longer than
// routed_experts_prompt_start.
Result<void> check_routed_experts(const PreparedCompletion& prepared, const ServedModel& model, const ServerOptions& options);

}  // namespace quire
