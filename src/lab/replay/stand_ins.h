#pragma once
// Tokens instead of those that a journal has left out, so that another configuration can be asked of it: blocks whose names were equal get
// equal tokens, all others others. So a core that names blocks by them finds in its cache what the tokens themselves would have found.
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "lab/replay/recorded_workload.h"

namespace quire {

// Changes prompts and outputs of the workload, which was gathered under this configuration. What ended a request stays: its stop id is in
// the journal, and where it was a repetition it ends after as many tokens.
void put_stand_ins(RecordedWorkload& workload, const CoreConfig& config);

}  // namespace quire
