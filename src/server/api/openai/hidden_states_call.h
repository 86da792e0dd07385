#pragma once
// A completion that requests the hidden states of its prompt in a file ("kv_transfer_params"). The hidden states are computed and written
// before the completion starts. The completion then finds the prompt's blocks in the prefix cache.
#include <string>

#include "server/api/serving.h"

namespace quire {

// Starts a completion that requests hidden states. The function type is Serving::Start.
Reply start_with_states(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);

}  // namespace quire
