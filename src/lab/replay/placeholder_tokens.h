#pragma once
// Replaces tokens that a journal leaves out, so that its requests can run on another configuration. Blocks with equal hashes get equal
// tokens, and all other blocks get different tokens. A core that hashes these tokens finds the same prefixes in its cache as with the real
// tokens.
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lab/replay/recorded_workload.h"

namespace quire {

// Changes prompts and outputs of the workload, which must have been recorded with `config`. Requests end as recorded: the journal has the
// stop token ids, and a request that ended in a repetition ends after as many tokens.
void fill_placeholder_tokens(RecordedWorkload& workload, const CoreConfig& config);

}  // namespace quire
