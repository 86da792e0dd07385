#pragma once
// A completion that wants the hidden states of its prompt in a file ("kv_transfer_params"): they are computed and written before it starts,
// and it finds the blocks that this leaves.
#include <string>

#include "server/api/serving.h"

namespace quire {

// As Serving::Start.
Reply start_with_states(Serving& serving, PreparedCompletion prepared, const std::string& request_id, const Wake& wake);

}  // namespace quire
