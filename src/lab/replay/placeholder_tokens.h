#pragma once
// Fills in placeholders for tokens that a journal leaves out, so that its requests can run with another configuration. Blocks with equal
// hashes get equal tokens, and all other blocks get different tokens. A core that hashes the placeholders therefore finds the same prefixes
// as with the real tokens.
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lab/replay/recorded_workload.h"

namespace quire {

// Changes the prompts and outputs of the workload, which must have been recorded with `config`. Requests end as in the recording: the
// journal contains the stop token ids, and a request that ended because of a repetition ends after the same number of tokens.
void fill_placeholder_tokens(RecordedWorkload& workload, const CoreConfig& config);

}  // namespace quire
